"""``curate train simvae`` as typed, what its checkpoint scores, and bad input, each in one line."""

import numpy as np
import polars as pl
import pytest
from commandline import run
from PIL import Image

from scoring.cards import read_header

SMALL = ["--size", "32", "--backbone", "test_resnet", "--batch-size", "8", "--epochs", "2", "--device", "cpu"]
NARROW = ["--set", "views=2", "--set", "channels=8", "--set", "latent_dim=6"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Images of two kinds, and a model of them."""
    place = tmp_path_factory.mktemp("generative")
    generator = np.random.default_rng(0)
    for kind in range(2):
        (place / "photos" / "ab"[kind]).mkdir(parents=True)
        for i in range(8):
            pixels = generator.integers(0, 80, (32, 32, 3), dtype=np.uint8)
            pixels[:, :, 2 * kind] += 150
            Image.fromarray(pixels).save(place / "photos" / "ab"[kind] / f"{i}.png")
    done = run("train", "simvae", place / "photos", "-o", place / "simvae.safetensors", *SMALL, *NARROW)
    assert done.exit_code == 0, done.output
    return place


@pytest.fixture(autouse=True)
def workdir(place, monkeypatch):
    monkeypatch.chdir(place)


def test_scores_are_of_the_posterior_and_commands_use_mu(tmp_path):
    assert read_header("simvae.safetensors")["embedding"] == "simvae"
    assert run("score", "photos", "-o", "scores.parquet", "--model", "simvae.safetensors").exit_code == 0
    table = pl.read_parquet("scores.parquet")
    mu = np.stack(table["embedding"].to_list()).astype(np.float64)
    assert mu.shape == (16, 6)
    assert np.allclose(np.linalg.norm(mu, axis=1), 1, atol=1e-3)
    assert table["unc_simvae"].is_finite().all()
    assert (table["unc_simvae_error"] > 0).all()
    for typed in (
        ("dedup", "scores.parquet", "-o", tmp_path / "d.parquet", "--finder", "embedding"),
        ("select", "scores.parquet", "-o", tmp_path / "s.parquet", "--budget", "3", "--strategy", "k-center"),
        ("filter", "scores.parquet", "-o", tmp_path / "f.parquet", "--keep-top", "5", "--column", "unc_simvae_error"),
    ):
        done = run(*typed)
        assert done.exit_code == 0, done.output
    kept = pl.read_parquet(tmp_path / "f.parquet")["unc_simvae_error"]
    assert sorted(kept) == sorted(table["unc_simvae_error"])[:5]


@pytest.mark.slow
def test_a_head_on_it_keeps_the_embedding_and_the_spread_of_crops_is_scored(tmp_path):
    options = ["--freeze", "--batch-size", "8", "--epochs", "1", "--device", "cpu", "--set", "n_small=0"]
    two = tmp_path / "two.safetensors"
    done = run("train", "visimsiam", "photos", "-o", two, "--backbone", "simvae.safetensors", *options)
    assert done.exit_code == 0, done.output
    tables = []
    for name in ("simvae.safetensors", two):
        out = tmp_path / f"{len(tables)}.parquet"
        done = run("score", "photos", "-o", out, "--model", name, "--scorer", "crops", "--no-fit")
        assert done.exit_code == 0, done.output
        tables.append(pl.read_parquet(out))
    assert {"kappa_visimsiam", "unc_simvae", "unc_crops"} <= set(tables[1].columns)
    for column in ("embedding", "unc_simvae", "unc_simvae_error", "unc_crops"):
        assert tables[0][column].equals(tables[1][column]), column


@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("simvae", ["--set", "views=1"], "at most 64, got 1"),
        ("crvae", ["--set", "views=1"], "at most 64, got 1"),
        ("simvae", ["--size", "100"], "or 112, got 100"),
        ("vae", ["--set", "beta=2"], "no parameter 'beta'"),
        ("simvae", ["--set", "likelihood_variance=0"], "likelihood_variance must be"),
        ("simvae", ["--set", "prior_variance=nan"], "prior_variance"),
        ("simvae", ["--backbone", "simvae.safetensors", "--freeze"], "--freeze keeps embeddings"),
        ("vae", ["--lr", "1e30", "--epochs", "4"], "expected a number"),
    ],
)
def test_bad_input_is_one_line_and_no_checkpoint(tmp_path, method, options, words):
    out = tmp_path / "m.safetensors"
    typed = [*SMALL, *options] if "--freeze" not in options else [*SMALL[4:], *options]
    done = run("train", method, "photos", "-o", out, *typed)
    assert done.exit_code == 1, done.output
    assert words in done.stderr
    assert sum(line.startswith("error") for line in done.stderr.splitlines()) == 1
    assert not out.exists()


def test_pixels_are_not_in_a_cache():
    done = run("cache", "photos", "--model", "simvae.safetensors", "--epochs", "2", "-o", "cached")
    assert done.exit_code == 0, done.output
    done = run("train", "vae", "--cached", "cached", "--backbone", "simvae.safetensors", "-o", "v.safetensors")
    assert done.exit_code == 1
    assert "vae reads pixels" in done.stderr


def test_a_decoder_that_memory_does_not_hold_is_one_line(tmp_path, monkeypatch):
    def no_memory(*sizes, **named):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8796093022208 bytes")

    monkeypatch.setattr("scoring.posterior.Decoder", no_memory)
    done = run("train", "vae", "photos", "-o", tmp_path / "m.safetensors", *SMALL)
    assert done.exit_code == 1
    assert "vae with latent_dim=64" in done.stderr
