"""Files of the published layout, made here, become checkpoints that say what the original modules say."""

import argparse
import io
import os
import pickle
import zipfile

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from scoring.checkpoint import load_model, save_checkpoint
from scoring.convert import convert
from scoring.errors import InputError
from scoring.images import Preprocessing

VIT = "vit_tiny_patch16_224.augreg_in21k"


class TheirModule(nn.Module):
    """The uncertainty module as its authors nest it: unc_module.unc_module is a sequence."""

    def __init__(self, width, hidden=512, depth=2):
        super().__init__()
        layers = []
        for i in range(depth):
            layers += [nn.Linear(width if i == 0 else hidden, hidden), nn.LeakyReLU()]
        self.unc_module = nn.Sequential(*layers, nn.Linear(hidden, 1), nn.Softplus())


class Theirs(nn.Module):
    """A timm model with its classifier, and the module that reads its features."""

    def __init__(self, depth=2):
        super().__init__()
        self.model = timm.create_model(VIT, num_classes=7)
        self.unc_module = TheirModule(192, depth=depth)


@pytest.fixture(scope="module")
def published_model():
    torch.manual_seed(0)
    return Theirs().eval()


def published(model, **changes):
    return {
        "epoch": 459,
        "arch": VIT,
        "state_dict": model.state_dict(),
        "optimizer": {"state": {}, "param_groups": []},
        "version": 2,
        "args": argparse.Namespace(lr=0.0028, mean=None),
        "metric": 0.61,
        **changes,
    }


@pytest.fixture(scope="module")
def file(published_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("theirs") / "model_best.pth.tar"
    torch.save(published(published_model), path)
    return path


@torch.inference_mode()
def test_a_published_checkpoint_gives_the_same_outputs_after_conversion(published_model, file, tmp_path):
    model, facts = convert(file)
    assert facts["architecture"] == VIT
    assert (facts["epoch"], facts["metric"]) == (459, 0.61)
    half = (0.5, 0.5, 0.5)
    assert model.spec.preprocessing == Preprocessing(224, 248, "bicubic", half, half)
    save_checkpoint(
        tmp_path / "ours.safetensors",
        model,
        {"method": "losspred", "training": facts, "metrics": {}, "data_licence": "?"},
    )
    ours, _ = load_model(tmp_path / "ours.safetensors")
    pixels = torch.randint(0, 256, (3, 3, 224, 224), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    features = published_model.model.forward_head(
        published_model.model.forward_features((pixels / 255 - 0.5) / 0.5), pre_logits=True
    )
    expected = published_model.unc_module.unc_module(features).squeeze(1) + 1e-6
    said = ours(pixels)
    assert torch.allclose(said.columns["unc_losspred"], expected, rtol=1e-4)
    assert expected.std() > 1e-3 * expected.mean()
    assert torch.allclose(said.embedding, nn.functional.normalize(features, dim=1), atol=1e-5)


def same(first, other):
    return all(torch.equal(value, other.state_dict()[name]) for name, value in first.state_dict().items())


def test_averaged_weights_go_first_and_the_prefix_of_parallel_training_is_dropped(published_model, file, tmp_path):
    torch.manual_seed(9)
    averaged = {f"module.{name}": value for name, value in Theirs().state_dict().items()}
    torch.save(published(published_model, state_dict_ema=averaged), tmp_path / "ema.pth.tar")
    model, _ = convert(tmp_path / "ema.pth.tar")
    assert torch.equal(model.backbone.cls_token, averaged["module.model.cls_token"])
    assert not same(model, convert(file)[0])


def test_a_deeper_module_is_read_by_its_layers(tmp_path):
    torch.save(published(Theirs(depth=3)), tmp_path / "deep.pth.tar")
    head = convert(tmp_path / "deep.pth.tar")[0].spec.heads["losspred"]
    assert (head.depth, head.hidden) == (3, 512)


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@torch.inference_mode()
def test_weights_of_a_timm_model_become_a_checkpoint_without_heads(tmp_path, suffix):
    torch.manual_seed(1)
    plain = timm.create_model("resnet10t.c3_in1k").eval()
    path = tmp_path / f"weights{suffix}"
    save_file(plain.state_dict(), path) if suffix == ".safetensors" else torch.save(plain.state_dict(), path)
    model, facts = convert(path, "resnet10t.c3_in1k")
    assert not model.spec.heads
    assert facts["architecture"] == "resnet10t.c3_in1k"
    assert model.spec.preprocessing == Preprocessing(176, 201, "bicubic")
    pixels = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)
    reference = plain.forward_head(plain.forward_features(model.normalize(pixels)), pre_logits=True)
    assert torch.allclose(model.features(pixels), reference, atol=1e-5)


class Bomb:
    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_code_in_a_file_is_named_and_never_run(published_model, tmp_path):
    mark = tmp_path / "ran"
    for name, bad in {"args": Bomb(mark), "optimizer": io.StringIO, "metric": published_model}.items():
        torch.save(published(published_model, **{name: bad}), tmp_path / "bad.pth.tar")
        with pytest.raises(InputError, match=r"call [\w.]+\).*tensors"):
            convert(tmp_path / "bad.pth.tar")
    (tmp_path / "raw.pth").write_bytes(pickle.dumps(Bomb(mark)))
    torch.save(published_model.state_dict(), tmp_path / "legacy.pth", _use_new_zipfile_serialization=False)
    for name in ("raw.pth", "legacy.pth"):
        with pytest.raises(InputError, match=r"PyTorch 1\.6 .*save it again"):
            convert(tmp_path / name)
    assert not mark.exists()


def test_the_allowance_for_a_namespace_ends_with_the_reading(file):
    convert(file)
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


def test_a_file_that_would_unfold_to_more_than_it_is_is_left_alone(published_model, file, tmp_path):
    packed = tmp_path / "packed.pth"
    with zipfile.ZipFile(file) as source, zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target:
        for entry in source.infolist():
            target.writestr(entry.filename, source.read(entry))
    with pytest.raises(InputError, match="larger than the file"):
        convert(packed)
    weights = {name: torch.zeros(1).expand(value.shape) for name, value in published_model.state_dict().items()}
    torch.save(published(published_model, state_dict=weights), tmp_path / "views.pth.tar")
    assert (tmp_path / "views.pth.tar").stat().st_size < 500_000
    with pytest.raises(InputError, match=r"[0-9,]+ .*it was not read"):
        convert(tmp_path / "views.pth.tar")


def change(state, name, value):
    return {**state, name: value} if value is not None else {k: v for k, v in state.items() if k != name}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("model.cls_token", None, "first 'cls_token'"),
        ("model.extra.weight", torch.zeros(3), "'model.extra.weight' is not its"),
        ("model.cls_token", torch.zeros(1, 1, 384), r"expected \(1, 1, 192\)"),
        ("unc_module.unc_module.3.weight", torch.zeros(1, 512), "uncertainty module"),
        ("unc_module.unc_module.100000000000.weight", torch.zeros(1, 512), "'unc_module.+00.weight' is not its"),
        ("unc_module.unc_module.7.bias", torch.zeros(1), "'unc_module.unc_module.7.bias' is not its"),
        ("unc_module.unc_module.00.bias", torch.zeros(512), "'unc_module.unc_module.00.bias' is not its"),
        ("unc_module.unc_module.2.bias", None, "first 'heads.losspred.layers.2.bias'"),
        ("model.cls_token", torch.full((1, 1, 192), float("nan")), "first in .*cls_token"),
    ],
)
def test_weights_that_are_not_the_models_are_refused_by_name(published_model, tmp_path, name, value, words):
    torch.save(
        published(published_model, state_dict=change(published_model.state_dict(), name, value)), tmp_path / "w.pth.tar"
    )
    with pytest.raises(InputError, match=words):
        convert(tmp_path / "w.pth.tar")


def test_numbers_and_names_without_bound_do_not_reach_the_card(published_model, tmp_path):
    torch.save(
        published(published_model, epoch=10**400, metric=float("nan"), arch="x" * 10_000), tmp_path / "w.pth.tar"
    )
    _, facts = convert(tmp_path / "w.pth.tar", VIT)
    assert set(facts) == {"architecture", "file", "sha256"}
    with pytest.raises(InputError, match="which model it holds"):
        convert(tmp_path / "w.pth.tar")


def test_what_is_no_file_of_weights_is_one_line(published_model, file, tmp_path, tiny_checkpoint):
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "short.pth.tar").write_bytes(file.read_bytes()[:-2000])
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save([1, 2], tmp_path / "list.pth")
    torch.save({"epoch": 3}, tmp_path / "empty.pth")
    torch.save(published_model.model.state_dict(), tmp_path / "nameless.pth")
    for path, words in {
        tmp_path / "none.pth": "got none at",
        tmp_path / "text.pth": "is not a file of PyTorch 1.6 or later",
        tmp_path / "short.pth.tar": "is not a file of PyTorch 1.6 or later",
        tmp_path / "text.safetensors": "is not a safetensors file",
        tmp_path / "list.pth": "holds a list; expected a dictionary",
        tmp_path / "empty.pth": "holds no weights",
        tmp_path / "nameless.pth": "pass its timm name as --backbone",
        tiny_checkpoint: "is a curate checkpoint already",
    }.items():
        with pytest.raises(InputError, match=words) as caught:
            convert(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="has no model 'vit_tinny'"):
        convert(tmp_path / "nameless.pth", "vit_tinny")
    with pytest.raises(InputError, match=r"weights of 'resnet10t\.c3_in1k'"):
        convert(tmp_path / "nameless.pth", "resnet10t")
    with pytest.raises(InputError, match="has no model"):
        convert(tmp_path / "nameless.pth", "hf-hub:somebody/something")
