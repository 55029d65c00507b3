"""p_junk at the end of scoring: junk among made-up scenes, its note, and what becomes of a source that is gone."""

import json

import numpy as np
import polars as pl
import pytest
import runs
from PIL import Image

import curate
from curate.engines import junk
from curate.engines.score import score
from curate.tables.table import open_table
from scoring.relative.junk.copies import KINDS

pytestmark = pytest.mark.usefixtures("few_copies")
SMALL = runs.SMALL | {"batch_size": 32, "shard_size": 32}  # of small batches each costs time
N, N_JUNK = 90, 8
COPIES = junk.COPIES


def scene(number):
    """A colourful scene: a smooth ground and shapes with hard edges, with some noise as of a camera."""
    draw = np.random.default_rng(number)
    small = Image.fromarray(draw.integers(40, 220, (5, 6, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize((120, 100), Image.Resampling.BICUBIC)).astype(float)
    down, across = np.mgrid[:100, :120]
    for _ in range(14):
        x, y, r = draw.uniform(0, 120), draw.uniform(0, 100), draw.uniform(3, 25)
        inside = (
            np.hypot(across - x, down - y) < r
            if draw.random() < 0.5
            else np.maximum(abs(across - x), abs(down - y)) < r
        )
        pixels[inside] = draw.integers(0, 256, 3)
    return np.clip(pixels + draw.normal(0, 3, pixels.shape), 0, 255).astype(np.uint8)


def bad(number):
    draw = np.random.default_rng(1000 + number)
    pixels = scene(2000 + number)
    made = (
        pixels * 0.04,
        np.full(pixels.shape, 200.0) + draw.normal(0, 2, pixels.shape),
        draw.uniform(0, 255, pixels.shape),
        np.asarray(Image.fromarray(pixels).resize((9, 8)).resize((120, 100))).astype(float),
    )
    return np.clip(made[number % 4], 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def crawl(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crawl")
    for number in range(N):
        Image.fromarray(scene(number)).save(folder / f"good{number:03}.png")
    for number in range(N_JUNK):
        Image.fromarray(bad(number)).save(folder / f"junk{number}.png")
    return folder


@pytest.fixture(scope="module")
def scored(crawl, tiny_checkpoint, tmp_path_factory):
    out = tmp_path_factory.mktemp("scored") / "s.parquet"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(junk, "COPIES", COPIES)
        return score(crawl, out, model=tiny_checkpoint, **SMALL), out


@pytest.fixture(scope="module")
def quickly_scored(crawl, tiny_checkpoint, tmp_path_factory, few_copies):
    out = tmp_path_factory.mktemp("scored") / "s.parquet"
    score(crawl, out, model=tiny_checkpoint, **SMALL)
    return out


def test_junk_is_found_among_images_that_nothing_was_tuned_on(scored):
    frame = pl.read_parquet(scored[1])
    is_junk = frame["key"].str.starts_with("junk").to_numpy()
    flagged = (frame["p_junk"] > 0.5).to_numpy()
    assert flagged[is_junk].sum() >= N_JUNK - 1
    assert flagged[~is_junk].sum() <= 2
    assert (frame["unc_fitted"].to_numpy()[flagged] > 0.5).all()
    assert (frame["unc_fitted"].to_numpy()[~flagged] <= 0.5).all()


def test_a_table_says_how_well_it_works_there(scored):
    about = open_table(scored[1]).metadata["fit"]["junk"]
    assert about["applies"] is True
    assert about["auroc"][1] > 0.97  # the low end of the interval
    assert set(about["by_kind"]) == set(KINDS)
    note = next(each for each in scored[0].notes if "p_junk" in each)
    assert f"{(pl.read_parquet(scored[1])['p_junk'] > 0.5).sum()} of {N + N_JUNK}" in note
    assert "AUROC" in note


def test_a_fitted_model_judges_new_images(scored, tiny_checkpoint, tmp_path):
    model = tmp_path / "f.safetensors"
    curate.fit(scored[1], model, model=tiny_checkpoint)
    new = tmp_path / "new"
    new.mkdir()
    for number in range(12):
        Image.fromarray(scene(500 + number)).save(new / f"good{number}.png")
        Image.fromarray(bad(500 + number)).save(new / f"junk{number}.png")
    score(new, tmp_path / "n.parquet", model=model, **SMALL)
    frame = pl.read_parquet(tmp_path / "n.parquet")
    right = (frame["p_junk"] > 0.5) == frame["key"].str.starts_with("junk")
    assert right.sum() >= 22
    with pytest.raises(curate.InputError, match="--no-quality"):
        score(new, tmp_path / "m.parquet", model=model, **SMALL, quality=False)
    assert curate.fit(tmp_path / "n.parquet", apply=tmp_path / "a.parquet", fitted=model).fitted_before
    assert pl.read_parquet(tmp_path / "a.parquet")["p_junk"].to_numpy() == pytest.approx(
        frame["p_junk"].to_numpy(), abs=1e-3
    )


def test_verify_fits_it_again(scored, tiny_checkpoint, tmp_path):
    from curate.fitting.verify import verify_fit

    curate.fit(scored[1], tmp_path / "f.safetensors", model=tiny_checkpoint)
    assert verify_fit(tmp_path / "f.safetensors").identical


@pytest.mark.slow
def test_a_fit_of_a_folder_of_parts_corrupts_its_images(crawl, quickly_scored, tiny_checkpoint, tmp_path):
    score(crawl, tmp_path / "parts", model=tiny_checkpoint, **SMALL)
    curate.fit(tmp_path / "parts", apply=tmp_path / "a.parquet", model=tiny_checkpoint)
    fitted = pl.read_parquet(tmp_path / "a.parquet").select("key", "p_junk")
    expected = pl.read_parquet(quickly_scored).select("key", expected="p_junk")
    both = fitted.join(expected, on="key", validate="1:1")
    assert both["p_junk"].to_numpy() == pytest.approx(both["expected"].to_numpy(), abs=0.02)


def test_without_its_images_a_table_is_fitted_without(crawl, tiny_checkpoint, tmp_path):
    moved = tmp_path / "moved"
    moved.mkdir()
    for path in crawl.iterdir():
        (moved / path.name).write_bytes(path.read_bytes())
    score(moved, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, fit=False)
    moved.rename(tmp_path / "elsewhere")
    result = curate.fit(tmp_path / "s.parquet", apply=tmp_path / "a.parquet", model=tiny_checkpoint)
    assert any("could be read again" in note for note in result.notes)
    frame = pl.read_parquet(tmp_path / "a.parquet")
    assert "p_junk" not in frame.columns or frame["p_junk"].is_null().all()
    again = curate.fit(
        tmp_path / "s.parquet", apply=tmp_path / "b.parquet", model=tiny_checkpoint, source=str(tmp_path / "elsewhere")
    )
    assert pl.read_parquet(tmp_path / "b.parquet")["p_junk"].is_not_null().any()
    assert any("held-out AUROC" in note for note in again.notes)


def test_it_does_not_apply_to_a_dataset_of_junk(tiny_checkpoint, tmp_path):
    folder = tmp_path / "noise"
    folder.mkdir()
    for number in range(60):
        draw = np.random.default_rng(number)
        Image.fromarray(draw.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    result = score(folder, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    assert any("p_junk does not apply" in note for note in result.notes)
    frame = pl.read_parquet(tmp_path / "s.parquet")
    assert "p_junk" not in frame.columns or frame["p_junk"].is_null().all()
    assert curate.issues(tmp_path / "s.parquet").kinds.get("junk", {"n": 0})["n"] == 0


def test_the_same_whatever_the_number_of_decoding_threads(crawl, quickly_scored, tiny_checkpoint, tmp_path):
    score(crawl, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL, workers=1)
    assert (tmp_path / "s.parquet").read_bytes() == quickly_scored.read_bytes()


def test_images_in_a_table_are_read_from_it(crawl, quickly_scored, tiny_checkpoint, tmp_path):
    files = sorted(crawl.iterdir())
    rows = {"key": [path.name for path in files], "image": [path.read_bytes() for path in files]}
    pl.DataFrame(rows).write_parquet(tmp_path / "t.parquet")
    score(tmp_path / "t.parquet", tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    from_table, from_files = (
        pl.read_parquet(path)["p_junk"].to_numpy() for path in (tmp_path / "s.parquet", quickly_scored)
    )
    assert from_table == pytest.approx(from_files, abs=1e-4)


def test_its_cost_does_not_grow_with_the_dataset(crawl, tiny_checkpoint, tmp_path, monkeypatch):
    seen = []
    real = junk.corrupted_copies
    monkeypatch.setattr(junk, "IMAGES", 40)
    monkeypatch.setattr(junk, "COPIES", 120)
    monkeypatch.setattr(junk, "corrupted_copies", lambda *args, **named: seen.append(args[2]) or real(*args, **named))
    score(crawl, tmp_path / "s.parquet", model=tiny_checkpoint, **SMALL)
    assert len(seen) == 40
    assert {len(kinds) for kinds in seen} == {3}


def test_the_facts_are_plain_json(scored):
    assert json.loads(json.dumps(open_table(scored[1]).metadata["fit"], allow_nan=False))["junk"]["copies"] > 500
