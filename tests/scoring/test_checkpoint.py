import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from scoring import cards, checkpoint, packaged
from scoring.cards import find_checkpoint, read_header
from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel

ROOT = Path(__file__).parents[2]
CARD = {"method": "visimsiam", "training": {"data": "none"}, "metrics": {"loss": 1.0}, "data_licence": "CC0"}


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, Preprocessing(size=32, resize=40))
    return ScoringModel(spec).eval()


@pytest.fixture
def saved(model, tmp_path):
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, model, CARD)
    return path


def tampered(path, target, **changes):
    """Write ``path`` again with another header."""
    header = {**read_header(path), **changes}
    save_file(load_file(path), target, {"curate": json.dumps(header)})
    return target


@torch.inference_mode()
def test_a_checkpoint_gives_back_the_same_model(model, saved):
    loaded, card = load_model(saved)
    pixels = torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(loaded(pixels).embedding, model(pixels).embedding)
    assert torch.equal(loaded(pixels).columns["kappa_visimsiam"], model(pixels).columns["kappa_visimsiam"])
    assert loaded.spec == model.spec
    assert card["data_licence"] == "CC0"


@torch.inference_mode()
def test_half_precision_halves_the_file_and_barely_moves_the_scores(model, saved, tmp_path):
    half = tmp_path / "half.safetensors"
    save_checkpoint(half, model, CARD, dtype=torch.float16)
    assert half.stat().st_size < 0.55 * saved.stat().st_size
    pixels = torch.randint(0, 256, (3, 3, 32, 32), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.allclose(load_model(half)[0](pixels).embedding, model(pixels).embedding, atol=2e-3)


def test_the_digest_changes_with_a_weight_and_with_the_card(model, tmp_path):
    digest = save_checkpoint(tmp_path / "a.safetensors", model, CARD)
    assert save_checkpoint(tmp_path / "b.safetensors", model, CARD) == digest
    assert save_checkpoint(tmp_path / "c.safetensors", model, {**CARD, "data_licence": "other"}) != digest
    with torch.no_grad():
        model.heads["visimsiam"].out.bias.add_(1)
        changed = save_checkpoint(tmp_path / "d.safetensors", model, CARD)
        model.heads["visimsiam"].out.bias.sub_(1)
    assert changed != digest


def test_a_pickle_is_refused_and_never_run(tmp_path):
    ran = tmp_path / "ran"

    class Bomb:
        def __reduce__(self):
            return (ran.touch, ())

    plain = tmp_path / "model.safetensors"
    plain.write_bytes(pickle.dumps(Bomb()))
    zipped = tmp_path / "model.pt"
    torch.save({"weight": torch.zeros(2)}, zipped)
    for path in (plain, zipped):
        with pytest.raises(InputError, match=r"pickled .*never loaded"):
            load_model(path)
    assert not ran.exists()


@pytest.mark.parametrize("keep", [0, 4, 100, 0.5, -1])
def test_a_truncated_checkpoint_is_refused(saved, tmp_path, keep):
    data = saved.read_bytes()
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(data[: int(len(data) * keep) if isinstance(keep, float) else keep])
    with pytest.raises(InputError, match=r"is not a checkpoint: "):
        load_model(cut)


def test_a_flipped_bit_in_the_weights_is_noticed(saved, tmp_path):
    data = bytearray(saved.read_bytes())
    data[-1] ^= 1
    (tmp_path / "bad.safetensors").write_bytes(data)
    for read in (load_model, cards.read_card):
        with pytest.raises(InputError, match="match the digest"):
            read(tmp_path / "bad.safetensors")


def test_a_card_is_verified_without_torch_whatever_the_types_of_the_weights(saved, tmp_path):
    header, path = read_header(saved), tmp_path / "types.safetensors"
    kinds = {value: getattr(torch, value) for value in cards.DTYPES.values()}
    tensors = {name: torch.ones(2, 3).to(kind) for name, kind in kinds.items()}
    tensors |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}
    digest = checkpoint.write_checkpoint(path, tensors, header, overwrite=True)
    assert cards.read_card(path) == checkpoint.read_checkpoint(path)[0] == {**header, "digest": digest}
    code = "import sys, pathlib; from scoring.cards import read_card; read_card(pathlib.Path(sys.argv[1]))\n"
    code += "print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_another_format_is_refused_with_both_versions(saved, tmp_path):
    with pytest.raises(InputError, match=r"format 99.* 1 and 2"):
        read_header(tampered(saved, tmp_path / "t.safetensors", format=99))


def test_a_foreign_safetensors_file_is_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"weight": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="has no model card"):
        read_header(path)


def test_a_card_that_names_another_backbone_does_not_fit(saved, tmp_path, monkeypatch):
    path = tampered(saved, tmp_path / "t.safetensors", backbone={"name": "vit_giant_patch14_224", "options": {}})
    monkeypatch.setattr(checkpoint, "require_digest", lambda path, header, tensors: None)
    with pytest.raises(InputError, match="fit 'vit_giant_patch14_224'"):
        load_model(path)


def test_an_unknown_name_lists_what_ships(tmp_path):
    with pytest.raises(InputError, match="unknown model 'visimsian'"):
        find_checkpoint("visimsian")
    with pytest.raises(InputError, match="got none at"):
        find_checkpoint(tmp_path / "absent.safetensors")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet50", "'timm:resnet50'"),
        ("resnet50.a1_in1k", "'timm:resnet50.a1_in1k'"),
        ("resnet5O", "did you mean 'timm:resnet50'"),
        ("worl", "did you mean 'world'"),
        ("mymodel", "timm:NAME"),
        ("min.safetensors", "did you mean 'mine.safetensors'"),
        ("none/x.safetensors", "got none at none/x.safetensors"),
    ],
)
def test_a_model_that_is_not_there_is_named_with_what_could_be_meant(tmp_path, monkeypatch, name, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.safetensors").touch()
    with pytest.raises(InputError, match=r"unknown model|got none") as error:
        find_checkpoint(name)
    assert words in str(error.value)


def test_a_card_cannot_make_timm_read_a_file(saved, tmp_path, monkeypatch):
    options = {"checkpoint_path": str(tmp_path / "evil.pth")}
    path = tampered(saved, tmp_path / "t.safetensors", backbone={"name": "test_resnet", "options": options})
    monkeypatch.setattr(checkpoint, "require_digest", lambda path, header, tensors: None)
    with pytest.raises(InputError, match="option checkpoint_path="):
        load_model(path)


def test_a_weight_that_half_precision_cannot_hold_is_named(model, tmp_path):
    bias = model.heads["visimsiam"].out.bias
    with torch.no_grad():
        before = bias.clone()
        bias.fill_(1e6)
        with pytest.raises(InputError, match=r"out\.bias .*torch\.float16"):
            save_checkpoint(tmp_path / "h.safetensors", model, CARD, dtype=torch.float16)
        bias.copy_(before)
    assert not list(tmp_path.iterdir())


def test_a_folder_named_like_a_model_does_not_hide_it(tmp_path, monkeypatch):
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    (shipped / "visimsiam.safetensors").touch()
    monkeypatch.setattr(cards, "SHIPPED", shipped)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "visimsiam").mkdir()
    assert find_checkpoint("visimsiam") == shipped / "visimsiam.safetensors"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(saved, tmp_path, value):
    header, tensors = checkpoint.read_checkpoint(saved)
    tensors["heads.visimsiam.out.bias"][0] = value
    header["digest"] = cards.digest_of(header, packaged.stored(tensors))
    save_file(tensors, tmp_path / "bad.safetensors", {"curate": json.dumps(header)})
    with pytest.raises(InputError, match=r"bias' .*finite"):
        load_model(tmp_path / "bad.safetensors")
