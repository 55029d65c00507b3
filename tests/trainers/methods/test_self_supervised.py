"""SimCLR, VICReg and DINO: their losses by oracles and slow restatements, and their steps."""

import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.head_modules import PrototypeHead
from trainers.build import build, make_optimizer
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.contrast import of_views
from trainers.methods.contrastive import SimCLR, SimCLRSettings
from trainers.methods.dino import DINO, DINOSettings, dino_loss
from trainers.methods.method import Batch, Task
from trainers.methods.settings import Augmentation
from trainers.methods.vicreg import VICReg, VICRegSettings, vicreg_terms
from trainers.monitor import warn

CPU = torch.device("cpu")
I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X, Y, W = torch.sin(I).reshape(4, 6), torch.cos(0.5 * I).reshape(4, 6), torch.sin(0.3 * I).reshape(4, 6)
UNIT_X, UNIT_Y = F.normalize(X, dim=1), F.normalize(Y, dim=1)
SETTINGS = {
    "simclr": SimCLRSettings(latent_dim=8, hidden_dim=8),
    "vicreg": VICRegSettings(latent_dim=8, hidden_dim=8),
    "dino": DINOSettings(prototypes=16, hidden_dim=8, bottleneck=4, small_size=16, n_small=1),
    "dino with a slow teacher": DINOSettings(prototypes=16, hidden_dim=8, bottleneck=4, n_small=0, momentum=0.9),
}


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return TrainingSet(torch.randint(0, 255, (32, 3, 32, 32), generator=generator, dtype=torch.uint8), None, [], {})


def recipe(name, **changes):
    method = name.split()[0]
    views = Augmentation(scale=(0.5, 1.0))
    base = TrainConfig(method, "test_resnet", 32, 2, 16, 0.01, settings=SETTINGS[name], augmentation=views)
    return replace(base, **changes)


def weights(model):
    return torch.cat([torch.zeros(0), *(value.float().flatten() for value in model.state_dict().values())])


# SimCLR


def nt_xent(x, y, temperature):
    """Equation 1 of the paper, view by view."""
    views, total = [*x, *y], 0.0
    for i, view in enumerate(views):
        other = views[(i + len(x)) % len(views)]
        below = sum(torch.exp(view @ k / temperature) for j, k in enumerate(views) if j != i)
        total -= torch.log(torch.exp(view @ other / temperature) / below)
    return total / len(views)


def simclr_loss(x, y, temperature):
    method = SimCLR(replace(SETTINGS["simclr"], temperature=temperature), Task(5))
    return method.loss(torch.cat([x, y]), None, of_views(2, len(x)))


@pytest.mark.parametrize(("temperature", "known"), [(0.5, 3.034071926579263), (0.1, 10.244280930798604)])
def test_simclr_is_nt_xent(temperature, known):
    ours = simclr_loss(UNIT_X, UNIT_Y, temperature).item()
    assert ours == pytest.approx(known, abs=1e-9)
    assert ours == pytest.approx(nt_xent(UNIT_X, UNIT_Y, temperature).item(), abs=1e-9)


def test_simclr_has_the_gradient_of_its_loss():
    assert torch.autograd.gradcheck(lambda x: simclr_loss(x, UNIT_Y, 0.5), UNIT_X.clone().requires_grad_())


def test_simclr_needs_another_image_and_another_view():
    method = SimCLR(SETTINGS["simclr"], Task(5))
    for shape in ((2, 1, 5), (1, 4, 5)):
        with pytest.raises(InputError, match="2 views of 2"):
            method.eval()(torch.zeros(shape), None, None)


# VICReg


def test_vicreg_matches_its_oracle():
    terms = vicreg_terms(X, Y)
    assert [term.item() for term in terms] == pytest.approx([0.9928339700, 0.5392119814, 1.7209055668], abs=1e-9)
    total = 25 * terms.invariance + 25 * terms.variance + terms.covariance
    assert total.item() == pytest.approx(40.02205435084383, abs=1e-9)


def test_vicreg_is_its_definition_number_by_number():
    n, dim = X.shape
    apart = sum((X[i, d] - Y[i, d]) ** 2 for i in range(n) for d in range(dim)) / (n * dim)
    hinge = off = 0.0
    for view in (X, Y):
        mean = [sum(view[i, d] for i in range(n)) / n for d in range(dim)]
        for d in range(dim):
            for e in range(dim):
                together = sum((view[i, d] - mean[d]) * (view[i, e] - mean[e]) for i in range(n)) / (n - 1)
                if d == e:
                    hinge += max(0.0, 1 - math.sqrt(together + 1e-4)) / dim / 2
                else:
                    off += together**2 / dim
    ours = vicreg_terms(X, Y)
    assert [term.item() for term in ours] == pytest.approx([float(apart), hinge, float(off)], abs=1e-12)


@pytest.mark.parametrize("term", range(3))
def test_vicreg_has_the_gradient_of_each_term(term):
    assert torch.autograd.gradcheck(
        lambda x, y: vicreg_terms(x, y)[term], (X.clone().requires_grad_(), Y.requires_grad_())
    )


def test_a_step_of_vicreg_weighs_its_terms_and_reports_a_collapse():
    torch.manual_seed(0)
    method = VICReg(replace(SETTINGS["vicreg"], invariance=2.0, variance=3.0, covariance=0.5), Task(5)).eval()
    step = method(torch.randn(2, 8, 5), None, None)
    parts = [step.measures[name].item() for name in ("invariance", "variance", "covariance")]
    assert step.loss.item() == pytest.approx(2 * parts[0] + 3 * parts[1] + 0.5 * parts[2], rel=1e-5)
    point = method(torch.ones(2, 8, 5), None, None)
    assert point.measures["variance"].item() == pytest.approx(1 - 0.01, abs=1e-5)  # sqrt(1e-4)
    assert "collapse" in warn({name: value.item() for name, value in point.measures.items()})


@pytest.mark.parametrize(("x", "y"), [(X, Y[:1]), (X[:1], Y[:1]), (X[0], Y[0])])
def test_vicreg_refuses_shapes_that_would_broadcast_or_have_no_spread(x, y):
    with pytest.raises(ValueError, match="N at least 2"):
        vicreg_terms(x, y)


def test_vicreg_without_what_it_learns_by_is_refused():
    with pytest.raises(InputError, match="got 25 and 0"):
        VICRegSettings(variance=0)


# DINO


def slow_dino(student, teacher, temperature):
    """Every pair of a teacher's view and another one, as it is printed."""
    terms = []
    for i, view in enumerate(teacher):
        for j, other in enumerate(student):
            if i != j:
                q, p = view.softmax(1), (other / temperature).softmax(1)
                terms.append(-(q * p.log()).sum(1).mean())
    return torch.stack(terms).mean()


def test_dino_matches_its_oracle_and_so_does_its_centre():
    student, teacher = torch.stack([X, Y, W]), torch.stack([X, Y])
    ours = dino_loss(student, teacher / 0.04, temperature=0.1)
    assert ours.item() == pytest.approx(7.554373451817525, abs=1e-9)
    head = PrototypeHead(5, 6, 4, 4, 0.04).double()
    head.centre.lerp_(teacher.mean((0, 1)), 1 - 0.9)
    known = [0.0248630397, 0.0450462211, 0.0221402721, -0.0233892152, -0.0497214170, -0.0321206567]
    assert head.centre.tolist() == pytest.approx(known, abs=1e-9)
    centred = (teacher - head.centre) / 0.04
    assert dino_loss(student, centred, temperature=0.1).item() == pytest.approx(7.518990335323597, abs=1e-9)
    assert torch.allclose(head.sharpened(teacher).double(), centred, rtol=1e-5)


@pytest.mark.parametrize(("views", "of_teacher"), [(2, 2), (3, 2), (3, 1)])
def test_dino_is_the_mean_over_pairs_of_two_views_and_has_its_gradient(views, of_teacher):
    student, teacher = torch.stack([X, Y, W])[:views], torch.stack([Y, W])[:of_teacher] / 0.3
    ours = dino_loss(student, teacher, temperature=0.2)
    assert ours.item() == pytest.approx(slow_dino(student, teacher, 0.2).item(), abs=1e-12)
    assert torch.autograd.gradcheck(lambda s: dino_loss(s, teacher, temperature=0.2), student.clone().requires_grad_())


@pytest.mark.parametrize(
    ("student", "teacher"), [((1, 4, 6), (1, 4, 6)), ((2, 4, 6), (3, 4, 6)), ((2, 4, 6), (2, 4, 1))]
)
def test_dino_refuses_one_view_more_teachers_than_views_and_other_prototypes(student, teacher):
    with pytest.raises(ValueError, match="T <= V"):
        dino_loss(torch.zeros(student), torch.zeros(teacher), temperature=0.1)


def test_a_step_of_dino_is_the_loss_of_its_parts_and_moves_the_centre_after_it():
    torch.manual_seed(0)
    settings = SETTINGS["dino"]
    head, method = DINO.head(settings, 32).build(5), DINO(settings, Task(5))
    head.centre.copy_(torch.randn(16) / 10)
    features, before = torch.randn(3, 8, 5), head.centre.clone()
    step = method(features, head, None)
    cosines = torch.stack([head.cosines(view) for view in features])
    slow = slow_dino(cosines, (cosines[:2] - before) / 0.04, 0.1)
    assert step.loss.item() == pytest.approx(slow.item(), rel=1e-4)
    mean = cosines[:2].flatten(0, 1).mean(0)
    assert torch.allclose(head.centre, 0.9 * before + 0.1 * mean, atol=1e-6)
    step.loss.backward()
    assert head.cosines.prototypes.grad.abs().max() > 0
    moved = head.centre.clone()
    method.eval()(features, head, None)
    assert torch.equal(head.centre, moved)  # a look changes nothing


def test_a_collapse_of_dino_is_reported_in_both_directions():
    settings = SETTINGS["dino"]
    head, method = DINO.head(settings, 32).build(5), DINO(settings, Task(5))
    torch.nn.init.zeros_(head.cosines.layers[-1].weight)  # no direction: every cosine is 0
    alike = method(torch.randn(2, 8, 5), head, None).measures
    assert "everywhere alike" in warn({name: value.item() for name, value in alike.items()})
    head.centre.zero_()[3] = -1
    point = method(torch.randn(2, 8, 5), head, None).measures
    assert "on one prototype" in warn({name: value.item() for name, value in point.items()})
    healthy = DINO.head(settings, 32).build(5)
    said = method(torch.randn(2, 64, 5), healthy, None).measures
    assert warn({name: value.item() for name, value in said.items()}) is None


def test_a_slow_teacher_is_a_copy_that_reads_pixels_follows_and_is_not_learned(images):
    config = recipe("dino with a slow teacher")
    model, method = build(config, 0)
    learns = {id(p) for group in make_optimizer(config, model, method).param_groups for p in group["params"]}
    assert not learns & {id(p) for p in method.teacher.parameters()}
    assert {id(p) for p in model.heads["dino"].parameters()} < learns
    assert not DINO.reads_pixels(SETTINGS["dino"])
    assert DINO.reads_pixels(config.settings)
    pixels = model.normalize(images.pixels[:32].float()).view(2, 16, 3, 32, 32)
    rates = []
    for share in (0.0, 0.5, 1.0):
        method.before_step(Batch(torch.arange(16), share=share, pixels=(pixels,)))
        rates.append(method.teacher.momentum)
    assert rates == pytest.approx([0.9, 0.95, 1.0])
    with torch.no_grad():
        expected = torch.stack([model.heads["dino"].cosines(model.backbone(view)) for view in pixels])
    method.before_step(Batch(torch.arange(16), pixels=(pixels,)))
    assert torch.allclose(method.of_teacher, expected, atol=1e-5)  # at first the copy is the original
    ours, live = method.teacher.copies[1].prototypes.clone(), model.heads["dino"].cosines.prototypes
    live.data.add_(1)
    method.after_step(0)
    assert torch.allclose(method.teacher.copies[1].prototypes, ours + 0.1, atol=1e-5)


def test_a_trained_dino_scores_by_the_entropy_of_its_teacher(images, tmp_path):
    model, _ = train(recipe("dino"), images, state=tmp_path / "state", device=CPU)
    card = {"method": "dino", "training": {}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "dino.safetensors", model, card)
    loaded, _ = load_model(tmp_path / "dino.safetensors")
    with torch.inference_mode():
        said = loaded.eval()(images.pixels)
        features = model.features(images.pixels)
        head = model.heads["dino"]
        chances = ((head.cosines(features) - head.centre).double() / 0.04).softmax(1)
    slow = -(chances * chances.log()).sum(1)
    assert list(said.columns) == ["unc_dino"]
    assert said.columns["unc_dino"].tolist() == pytest.approx(slow.tolist(), rel=1e-4)
    assert head.centre.abs().max() > 0
    assert (slow < math.log(16)).all()


def test_the_state_of_another_method_and_a_rate_that_diverges_are_reported(images, tmp_path):
    train(recipe("dino"), images, state=tmp_path / "state", device=CPU)
    with pytest.raises(InputError, match="an unfinished run"):
        train(recipe("vicreg"), images, state=tmp_path / "state", device=CPU)
    broken = replace(images, pixels=images.pixels.clone())
    with pytest.raises(InputError, match="lower --lr"):
        train(recipe("vicreg", lr=1e30, epochs=5), broken, state=tmp_path / "other", device=CPU)
