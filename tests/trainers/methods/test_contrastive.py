import pytest
import torch
from contrasted import Z, directions, seeded

from scoring.errors import InputError
from scoring.metrics.ranking import spearman
from trainers.methods.contrast import Contrast, of_views
from trainers.methods.contrastive_losses import infonce, mcinfonce_of_samples
from trainers.methods.method import Batch, Task
from trainers.methods.table import METHODS

METHOD_NAMES = ("mcinfonce", "infonce", "hib", "elk")


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


def test_a_batch_of_one_class_has_no_gradient():
    method, head = built("mcinfonce", positives="labels")
    features = torch.randn(2, 4, 12, generator=seeded(), requires_grad=True)
    step = method(features, head, torch.ones(4, dtype=torch.int64))
    step.loss.backward()
    assert step.loss.item() == 0
    assert features.grad.abs().max() == 0


def test_mistakes_of_the_user_are_one_line():
    with pytest.raises(InputError, match="--set positives=views"):
        built("mcinfonce", n_classes=1, positives="labels")
    method, head = built("mcinfonce", positives="labels")
    with pytest.raises(InputError, match="need labels"):
        method(torch.randn(2, 4, 12), head, None)
    method, head = built("mcinfonce", negatives=7)
    with pytest.raises(InputError, match=r"6 negatives .*got 7"):
        method(torch.randn(2, 4, 12), head, None)
    method, head = built("mcinfonce")
    with pytest.raises(InputError, match="got 2 of 1"):
        method(torch.randn(2, 1, 12), head, None)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("kappa", "length", "head, norm"),
        ("positives", "votes", "views, labels"),
        ("denominator", "eq5", "eq7, authors, negatives"),
        ("kappa_pos", 0.0, r"1e\+06, got 0"),
        ("samples", 0, "4096, got 0"),
        ("negatives", -1, "got -1"),
        ("phases", 1.0, "below 1, got 1"),
    ],
)
def test_a_recipe_out_of_range_is_refused(field, value, words):
    with pytest.raises(InputError, match=words):
        METHODS["mcinfonce"].Settings(**{field: value})


def test_a_callers_mistake_is_a_value_error():
    with pytest.raises(ValueError, match="weights must have shape"):
        Contrast(slice(0, 2), slice(2, 4), torch.ones(4))
    with pytest.raises(ValueError, match="3 rows, got 2"):
        Contrast(slice(0, 2), slice(2, 4), torch.ones(3, 4))
    with pytest.raises(ValueError, match="8 of B items"):
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
