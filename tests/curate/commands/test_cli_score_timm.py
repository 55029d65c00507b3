"""``curate score --model timm:NAME``, and published checkpoints that were converted."""

import argparse

import polars as pl
import pytest
import timm
import torch
from commandline import run
from PIL import Image
from safetensors.torch import save_file

from curate.tables.table import open_table
from scoring.published import load_published

NAME = "resnet10t.c3_in1k"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("timm")
    torch.manual_seed(5)
    for name in ("one", "two"):
        save_file(timm.create_model(NAME).state_dict(), folder / f"{name}.safetensors")
    (folder / "photos").mkdir()
    for i in range(5):
        Image.new("RGB", (48, 40), (50 * i, 255 - 50 * i, 90)).save(folder / "photos" / f"{i}.png")
    return folder


def test_a_model_of_timms_gives_embeddings_and_no_scores_and_its_digest_is_kept(place):
    out = place / "scores.parquet"
    args = ("score", place / "photos", "--model", f"timm:{NAME}", "--no-fit", "-o")
    result = run(*args, out, "--weights", place / "one.safetensors")
    assert result.exit_code == 0, result.output
    table = pl.read_parquet(out)
    assert table["embedding"].dtype.size == 512
    assert not [name for name in table.columns if name.startswith(("unc_", "kappa_"))]
    about = open_table(out).metadata["model"]
    assert about["digest"] == load_published(f"timm:{NAME}@{place / 'one.safetensors'}")[1]["digest"]
    assert about["backbone"]["name"] == NAME
    again = run(*args, out, "--weights", place / "one.safetensors")
    assert again.exit_code == 0, again.output
    other = run(*args, out, "--weights", place / "two.safetensors")
    assert other.exit_code == 1
    assert "model" in other.stderr
    assert other.stderr.count("error: ") == 1


def test_weights_without_a_model_of_timms_are_refused(place):
    result = run("score", place / "photos", "--weights", place / "one.safetensors", "-o", place / "no.parquet")
    assert result.exit_code == 1
    assert "expected timm:NAME, got 'world'" in result.stderr


def test_features_of_a_model_of_timms_are_cached_and_carry_a_head(place):
    named = f"timm:{NAME}@{place / 'one.safetensors'}"
    cached = run("cache", place / "photos", "--model", named, "--epochs", "3", "-o", place / "features")
    assert cached.exit_code == 0, cached.output
    trained = run(
        *("train", "visimsiam", "--cached", place / "features", "--backbone", named, "-o", place / "m.safetensors"),
        *("--epochs", "1", "--set", "latent_dim=16", "--set", "hidden_dim=16"),
    )
    assert trained.exit_code == 0, trained.output
    scored = run("score", place / "photos", "--model", place / "m.safetensors", "--no-fit", "-o", place / "m.parquet")
    assert scored.exit_code == 0, scored.output
    assert "kappa_visimsiam" in pl.read_parquet(place / "m.parquet").columns


def test_a_checkpoint_of_pretrained_visual_uncertainties_converts_and_scores(place):
    """In the form that its training code writes: timm's saver, a Namespace of arguments, names with a prefix."""
    torch.manual_seed(6)
    name = "vit_tiny_patch16_224.augreg_in21k"
    state = {f"model.{key}": value for key, value in timm.create_model(name).state_dict().items()}
    shapes = {0: (512, 192), 2: (512, 512), 4: (1, 512)}
    for at, shape in shapes.items():
        state[f"unc_module.unc_module.{at}.weight"] = 0.05 * torch.randn(shape)
        state[f"unc_module.unc_module.{at}.bias"] = torch.zeros(shape[0])
    arguments = argparse.Namespace(model=name, loss="losspred-order")
    checkpoint = {"epoch": 459, "arch": name, "state_dict": state, "version": 2, "args": arguments, "metric": 0.6}
    torch.save(checkpoint, place / "theirs.pth.tar")
    converted = run("models", "convert", place / "theirs.pth.tar", "-o", place / "ours.safetensors")
    assert converted.exit_code == 0, converted.output
    scored = run(
        "score", place / "photos", "--model", place / "ours.safetensors", "--no-fit", "-o", place / "v.parquet"
    )
    assert scored.exit_code == 0, scored.output
    table = pl.read_parquet(place / "v.parquet").sort("key")
    net = timm.create_model(name, num_classes=0)
    net.load_state_dict({k.removeprefix("model."): v for k, v in state.items() if "head." not in k and "unc_" not in k})
    image = torch.tensor([50.0, 205.0, 90.0]).view(1, 3, 1, 1).expand(1, 3, 224, 224)  # of 1.png, of one colour
    with torch.inference_mode():
        hidden = net.eval()(image / 127.5 - 1)
        for at in shapes:
            hidden = torch.nn.functional.linear(
                hidden if at == 0 else torch.nn.functional.leaky_relu(hidden, 0.01),
                state[f"unc_module.unc_module.{at}.weight"],
                state[f"unc_module.unc_module.{at}.bias"],
            )
        expected = torch.nn.functional.softplus(hidden).item() + 1e-6
    assert table["unc_losspred"][1] == pytest.approx(expected, rel=1e-4)
