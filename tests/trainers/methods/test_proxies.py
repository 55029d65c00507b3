import math

import pytest
import torch
import torch.nn.functional as F

from curate.training.recipe import recipe as recipe_of
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.metrics.neighbours import recall_at_1
from trainers.build import build, make_optimizer
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods import proxies
from trainers.methods.method import Task
from trainers.methods.proxies import DISTANCES, NivMF, NivMFSettings, proxy_anchor, proxy_nca
from trainers.methods.table import METHODS

NAMES = ("proxynca", "proxyanchor", "nivmf")
CPU = torch.device("cpu")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def recipe(name, **settings):
    shared = {"backbone": "test_resnet", "size": 32, "epochs": 2, "batch_size": 8, "lr": 1e-3}
    return recipe_of(name, shared, {"latent_dim": 8} | settings)


@pytest.fixture(scope="module")
def images():
    """Three kinds of image, a little red, green or blue, of any brightness, under noise."""
    pixels = torch.randint(0, 60, (24, 3, 32, 32), generator=seeded(), dtype=torch.uint8)
    pixels += torch.randint(0, 160, (24, 1, 1, 1), generator=seeded(1), dtype=torch.uint8)
    labels = torch.arange(24) % 3
    pixels[torch.arange(24), labels] += 30
    return TrainingSet(pixels, labels, ["r", "g", "b"], {})


# Losses


def test_proxy_nca_is_its_equation():
    far, labels = torch.rand(5, 4, generator=seeded()), torch.tensor([0, 3, 1, 1, 2])
    expected = 0.0
    for row, label in zip(far.tolist(), labels.tolist(), strict=True):
        weights = [math.exp(-d / 0.3) for d in row]
        expected -= math.log(weights[label] / sum(weights)) / 5
    assert proxy_nca(far, labels, 0.3).item() == pytest.approx(expected, rel=1e-5)


def test_proxy_anchor_is_its_equation():
    cosines, labels = 2 * torch.rand(6, 4, generator=seeded()) - 1, torch.tensor([0, 3, 1, 1, 0, 0])
    pull, push = [], []
    for c in range(4):
        of_class = [
            math.exp(-32 * (s - 0.1)) for s, y in zip(cosines[:, c].tolist(), labels.tolist(), strict=True) if y == c
        ]
        others = [
            math.exp(32 * (s + 0.1)) for s, y in zip(cosines[:, c].tolist(), labels.tolist(), strict=True) if y != c
        ]
        push.append(math.log(1 + sum(others)))
        if of_class:
            pull.append(math.log(1 + sum(of_class)))
    expected = sum(pull) / 3 + sum(push) / 4  # class 2 has no image here
    assert proxy_anchor(cosines, labels).item() == pytest.approx(expected, rel=1e-5)


def test_proxy_anchor_of_a_batch_of_one_class_has_gradients():
    cosines = torch.zeros(3, 2, requires_grad=True)
    proxy_anchor(cosines, torch.zeros(3, dtype=torch.long)).backward()
    assert cosines.grad.isfinite().all()
    assert (cosines.grad[:, 0] < 0).all()
    assert (cosines.grad[:, 1] > 0).all()


# Methods


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in NAMES[1:])])
def test_training_brings_images_of_a_class_together(name, images, tmp_path):
    config = recipe_of(
        name, {"backbone": "test_resnet", "size": 32, "epochs": 20, "batch_size": 8, "lr": 3e-3}, {"latent_dim": 8}
    )
    model, method = build(config, 3, n=24)
    with torch.no_grad():
        before = model(images.pixels).embedding
    trained, measures = train(config, images, state=tmp_path / "s", device=CPU, start=(model, method))
    with torch.no_grad():
        after = trained(images.pixels)
    assert after.embedding.shape == (24, 8)
    assert list(after.columns) == [f"kappa_{name}", f"unc_{name}"]

    def apart(embedding):
        same_class = images.labels[:, None] == images.labels
        cosine = embedding @ embedding.T
        return float(cosine[same_class].mean() - cosine[~same_class].mean())

    assert recall_at_1(after.embedding, images.labels).mean() > 0.9
    assert apart(after.embedding) > apart(before) + 0.2
    assert measures["accuracy"] > 0.8


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("kappa", ["norm", "head"])
def test_every_distance_trains_its_proxies_kappas_and_temperature(distance, kappa, images):
    config = recipe("nivmf", distance=distance, kappa=kappa, guidance=0.5)
    model, method = build(config, 3)
    optimizer = make_optimizer(config, model, method)
    before = {name: value.detach().clone() for name, value in method.named_parameters()}
    features = torch.randn(1, 24, model.width, generator=seeded())
    step = method(features, model.heads["nivmf"].train(), images.labels)
    step.loss.backward()
    optimizer.step()
    moved = {name for name, value in method.named_parameters() if not torch.equal(value, before[name])}
    ignores = {"log_kappas"} if distance == "cosine" else set()
    assert {"directions", "log_kappas", "log_temperature"} - moved == ignores
    assert step.measures["proxy_kappa"].item() == pytest.approx(50, rel=1e-4)


def test_each_group_has_its_own_rate_and_only_ordinary_weights_decay():
    config = recipe("nivmf", proxy_lr=7.0, kappa_lr=3.0, temperature_lr=0.0)
    model, method = build(config, 3)
    of = {id(p): group for group in make_optimizer(config, model, method).param_groups for p in group["params"]}
    shares = {name: of[id(p)]["share"] for name, p in method.named_parameters()}
    assert shares == {"directions": 7.0, "log_kappas": 3.0, "log_temperature": 0.0}
    assert {of[id(p)]["weight_decay"] for p in method.parameters()} == {0.0}
    assert of[id(model.heads["nivmf"].out.weight)]["share"] == 1.0
    assert of[id(model.heads["nivmf"].out.weight)]["weight_decay"] > 0


def test_blocks_of_images_give_the_same_distances_and_gradients(monkeypatch):
    method = NivMF(NivMFSettings(latent_dim=6), Task(4, n_classes=5))
    head = method.head(method.settings, 32).build(4)
    features, labels = torch.randn(1, 9, 4, generator=seeded()), torch.arange(9) % 5

    def gradients():
        torch.manual_seed(3)
        loss = method(features, head, labels).loss
        return loss, torch.autograd.grad(loss, (method.directions, method.log_kappas, head.out.weight))

    undivided, of_undivided = gradients()
    monkeypatch.setattr(proxies, "BLOCK", 5 * 5 * 2)
    parts, of_parts = gradients()
    assert undivided.item() == pytest.approx(parts.item(), rel=1e-12)
    assert all(torch.allclose(a, b, rtol=1e-5, atol=1e-7) for a, b in zip(of_undivided, of_parts, strict=True))


def test_guidance_adds_the_proxy_anchor_loss_of_the_same_proxies():
    features, labels = torch.randn(1, 6, 4, generator=seeded()), torch.arange(6) % 3
    torch.manual_seed(0)
    plain = NivMF(NivMFSettings(latent_dim=8, distance="el-vmf"), Task(4, n_classes=3))
    guided = NivMF(NivMFSettings(latent_dim=8, distance="el-vmf", guidance=0.3), Task(4, n_classes=3))
    guided.load_state_dict(plain.state_dict())
    head = plain.head(plain.settings, 32).build(4)
    cosine = F.normalize(head.project(features[0]), dim=1) @ F.normalize(plain.directions, dim=1).T
    more = guided(features, head, labels).loss - plain(features, head, labels).loss
    assert more.item() == pytest.approx(0.3 * proxy_anchor(cosine, labels).item(), rel=1e-4)


@pytest.mark.parametrize("kappa", ["norm", "head"])
def test_a_model_ships_with_its_head_alone_and_embeds_by_it_where_that_projects(kappa, images, tmp_path):
    config = recipe("nivmf", kappa=kappa)
    trained, _ = train(config, images, state=tmp_path / "s", device=CPU)
    card = {"method": "nivmf", "training": {}, "metrics": {}, "data_licence": "x"}
    save_checkpoint(tmp_path / "m.safetensors", trained, card)
    shipped, _ = load_model(tmp_path / "m.safetensors")
    with torch.no_grad():
        outputs, features = shipped(images.pixels[:2]), shipped.features(images.pixels[:2])
    expected = shipped.heads["nivmf"].project(features) if kappa == "norm" else features
    assert torch.allclose(outputs.embedding, F.normalize(expected, dim=1), atol=1e-5)
    assert list(outputs.columns) == ["kappa_nivmf", "unc_nivmf"]


def test_a_frozen_backbone_keeps_its_embedding_and_gains_a_kappa(images, tmp_path):
    config = recipe_of("nivmf", {"backbone": "test_resnet", "size": 32, "freeze": "trunk"}, {"latent_dim": 8})
    model, method = build(config, 3)
    assert model.spec.embedding == ""
    names = {id(p) for group in make_optimizer(config, model, method).param_groups for p in group["params"]}
    assert not names & {id(p) for p in model.backbone.parameters()}


@pytest.mark.parametrize("name", NAMES)
def test_proxies_need_labels(name, images, tmp_path):
    with pytest.raises(InputError, match=f"{name} needs labels"):
        train(recipe(name), TrainingSet(images.pixels, None, [], {}), state=tmp_path / "s", device=CPU)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"distance": "hellinger"}, "distance .* got 'hellinger'"),
        ({"density": "none"}, "density must be"),
        ({"samples": 0}, "samples must be"),
        ({"temperature": 0.0}, "temperature must be"),
        ({"proxy_kappa": float("inf")}, "proxy_kappa must be"),
        ({"proxy_lr": -1.0}, "proxy_lr must be"),
        ({"guidance": float("nan")}, "guidance must be"),
    ],
)
def test_settings_out_of_range_are_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        METHODS["nivmf"].Settings(**wrong)
