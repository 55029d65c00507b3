"""What a run starts from, what is frozen, and which heads stay."""

import json
from dataclasses import replace

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save

from scoring import backbones
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from trainers.build import build, make_optimizer
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.losspred import LossPredSettings
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS
from trainers.monitor import Monitor
from trainers.start import find_start

CPU = torch.device("cpu")
OWN = Preprocessing(size=32, resize=36, interpolation="bilinear", mean=(0.5, 0.4, 0.3), std=(0.3, 0.2, 0.1))


@pytest.fixture
def one():
    """A model that somebody trusts: a kappa head and its own preprocessing."""
    torch.manual_seed(3)
    spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, OWN)
    return ScoringModel(spec, backbone=backbones.create_backbone("test_resnet")).eval()


@pytest.fixture(scope="module")
def blobs():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 60, (48, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(48) % 2
    pixels[labels == 0, :, :, :16] += 150
    return TrainingSet(pixels, labels, ["left", "none"], {}, torch.rand(48, generator=generator).double())


def recipe(method="losspred", **changes):
    tiny = {"latent_dim": 16, "hidden_dim": 16, "n_small": 1, "small_size": 16, **changes.pop("own", {})}
    kind = METHODS[method].Settings
    base = TrainConfig(
        method,
        "test_resnet",
        size=32,
        epochs=2,
        batch_size=16,
        lr=0.01,
        augmentation=Augmentation(scale=(0.5, 1.0)),
        settings=kind(**{name: value for name, value in tiny.items() if name in kind.about()}),
    )
    return replace(base, **changes)


@torch.inference_mode()
def test_heads_accumulate_on_a_frozen_backbone_and_nothing_there_changes_by_a_bit(one, blobs, tmp_path):
    before = {name: value.clone() for name, value in one.state_dict().items()}
    said = one(blobs.pixels)
    for method, optimizer in (("losspred", "adamw"), ("simsiam", "sgd")):
        config = recipe(method, freeze="trunk", optimizer=optimizer)
        with torch.inference_mode(False), torch.enable_grad():
            two, _ = train(
                config, blobs, state=tmp_path / f"{method}.state", device=CPU, start=build(config, 2, init=one)
            )
        save_checkpoint(
            tmp_path / "two.safetensors", two, {"method": method, "training": {}, "metrics": {}, "data_licence": "CC0"}
        )
        again, card = load_model(tmp_path / "two.safetensors")
        assert set(card["heads"]) == {"visimsiam"} | ({"losspred"} if method == "losspred" else set())
        assert all(torch.equal(again.state_dict()[name], value) for name, value in before.items())
        now = again(blobs.pixels)
        assert torch.equal(now.embedding, said.embedding)
        assert torch.equal(now.columns["kappa_visimsiam"], said.columns["kappa_visimsiam"])
        assert again.spec.preprocessing == OWN
        assert set(now.columns) - set(said.columns) == ({"unc_losspred"} if method == "losspred" else set())


def test_the_method_of_an_old_head_gets_a_new_head(one):
    model, _ = build(recipe("visimsiam", freeze="trunk", own={"latent_dim": 8}), 0, init=one)
    assert model.spec.heads["visimsiam"] == KappaHeadSpec(512, 7.0)
    assert not list(model.heads)[1:]


def test_a_backbone_that_moves_leaves_old_heads_behind_and_keeps_the_normalisation(one):
    model, _ = build(recipe("losspred", size=24), 2, init=one)
    assert set(model.spec.heads) == {"losspred"}
    assert model.spec.preprocessing == replace(OWN, size=24, resize=24)
    same, _ = build(recipe("losspred"), 2, init=one)
    assert same.spec.preprocessing == OWN


def test_the_optimiser_holds_nothing_of_what_is_frozen(one):
    config = recipe("losspred", freeze="trunk")
    model, method = build(config, 2, init=one)
    groups = make_optimizer(config, model, method).param_groups
    held = {id(p) for group in groups for p in group["params"]}
    assert held == {id(p) for p in [*model.heads["losspred"].parameters(), *method.parameters()]}


def test_adamw_goes_on_after_a_stop_as_if_there_had_been_none(one, blobs, tmp_path):
    config = recipe("losspred", freeze="trunk", optimizer="adamw", betas=(0.8, 0.95))

    class Stop(Exception):
        pass

    def after_three(progress):
        raise Stop

    def run(path, n_epochs=2, **named):
        return train(
            replace(config, epochs=n_epochs), blobs, state=path, device=CPU, start=build(config, 2, init=one), **named
        )

    complete, measures = run(tmp_path / "whole")
    with pytest.raises(Stop):
        # every step is saved; the first report, a second later or at the end, stops the run before its last save
        run(tmp_path / "cut", monitor=Monitor(save_every=-1, report=after_three))
    resumed, again = run(tmp_path / "cut")
    for name, value in complete.heads["losspred"].state_dict().items():
        assert torch.equal(resumed.heads["losspred"].state_dict()[name], value)
    assert again == measures


def test_a_run_that_diverges_keeps_its_last_good_state_and_goes_on_from_it_with_a_lower_rate(one, blobs, tmp_path):
    state = tmp_path / "s"
    config = recipe("losspred", freeze="trunk", settings=LossPredSettings("l2", loss_column="mine"), epochs=4)

    def poisoned(method):
        real, seen = method.forward, []

        def forward(features, head, labels):
            seen.append(1)
            step = real(features, head, labels)
            return replace(step, loss=step.loss * float("nan")) if len(seen) == 5 else step

        method.forward = forward

    model, method = build(config, 2, init=one)
    poisoned(method)
    with pytest.raises(InputError, match=r"nan at step 4.*lr 0\.01; .*saved .*--lr"):
        train(config, blobs, state=state, device=CPU, start=(model, method), monitor=Monitor(save_every=-1))
    with pytest.raises(InputError, match=r"lr 0\.01; .*lower --lr"):
        train(config, blobs, state=state, device=CPU, start=build(config, 2, init=one))
    with pytest.raises(InputError, match="unfinished run with batch_size"):
        train(replace(config, lr=0.001, batch_size=8), blobs, state=state, device=CPU, start=build(config, 2, init=one))
    content = state.read_bytes()
    with safe_open(state, "pt") as file:
        header, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    identity = {name: value for name, value in json.loads(header["identity"]).items() if name != "lr"}
    state.write_bytes(save(tensors, {**header, "identity": json.dumps(identity)}))
    with pytest.raises(InputError, match="no lr in it"):
        train(replace(config, lr=0.001), blobs, state=state, device=CPU, start=build(config, 2, init=one))
    state.write_bytes(content)
    steps = []
    _, measures = train(
        replace(config, lr=0.001),
        blobs,
        state=state,
        device=CPU,
        start=build(config, 2, init=one),
        monitor=Monitor(report=lambda progress: steps.append(progress.step)),
    )
    assert steps[-1] == 12
    assert measures["loss"] < 10


def test_weights_that_are_not_numbers_are_never_saved(one, blobs, tmp_path):
    config = recipe("losspred", freeze="trunk", settings=LossPredSettings("l2", loss_column="mine"))
    model, method = build(config, 2, init=one)

    def poison(step):
        if step == 2:
            with torch.no_grad():
                model.heads["losspred"].layers[0].weight[0, 0] = float("inf")

    method.after_step = poison
    with pytest.raises(InputError, match=r"finite at step 2.* saved"):
        train(config, blobs, state=tmp_path / "s", device=CPU, start=(model, method), monitor=Monitor(save_every=-1))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"labels": None}, "the data have none"),
        ({"labels": torch.zeros(48, dtype=torch.int64), "classes": ["cat"]}, "all 48 .* 'cat'"),
        (
            {"pixels": torch.zeros(10, 3, 32, 32, dtype=torch.uint8), "labels": torch.arange(10) % 2, "losses": None},
            "got 10; .* to 10",
        ),
    ],
)
def test_data_that_do_not_suffice_are_refused_before_the_first_step(blobs, tmp_path, data, words):
    with pytest.raises(InputError, match=words):
        train(recipe(), replace(blobs, **data), state=tmp_path / "s", device=CPU)
    assert not list(tmp_path.iterdir())


def test_a_loss_column_needs_no_labels_but_its_losses(blobs, tmp_path, one):
    config = recipe(freeze="trunk", settings=LossPredSettings(loss_column="mine"), epochs=1)
    unlabelled = replace(blobs, labels=None, classes=[])
    train(config, unlabelled, state=tmp_path / "s", device=CPU, start=build(config, 0, init=one))
    with pytest.raises(InputError, match="losses in 'mine'"):
        train(config, replace(unlabelled, losses=None), state=tmp_path / "t", device=CPU)


def test_published_weights_come_with_their_own_preprocessing(tmp_path, monkeypatch):
    """As timm would fetch them, from a file instead of the network."""
    torch.manual_seed(7)
    network = timm.create_model("vit_tiny_patch16_224.augreg_in21k")
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    real = timm.create_model

    def local(name, pretrained=False, **named):
        overlay = {"pretrained_cfg_overlay": {"file": str(tmp_path / "weights.pth")}} if pretrained else {}
        return real(name, pretrained=pretrained, **overlay, **named)

    monkeypatch.setattr(timm, "create_model", local)
    monkeypatch.setattr(backbones, "fetched_before", lambda name: {})
    start = find_start("timm:vit_tiny_patch16_224.augreg_in21k")
    half = (0.5, 0.5, 0.5)
    assert start.model.spec.preprocessing == Preprocessing(224, 248, "bicubic", half, half)
    assert start.about == {"timm": "vit_tiny_patch16_224.augreg_in21k"}
    assert start.model.spec.backbone_options == {
        "img_size": 224,
        "dynamic_img_size": True,
    }  # so small views can be read
    pixels = torch.randint(0, 256, (2, 3, 224, 224), dtype=torch.uint8)
    with torch.inference_mode():
        tokens = network.eval().forward_features((pixels / 255 - 0.5) / 0.5)
        ours = start.model.eval().features(pixels)
    assert torch.allclose(ours, network.forward_head(tokens, pre_logits=True), atol=1e-4)
    config = TrainConfig("losspred", start.backbone, size=start.size(None, frozen=True), freeze="trunk")
    model, _ = build(config, 2, init=start.model)
    assert model.spec.preprocessing.resize == 248


def test_published_weights_that_cannot_be_fetched_are_reported_in_one_line(monkeypatch):
    def offline(*args, **named):
        raise OSError("no route to host\nand a trace")

    monkeypatch.setattr(timm, "create_model", offline)
    monkeypatch.setattr(backbones, "fetched_before", lambda name: {})
    with pytest.raises(InputError, match=r"'resnet18' could .*network"):
        find_start("timm:resnet18")


def test_a_start_is_a_checkpoint_a_shipped_name_or_a_bare_architecture(tiny_checkpoint, monkeypatch):
    monkeypatch.setattr("trainers.start.shipped_models", lambda: {"mine": tiny_checkpoint})
    monkeypatch.setattr("scoring.cards.shipped_models", lambda: {"mine": tiny_checkpoint})
    named, by_path, bare = find_start("mine"), find_start(str(tiny_checkpoint)), find_start("resnet10t")
    assert named.about["digest"] == by_path.about["digest"]
    assert named.backbone == "test_resnet"
    assert named.model.spec.heads == by_path.model.spec.heads
    assert bare.model is None
    assert bare.backbone == "resnet10t"
    assert find_start(None).backbone == "resnet18"
    assert (named.size(None, frozen=False), named.size(64, frozen=False), bare.size(None, frozen=True)) == (32, 64, 224)
    with pytest.raises(InputError, match=r"32 pixels.*leave --size out"):
        named.size(64, frozen=True)
    with pytest.raises(InputError, match=r"got none at nowhere.safetensors"):
        find_start("nowhere.safetensors")


def test_halving_loses_nothing_of_what_was_frozen(one, tmp_path):
    card = {"method": "m", "training": {}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "h.safetensors", one, card, dtype=torch.float16, exact=["backbone."])
    again, _ = load_model(tmp_path / "h.safetensors")
    for name, value in one.state_dict().items():
        same = torch.equal(again.state_dict()[name], value)
        assert same or not name.startswith("backbone.")
    assert not torch.equal(again.heads["visimsiam"].hidden.weight, one.heads["visimsiam"].hidden.weight)
    save_checkpoint(tmp_path / "a.safetensors", again.half().float(), card, dtype=torch.float16)
    was_half, _ = load_model(tmp_path / "a.safetensors")
    size = (tmp_path / "a.safetensors").stat().st_size
    save_checkpoint(tmp_path / "b.safetensors", was_half, card, dtype=torch.float16, exact=["backbone.", "heads."])
    assert (tmp_path / "b.safetensors").stat().st_size == size  # it was float16 before: nothing to lose
