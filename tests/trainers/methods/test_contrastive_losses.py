"""Contrastive losses, against slow restatements of their equations."""

import math

import pytest
import torch
import torch.nn.functional as F
from contrasted import Z, directions, n_items, rows, seeded, weighed
from controlled_generator import of_pairs

from scoring.distributions import vmf
from trainers.methods.contrast import Contrast, of_views
from trainers.methods.contrastive_losses import elk, hib, infonce, mcinfonce, mcinfonce_of_samples


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
