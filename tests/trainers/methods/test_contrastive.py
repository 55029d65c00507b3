import math

import pytest
import torch
import torch.nn.functional as F

from scoring.distributions import vmf
from scoring.errors import InputError
from scoring.metrics.ranking import spearman
from trainers.methods.contrast import Contrast, of_labels, of_pairs, of_views, of_votes
from trainers.methods.contrastive_losses import elk, hib, infonce, mcinfonce, mcinfonce_of_samples
from trainers.methods.method import Batch, Task
from trainers.methods.table import METHODS

I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X = F.normalize(torch.sin(I).reshape(4, 6), dim=1)
Y = F.normalize(torch.cos(0.5 * I).reshape(4, 6), dim=1)
Z = torch.cat([X, Y])  # item 4 + i is the other view of item i
METHOD_NAMES = ("mcinfonce", "infonce", "hib", "elk")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def directions(*shape, seed=0, dtype=torch.float64):
    return F.normalize(torch.randn(*shape, generator=seeded(seed), dtype=dtype), dim=-1)


def rows(of, n):
    return list(range(n))[of] if isinstance(of, slice) else of.tolist()


def n_items(contrast):
    return max(max(rows(of, 10**4)) for of in (contrast.anchors, contrast.positives)) + 1


def weighed(contrast):
    """Weights of all items, zero for those that the contrast leaves out."""
    weights = torch.zeros(len(contrast), max(n_items(contrast), contrast.weights.shape[1]))
    weights[:, contrast.among] = contrast.weights
    return weights


def slow_ratio(contrast, score, denominator):
    """Equation 7 and its relatives, written out: positive over denominator for pair number ``row``."""

    def ratio(row, anchor, partner):
        positive = math.exp(score(anchor, partner))
        weights = weighed(contrast)[row].tolist()
        negative = sum(w * math.exp(score(anchor, item)) for item, w in enumerate(weights) if w)
        return (
            positive
            / {
                "eq7": (positive + negative) / sum(weights),
                "authors": positive + negative / sum(weights),
                "negatives": negative / sum(weights),
            }[denominator]
        )

    return ratio


def slow_mcinfonce(z, contrast, kappa_pos, denominator="eq7", cross=False):
    """Eq. 7: draws s of the anchor and t of its positive; negatives are of the anchor's draw."""
    n_samples, n_items = z.shape[:2]
    total = 0.0
    pairs = list(zip(rows(contrast.anchors, n_items), rows(contrast.positives, n_items), strict=True))
    for row, (anchor, partner) in enumerate(pairs):
        ratios = []
        for s in range(n_samples):
            for t in range(n_samples) if cross else [s]:

                def score(a, b, s=s, t=t, partner=partner):
                    return kappa_pos * float(z[s, a] @ z[t if b == partner else s, b])

                ratios.append(slow_ratio(contrast, score, denominator)(row, anchor, partner))
        total -= math.log(sum(ratios) / len(ratios))
    return total / len(pairs)


# Against known values


@pytest.mark.parametrize(("kappa_pos", "known"), [(1, 2.1790749892), (10, 10.1456549258), (16, 15.7090800820)])
def test_infonce_over_negatives_alone_matches_its_oracle(kappa_pos, known):
    ours = infonce(Z, of_views(2, 4), kappa_pos=kappa_pos, denominator="negatives")
    assert ours.item() + math.log(6) == pytest.approx(known, abs=1e-9)  # the oracle sums over 6 negatives, eq. 5 means


@pytest.mark.parametrize(("kappa_pos", "known"), [(16, 13.868214556267333), (1, 1.0305733962932746)])
def test_mcinfonce_with_rolled_negatives_and_no_spread_matches_the_authors_code(kappa_pos, known):
    certain = torch.full((8,), torch.inf, dtype=torch.float64)
    settings = {"kappa_pos": kappa_pos, "samples": 3, "denominator": "authors"}
    assert mcinfonce(Z, certain, of_pairs(4, negatives="roll"), **settings).item() == pytest.approx(known, abs=1e-12)


def test_elk_matches_its_oracle():
    kappa = torch.tensor([1.0, 5, 20, 100, 2, 4, 8, 16], dtype=torch.float64)
    weights = torch.cat([torch.zeros(4, 4), 1 - torch.eye(4)], dim=1)
    ours = elk(Z, kappa, Contrast(slice(0, 4), slice(4, 8), weights), kappa_pos=1.0)
    assert ours.item() + math.log(3) == pytest.approx(7.937384262222342, abs=1e-9)  # eq. 55 divides by M = 3


@pytest.mark.parametrize(("a", "b", "known"), [(10, 0, 9.4979737084), (2, 1, 2.3969825990)])
def test_hib_without_spread_comes_near_the_oracle_that_adds_a_hundred_thousandth(a, b, known):
    certain = torch.full((8,), torch.inf, dtype=torch.float64)
    assert hib(Z, certain, of_views(2, 4), a=a, b=b, samples=2).item() == pytest.approx(known, rel=3e-3)


# Definition


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("denominator", ["eq7", "authors", "negatives"])
@pytest.mark.parametrize(
    "contrast", [of_views(2, 3), of_views(3, 2), of_pairs(3, negatives="roll")], ids=["two", "three", "roll"]
)
def test_mcinfonce_is_equation_7(contrast, denominator, cross):
    z = directions(4, n_items(contrast), 5)
    ours = mcinfonce_of_samples(z, contrast, kappa_pos=3.0, denominator=denominator, cross=cross)
    assert ours.item() == pytest.approx(slow_mcinfonce(z, contrast, 3.0, denominator, cross), rel=1e-12)


def test_elk_is_equation_55():
    mu, kappa, contrast = directions(6, 5), torch.tensor([1.0, 4, 9, 2, 30, 0.5]).double(), of_views(2, 3)
    total = 0.0
    for row, (anchor, partner) in enumerate(zip(range(6), contrast.positives.tolist(), strict=True)):

        def score(a, b):
            k3 = float((kappa[a] * mu[a] + kappa[b] * mu[b]).norm())
            log_c = [
                float(vmf.log_normalizer(torch.as_tensor(k, dtype=torch.float64), 5)) for k in (kappa[a], kappa[b], k3)
            ]
            return 0.7 * (log_c[0] + log_c[1] - log_c[2])

        total -= math.log(slow_ratio(contrast, score, "eq7")(row, anchor, partner))
    assert elk(mu, kappa, contrast, kappa_pos=0.7).item() == pytest.approx(total / 6, rel=1e-10)


def test_hib_is_equation_54_with_the_means_inside_the_logarithms(monkeypatch):
    z, contrast = directions(7, 6, 4), of_views(2, 3)
    monkeypatch.setattr(vmf, "sample", lambda *arguments, **keywords: z)
    total = 0.0
    for anchor, partner in enumerate(contrast.positives.tolist()):

        def match(other, anchor=anchor):
            return torch.sigmoid(2.0 * (z[:, anchor] * z[:, other]).sum(-1) - 0.5)

        others = [item for item in range(6) if item % 3 != anchor % 3]
        total -= math.log(match(partner).mean())
        total -= sum(math.log((1 - match(other)).mean()) for other in others) / len(others)
    ours = hib(z[0], torch.ones(6), contrast, a=2.0, b=-0.5, samples=7)
    assert ours.item() == pytest.approx(total / 6, rel=1e-12)


@pytest.mark.parametrize("denominator", ["eq7", "authors", "negatives"])
@pytest.mark.parametrize("cross", [False, True])
def test_mcinfonce_of_certain_images_is_infonce(denominator, cross):
    certain = torch.full((8,), torch.inf, dtype=torch.float64)
    ours = mcinfonce(Z, certain, of_views(2, 4), kappa_pos=9.0, samples=5, denominator=denominator, cross=cross)
    expected = infonce(Z, of_views(2, 4), kappa_pos=9.0, denominator=denominator)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-12)


def test_the_expected_likelihood_of_two_items_is_what_their_draws_average_to():
    mu, kappa = directions(2, 5, seed=3), torch.tensor([6.0, 3.0], dtype=torch.float64)
    exact = vmf.log_expected_likelihood(mu[:1], kappa[:1], mu[1:], kappa[1:]).exp().item()
    for n in (1_000, 100_000):
        z = vmf.sample(mu[0], kappa[0], n, generator=seeded(n))
        likelihood = vmf.log_prob(z, mu[1], kappa[1]).exp()
        assert abs(likelihood.mean().item() - exact) < 4 * likelihood.std().item() / math.sqrt(n)


def test_crossed_draws_have_the_expectation_of_many_draws_with_less_bias():
    mu, kappa, contrast = directions(8, 10, seed=1), torch.full((8,), 20.0).double(), of_pairs(4)
    mu[4:] = F.normalize(mu[:4] + 0.4 * directions(4, 10, seed=2), dim=1)
    settings = {"kappa_pos": 20.0, "denominator": "negatives"}
    truth = mcinfonce(mu, kappa, contrast, samples=20_000, generator=seeded(), **settings).item()

    def mean(cross):
        draws = [
            mcinfonce(mu, kappa, contrast, samples=16, cross=cross, generator=seeded(seed), **settings).item()
            for seed in range(150)
        ]
        return sum(draws) / len(draws)

    assert truth < mean(True) < mean(False)  # Jensen: few draws make the loss too large
    assert mean(True) - truth < 0.7 * (mean(False) - truth)


# Gradients, and what must not matter


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("block", [1, 13, 10**6])
def test_gradients_of_mcinfonce_match_finite_differences_in_any_block(block, cross):
    z = torch.randn(3, 6, 4, generator=seeded(), dtype=torch.float64).requires_grad_()

    def function(z):
        return mcinfonce_of_samples(z, of_views(2, 3), kappa_pos=2.0, cross=cross, block=block)

    assert torch.autograd.gradcheck(function, (z,))


@pytest.mark.parametrize("loss", [elk, hib])
@pytest.mark.slow
def test_gradients_of_elk_and_hib_match_finite_differences_and_the_block_does_not_matter(loss, monkeypatch):
    mu = directions(6, 4).requires_grad_()
    kappa = torch.tensor([1.0, 4, 9, 2, 30, 0.5], dtype=torch.float64, requires_grad=True)
    noise = directions(3, 6, 4, seed=5)
    monkeypatch.setattr(
        vmf, "sample", lambda mu, kappa, n, generator=None: F.normalize(mu + noise / kappa[:, None], dim=-1)
    )
    settings = {"kappa_pos": 0.5} if loss is elk else {"a": 2.0, "b": -1.0, "samples": 3}

    def function(block):
        return lambda mu, kappa: loss(mu, kappa, of_views(2, 3), block=block, **settings)

    assert torch.autograd.gradcheck(function(7), (mu, kappa))
    undivided, blocks = function(10**6)(mu, kappa), function(7)(mu, kappa)
    assert undivided.item() == pytest.approx(blocks.item(), rel=1e-12)
    for first, other in zip(
        torch.autograd.grad(undivided, (mu, kappa)), torch.autograd.grad(blocks, (mu, kappa)), strict=True
    ):
        assert torch.allclose(first, other, rtol=1e-10)


def test_kappa_gets_a_gradient_that_lowers_it_where_the_positive_is_far_and_raises_it_where_it_is_near():
    near, far = directions(1, 10), directions(1, 10, seed=9)
    mu = torch.cat([near, near, near, -near + 0.01 * far, far, far])
    contrast = Contrast(torch.tensor([0, 1]), torch.tensor([2, 3]), torch.tensor([[0.0, 0, 0, 0, 1, 1]] * 2))
    kappa = torch.full((6,), 20.0, dtype=torch.float64, requires_grad=True)
    mcinfonce(F.normalize(mu, dim=1), kappa, contrast, kappa_pos=16.0, samples=256, generator=seeded()).backward()
    assert kappa.grad[0] < 0 < kappa.grad[1]


@pytest.mark.parametrize("name", ["mcinfonce", "infonce", "elk"])
def test_the_order_of_the_images_does_not_matter(name):
    z, kappa, order = directions(4, 12, 6), torch.linspace(1, 20, 12).double(), torch.randperm(6, generator=seeded(1))
    both = torch.cat([order, 6 + order])
    value = {
        "mcinfonce": lambda rows: mcinfonce_of_samples(z[:, rows], of_views(2, 6), kappa_pos=5.0, cross=True),
        "infonce": lambda rows: infonce(z[0, rows], of_views(2, 6), kappa_pos=5.0),
        "elk": lambda rows: elk(z[0, rows], kappa[rows], of_views(2, 6), kappa_pos=1.0),
    }[name]
    assert value(both).item() == pytest.approx(value(torch.arange(12)).item(), rel=1e-12)


def test_no_block_is_larger_than_stated(monkeypatch):
    sizes = []
    original = torch.baddbmm
    monkeypatch.setattr(torch, "baddbmm", lambda *a, **k: sizes.append(original(*a, **k)) or sizes[-1])
    z = directions(8, 20, 4).requires_grad_()
    mcinfonce_of_samples(z, of_views(2, 10), kappa_pos=4.0, block=100).backward()
    assert max(table.numel() for table in sizes) <= 100
    assert sum(table.numel() for table in sizes) == 2 * 8 * 20 * 20  # the backward pass computes each again


def test_large_kappa_pos_stays_finite_in_single_precision():
    z = directions(2, 8, 4, dtype=torch.float32).requires_grad_()
    loss = mcinfonce_of_samples(z, of_views(2, 4), kappa_pos=1e4)
    loss.backward()
    assert loss.isfinite()
    assert z.grad.isfinite().all()


# Who is compared with whom


@pytest.mark.parametrize(
    "contrast",
    [of_views(2, 5), of_views(3, 4), of_pairs(4), of_pairs(4, negatives="roll")],
    ids=["two", "three", "pairs", "roll"],
)
def test_no_anchor_meets_itself_or_its_positive_as_a_negative(contrast):
    n, weights = n_items(contrast), weighed(contrast)
    for row, (anchor, positive) in enumerate(zip(rows(contrast.anchors, n), rows(contrast.positives, n), strict=True)):
        assert anchor != positive
        assert weights[row, anchor] == weights[row, positive] == 0
        assert weights[row].sum() > 0


def test_views_of_one_image_are_positives_and_all_views_of_others_negatives():
    contrast = of_views(3, 4)
    anchors, positives = contrast.anchors.tolist(), contrast.positives.tolist()
    expected = {(a, b) for a in range(12) for b in range(12) if a != b and a % 4 == b % 4}
    assert set(zip(anchors, positives, strict=True)) == expected
    for anchor, weights in zip(anchors, contrast.weights, strict=True):
        assert weights.tolist() == [float(item % 4 != anchor % 4) for item in range(12)]


def test_a_stated_number_of_negatives_is_kept_of_those_there_are():
    contrast = of_views(2, 6, negatives=3, generator=seeded())
    assert (contrast.weights.sum(1) == 3).all()
    assert (contrast.weights * (1 - of_views(2, 6).weights)).sum() == 0


def test_an_anchor_of_a_class_with_few_others_keeps_the_negatives_that_it_has():
    labels = torch.tensor([0] * 9 + [1]).repeat(2)  # two views of ten images; one is of another class
    contrast = of_labels(labels, negatives=3, generator=seeded())
    kept = dict(zip(contrast.anchors.tolist(), contrast.weights, strict=True))
    assert all(kept[row].nonzero().flatten().tolist() == [9, 19] for row in range(9))
    assert kept[9].sum() == kept[19].sum() == 3
    assert not {9, 19} & set(kept[9].nonzero().flatten().tolist())


def test_every_negative_is_kept_equally_often():
    generator, counts, rounds = seeded(), torch.zeros(10), 2000
    for _ in range(rounds):
        counts += of_views(2, 6, negatives=3, generator=generator).weights[0][of_views(2, 6).weights[0] > 0]
    error = (rounds * 0.3 * 0.7) ** 0.5
    assert ((counts - 0.3 * rounds).abs() < 4 * error).all()


def test_labels_give_positives_of_the_class_and_negatives_of_all_others():
    labels = torch.tensor([0, 1, 0, 2, 1, 1])
    contrast = of_labels(labels, generator=seeded())
    assert contrast.anchors.tolist() == [0, 1, 2, 4, 5]  # item 3 is alone
    assert (labels[contrast.anchors] == labels[contrast.positives]).all()
    assert (contrast.anchors != contrast.positives).all()
    assert torch.equal(contrast.weights.bool(), labels[contrast.anchors][:, None] != labels)


def test_labels_that_make_no_pair_give_none():
    assert of_labels(torch.zeros(4, dtype=torch.int64)) is None
    assert of_labels(torch.arange(4)) is None
    assert of_votes(torch.tensor([[1.0, 0], [1, 0], [1, 0]])) is None


def test_votes_choose_a_positive_with_the_chance_that_two_votes_agree():
    votes = torch.tensor([[3.0, 1.0], [8.0, 0.0], [0.0, 5.0], [1.0, 1.0]])
    counts, generator = torch.zeros(4), seeded()
    for _ in range(4000):
        contrast = of_votes(votes, generator=generator)
        at = contrast.anchors.tolist().index(0)
        counts[contrast.positives[at]] += 1
    # class 0 with probability 3/4: item 1 weighs 1, item 3 a half; class 1 with 1/4: item 2 weighs 1, item 3 a half
    expected = torch.tensor([0, 3 / 4 * 2 / 3, 1 / 4 * 2 / 3, 1 / 3])
    assert torch.allclose(counts / 4000, expected, atol=4 * 0.5 / 4000**0.5)
    assert counts[0] == 0


def test_votes_weigh_a_negative_by_its_chance_of_another_class():
    votes = torch.tensor([[4.0, 0.0], [4.0, 0.0], [1.0, 3.0], [0.0, 4.0]])
    contrast = of_votes(votes, generator=seeded())
    at = contrast.anchors.tolist().index(0)
    expected = torch.tensor([0.0, 0.0, 0.75, 1.0])
    expected[contrast.positives[at]] = 0
    assert torch.allclose(contrast.weights[at], expected)


def test_a_bank_is_the_only_place_that_negatives_come_from():
    z, kappa, contrast = directions(3, 7, 4), torch.linspace(1, 9, 7).double(), of_pairs(2, 3, negatives="bank")
    complete = Contrast(contrast.anchors, contrast.positives, torch.tensor([[0.0] * 4 + [1.0] * 3] * 2))
    for loss in (
        lambda pairs: mcinfonce_of_samples(z, pairs, kappa_pos=3.0),
        lambda pairs: elk(z[0], kappa, pairs, kappa_pos=1.0),
        lambda pairs: hib(z[0], kappa, pairs, a=1.0, b=0.0, samples=3, generator=seeded()),
    ):
        assert loss(contrast).item() == pytest.approx(loss(complete).item(), rel=1e-12)


def test_rolled_negatives_are_the_positives_of_the_anchor_before():
    assert weighed(of_pairs(3, negatives="roll")).argmax(1).tolist() == [5, 3, 4]


def test_a_weight_counts_as_so_many_copies_of_a_negative():
    z = directions(3, 5, 4)
    twice = Contrast(torch.tensor([0]), torch.tensor([1]), torch.tensor([[0.0, 0, 2, 1, 0]]))
    copied = Contrast(torch.tensor([0]), torch.tensor([1]), torch.tensor([[0.0, 0, 1, 1, 0, 1]]))
    with_copy = torch.cat([z, z[:, 2:3]], dim=1)
    single = mcinfonce_of_samples(z, twice, kappa_pos=3.0)
    other = mcinfonce_of_samples(with_copy, copied, kappa_pos=3.0)
    assert single.item() == pytest.approx(other.item(), rel=1e-12)


# The methods


def built(name, n_classes=3, width=12, **settings):
    kind = METHODS[name]
    of_method = {key: value for key, value in settings.items() if key in kind.Settings.about()}
    made = kind.Settings(latent_dim=8, hidden_dim=16, **of_method)
    torch.manual_seed(0)
    spec = kind.head(made, 32)
    return kind(made, Task(width, n_classes)), None if spec is None else spec.build(width)


@pytest.mark.parametrize("name", METHOD_NAMES)
@pytest.mark.parametrize("kappa", ["head", "norm"])
@pytest.mark.parametrize("positives", ["views", "labels"])
def test_every_method_takes_a_step_with_kappa_from_a_head_or_a_norm_and_positives_of_either_kind(
    name, kappa, positives
):
    method, head = built(name, kappa=kappa, positives=positives)
    features = torch.randn(2, 9, 12, generator=seeded(), requires_grad=True)
    step = method(features, head, torch.arange(9) % 3)
    step.loss.backward()
    assert step.loss.isfinite()
    assert features.grad.isfinite().all()
    assert features.grad.abs().sum() > 0
    assert ("kappa" in step.measures) == (name != "infonce")
    assert method.reads_labels(method.settings) == (positives == "labels")


@pytest.mark.parametrize("kappa", ["head", "norm"])
def test_kappa_starts_near_the_stated_value(kappa):
    method, head = built("mcinfonce", kappa=kappa, kappa_init=40.0, width=64)
    features = torch.randn(2, 200, 64, generator=seeded())
    assert method(features, head, None).measures["kappa"].item() == pytest.approx(40, rel=0.25)


@pytest.mark.parametrize("name", ["mcinfonce", "hib", "elk"])
def test_mu_learns_first_and_then_kappa_alone(name):
    method, head = built(name, phases=0.5)

    def moved(share):
        method.before_step(Batch(torch.arange(6), share=share))
        for module in (method, head):
            module.zero_grad(set_to_none=True)
        method(torch.randn(2, 6, 12, generator=seeded()), head, None).loss.backward()
        return [any(p.grad is not None for p in module.parameters()) for module in (method.projector, head)]

    assert moved(0.49) == [True, False]
    assert moved(0.5) == [False, True]


def test_without_phases_both_learn():
    method, head = built("mcinfonce")
    method(torch.randn(2, 6, 12, generator=seeded()), head, None).loss.backward()
    assert all(p.grad is not None for module in (method, head) for p in module.parameters())


def test_votes_take_the_place_of_labels():
    method, head = built("mcinfonce", positives="labels")
    votes = torch.rand(6, 3, generator=seeded())
    assert method(torch.randn(1, 6, 12, generator=seeded()), head, votes).loss.isfinite()


def test_a_batch_that_happens_to_hold_one_class_teaches_nothing():
    method, head = built("mcinfonce", positives="labels")
    features = torch.randn(2, 4, 12, generator=seeded(), requires_grad=True)
    step = method(features, head, torch.ones(4, dtype=torch.int64))
    step.loss.backward()
    assert step.loss.item() == 0
    assert features.grad.abs().max() == 0


def test_what_the_user_can_get_wrong_is_said_in_one_line():
    with pytest.raises(InputError, match=r"at least 2 classes, got 1; use --set positives=views"):
        built("mcinfonce", n_classes=1, positives="labels")
    method, head = built("mcinfonce", positives="labels")
    with pytest.raises(InputError, match="need labels, got data without"):
        method(torch.randn(2, 4, 12), head, None)
    method, head = built("mcinfonce", negatives=7)
    with pytest.raises(InputError, match="at most 6 negatives with 4 images in a batch, got 7"):
        method(torch.randn(2, 4, 12), head, None)
    method, head = built("mcinfonce")
    with pytest.raises(InputError, match="at least 2 views of 2 images in a batch, got 2 of 1"):
        method(torch.randn(2, 1, 12), head, None)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("kappa", "length", "head, norm"),
        ("positives", "votes", "views, labels"),
        ("denominator", "eq5", "eq7, authors, negatives"),
        ("kappa_pos", 0.0, "above 0 and at most 1e\\+06, got 0"),
        ("samples", 0, "at least 1 and at most 4096, got 0"),
        ("negatives", -1, "at least 0, got -1"),
        ("phases", 1.0, "at least 0 and below 1, got 1"),
    ],
)
def test_a_recipe_out_of_range_is_refused(field, value, words):
    with pytest.raises(InputError, match=words):
        METHODS["mcinfonce"].Settings(**{field: value})


def test_a_callers_mistake_is_a_value_error():
    with pytest.raises(ValueError, match="weights must have shape"):
        Contrast(slice(0, 2), slice(2, 4), torch.ones(4))
    with pytest.raises(ValueError, match="one item for each of 3 rows, got 2"):
        Contrast(slice(0, 2), slice(2, 4), torch.ones(3, 4))
    with pytest.raises(ValueError, match="with a weight for 8 of B items"):
        mcinfonce_of_samples(directions(3, 6, 4), of_views(2, 4), kappa_pos=1.0)
    with pytest.raises(ValueError, match="denominator must be"):
        infonce(Z, of_views(2, 4), kappa_pos=1.0, denominator="all")
    with pytest.raises(ValueError, match="between 1 and 6"):
        of_views(2, 4, negatives=9)
    with pytest.raises(ValueError, match="block must be"):
        mcinfonce_of_samples(directions(3, 8, 4), of_views(2, 4), kappa_pos=1.0, block=0)


@pytest.mark.parametrize(
    "name", ["mcinfonce", *(pytest.param(each, marks=pytest.mark.slow) for each in ("elk", "hib"))]
)
def test_kappa_learns_which_images_are_noisy(name):
    method, head = built(name, width=13)
    generator = seeded()
    clean, noise = torch.randn(500, 12, generator=generator), 0.1 + 1.5 * torch.rand(500, generator=generator)

    def view(rows):
        blurred = clean[rows] + noise[rows, None] * torch.randn(len(rows), 12, generator=generator)
        return torch.cat([blurred, noise[rows, None]], dim=1)  # how noisy it is can be seen, what that means cannot

    optimizer = torch.optim.AdamW([*method.parameters(), *head.parameters()], lr=2e-3)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for _ in range(250):
            rows = torch.randint(500, (48,), generator=generator)
            optimizer.zero_grad()
            method(torch.stack([view(rows), view(rows)]), head, None).loss.backward()
            optimizer.step()
    with torch.no_grad():
        kappa = head.eval()(view(torch.arange(500)))
    assert spearman(kappa.numpy(), -noise.numpy()) > 0.5
