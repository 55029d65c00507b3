"""``curate models``, and ``curate info`` of a checkpoint."""

import json
import pickle

import pytest
import two_backbones
from commandline import run
from PIL import Image

from scoring.cards import read_header
from scoring.checkpoint import load_model, save_checkpoint


@pytest.fixture
def ships(monkeypatch, tiny_checkpoint):
    """Pretend that the tiny checkpoint, and a copy by another name, came with the package."""
    models = {"other": tiny_checkpoint, "world": tiny_checkpoint}
    monkeypatch.setattr("scoring.cards.shipped_models", lambda: models)
    return tiny_checkpoint


@pytest.mark.usefixtures("ships")
def test_the_list_has_a_line_for_each_model_and_marks_the_default():
    lines = run("models").stdout.splitlines()
    about = "kappa_visimsiam on test_resnet, 32 px, CC0"
    assert lines[:2] == [f"other: {about}", f"world (default): {about}"]
    assert [line.split(":")[0] for line in lines[2:]] == ["  good for"]


def test_the_card_of_a_shipped_model_and_of_a_file_are_the_same(ships):
    by_name, by_file = run("models", "other"), run("models", ships)
    assert by_name.exit_code == by_file.exit_code == 0
    assert by_name.stdout == by_file.stdout
    assert run("models", "world").stdout.splitlines()[-1].startswith("good for: photographs of any kind")
    lines = by_name.stdout.splitlines()
    assert "method: visimsiam" in lines
    assert "  name: test_resnet" in lines
    assert f"digest: {read_header(ships)['digest']}" in lines


def test_of_backbones_side_by_side_the_list_and_the_card_say_what_each_needs_and_whether_it_is_here(
    tmp_path, monkeypatch
):
    two_backbones.make_package(tmp_path)
    two_backbones.install(tmp_path, monkeypatch)
    path = tmp_path / "world.safetensors"
    save_checkpoint(path, two_backbones.make_model(), {**two_backbones.CARD, "good for": "photographs"})
    monkeypatch.setattr("scoring.cards.shipped_models", lambda: {"world": path})
    first = "backbone test_resnet at 64 px: in the package tiny-weights, "
    rest = [
        "good for: photographs",
        f"{first}installed, the exact file",
        "backbone test_resnet at 32 px: in the checkpoint",
    ]
    assert run("models").stdout.splitlines() == [
        "world (default): embedding on test_resnet+test_resnet, 64 px, CC0",
        *(f"  {line}" for line in rest),
    ]
    assert run("models", "world").stdout.splitlines()[-3:] == rest
    (tmp_path / two_backbones.FILE).write_bytes(b"other")
    changed = run("models").stdout.splitlines()[2]
    assert changed.startswith(f"  {first}not usable: ")
    assert "pip install" in changed


def test_json_is_the_card_itself(ships):
    assert json.loads(run("models", "world", "--json").stdout) == read_header(ships)
    assert list(json.loads(run("models", "--json").stdout)) == ["other", "world"]


def test_an_installation_without_models_is_reported(monkeypatch):
    monkeypatch.setattr("scoring.cards.shipped_models", dict)
    result = run("models")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "no model ships" in result.stderr
    assert json.loads(run("models", "--json").stdout) == {}


def test_a_card_cannot_command_the_terminal(tmp_path, tiny_checkpoint):
    model, _ = load_model(tiny_checkpoint)
    card = {"method": "a\x1b[2Jb\nc", "training": {"x\x1b]0;": 1}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "m.safetensors", model, card)
    for command in ("models", "info"):
        result = run(command, tmp_path / "m.safetensors")
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        assert "a\\x1b[2Jb\\nc" in result.output


@pytest.mark.usefixtures("ships")
def test_an_unknown_name_shows_the_closest_and_all():
    result = run("models", "worl")
    assert result.exit_code == 1
    assert result.stderr == ("error: unknown model 'worl'; did you mean 'world'? (known: other, world)\n")


def test_what_is_no_checkpoint_is_refused_in_one_line_by_every_command_that_takes_one(tmp_path, tiny_checkpoint):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "photos" / "a.png")
    (tmp_path / "pickled.safetensors").write_bytes(pickle.dumps({"weights": [1.0]}))
    (tmp_path / "short.safetensors").write_bytes(tiny_checkpoint.read_bytes()[:1000])
    (tmp_path / "text.safetensors").write_text("hello")
    for name in ("pickled", "short", "text", "absent"):
        file = tmp_path / f"{name}.safetensors"
        for args in (
            ["models", file],
            ["info", file],
            ["score", tmp_path / "photos", "-o", tmp_path / "s.parquet", "--model", file],
            ["train", "visimsiam", tmp_path / "photos", "-o", tmp_path / "m.safetensors", "--backbone", file],
        ):
            result = run(*args)
            assert result.exit_code == 1, args
            assert "error: " in result.stderr, result.output
            lines = result.stderr.splitlines()
            assert f"{name}.safetensors" in lines[-1]
    assert not (tmp_path / "s.parquet").exists()
    assert not (tmp_path / "m.safetensors").exists()


def test_info_of_a_checkpoint_shows_its_kind_and_card(tiny_checkpoint):
    result = run("info", tiny_checkpoint)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0].endswith(": checkpoint")
    facts = json.loads(run("info", tiny_checkpoint, "--json").stdout)["facts"]
    assert facts == read_header(tiny_checkpoint)


def test_foreign_weights_convert_and_then_score_and_carry_heads(tmp_path):
    import timm
    import torch

    torch.manual_seed(0)
    torch.save(timm.create_model("resnet10t.c3_in1k").state_dict(), tmp_path / "weights.pth")
    out = tmp_path / "ours.safetensors"
    result = run("models", "convert", tmp_path / "weights.pth", "--backbone", "resnet10t.c3_in1k", "-o", out)
    assert result.exit_code == 0, result.output
    assert result.stderr.splitlines() == [
        "resnet10t.c3_in1k at 176 pixels, without a head: `curate train --freeze` adds one",
        f"model {read_header(out)['digest'][:12]}: {out}",
    ]
    assert "  file: weights.pth" in [line[2:] for line in run("models", out).stdout.splitlines()]
    again = run("models", "convert", tmp_path / "weights.pth", "-o", out)
    assert again.exit_code == 1
    assert "exists already" in again.stderr
    assert load_model(out)[0].spec.preprocessing.resize == 201


def test_the_help_of_convert_is_its_own_and_bad_usage_is_exit_2(tmp_path):
    result = run("models", "convert", "--help")
    assert result.exit_code == 0
    assert "curate models convert [OPTIONS]" in result.output.replace("root", "curate")
    assert "curate models convert vit_base_uncertainty.pth.tar" in result.output
    assert run("models", "convert").exit_code == 2
    wrong = run("models", "convert", "x.pth", "-o", tmp_path / "o.safetensors", "--no-such-option")
    assert wrong.exit_code == 2
    missing = run("models", "convert", tmp_path / "x.pth", "-o", tmp_path / "o.safetensors")
    assert missing.exit_code == 1
    assert missing.stderr == f"error: expected a file of weights, got none at {tmp_path / 'x.pth'}\n"
