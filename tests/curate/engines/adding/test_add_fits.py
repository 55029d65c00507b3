"""Scores that are fitted to a dataset that grows: known rows keep theirs, new ones are judged by the fit."""

import numpy as np
import pytest
from PIL import Image
from runs import SMALL

from curate.engines.adding.fits import frozen_fit, judged
from curate.engines.score import score
from curate.fitting.fit import fit
from curate.tables.provenance import fitted_apart
from curate.tables.table import open_table
from scoring.errors import InputError

pytestmark = pytest.mark.usefixtures("few_copies")
N = 70
FITTED = ["p_junk", "unc_neighbour", "unc_ambiguous", "unc_fitted", "unc_local", "cluster", "unlike_group"]
WIDE = SMALL | {"shard_size": 32, "batch_size": 16}


def draw(path, number):
    """One of some kinds of images, each a little different."""
    kind, detail = np.random.default_rng(number % 6), np.random.default_rng(number)
    pixels = kind.integers(0, 256, (6, 8, 3)) * 0.4 + detail.integers(0, 150, (6, 8, 3))
    Image.fromarray(pixels.astype(np.uint8)).resize((40, 30), Image.Resampling.BICUBIC).save(path)


@pytest.fixture(scope="module")
def first(tmp_path_factory, tiny_checkpoint):
    """A folder of images and its table, with fitted scores."""
    place = tmp_path_factory.mktemp("fits")
    (place / "photos").mkdir()
    for number in range(N):
        draw(place / "photos" / f"{number:03}.png", number)
    score(place / "photos", place / "s.parquet", model=tiny_checkpoint, **WIDE)
    return place


@pytest.fixture
def place(first, tmp_path):
    """The same, to change."""
    (tmp_path / "photos").mkdir()
    for path in (first / "photos").iterdir():
        (tmp_path / "photos" / path.name).hardlink_to(path)
    (tmp_path / "s.parquet").write_bytes((first / "s.parquet").read_bytes())
    return tmp_path


def rows_of(path):
    """Rows by key, without paths: the folder is a copy of the one that was scored."""
    return {row.pop("key"): row for row in open_table(path).read().drop_columns("uri").to_pylist()}


def grow(place, *numbers):
    for number in numbers:
        (place / "photos" / f"{number:03}.png").unlink(missing_ok=True)
        draw(place / "photos" / f"{number:03}.png", number)


def test_the_fit_that_is_made_again_says_of_every_row_what_the_table_says(place):
    table = open_table(place / "s.parquet")
    columns, outside = judged(frozen_fit(table), table)
    known = table.read()
    assert outside <= 2
    for name in ("unc_neighbour", "unc_ambiguous", "cluster"):  # others also say what p_junk of other folds says
        was = np.array(known[name].to_pylist(), float)
        np.testing.assert_allclose(np.array(columns[name].to_pylist(), float), was, atol=1e-5, err_msg=name)
    assert columns.keys() <= set(FITTED)


def test_known_rows_keep_their_scores_and_new_ones_are_judged(place):
    out = place / "s.parquet"
    before = rows_of(out)
    grow(place, 100, 101, 102)
    result = score(place / "photos", out, add=True)
    after = rows_of(out)
    assert {key: after[key] for key in before} == before
    for number in (100, 101, 102):
        row = after[f"{number}.png"]
        assert row["copies"] is None
        assert all(row[name] is not None for name in ("unc_neighbour", "unc_ambiguous", "unc_fitted", "unc_local"))
        assert (row["p_junk"] is None) == (before["000.png"]["p_junk"] is None)
    assert any("copies" in note and "--refit" in note for note in result.notes)
    assert open_table(out).metadata["fit"]["judged"] == 3
    assert fitted_apart(open_table(out), ["unc_fitted"]) == []


def test_a_copy_of_a_known_image_gets_about_its_score(place):
    (place / "photos" / "200.png").write_bytes((place / "photos" / "007.png").read_bytes())
    score(place / "photos", place / "s.parquet", add=True)
    rows = rows_of(place / "s.parquet")
    for name in ("unc_neighbour", "unc_ambiguous"):
        assert rows["200.png"][name] == pytest.approx(rows["007.png"][name], abs=0.02)


def test_the_fit_outlives_rows_that_it_was_made_of(place):
    """Rows judged after images changed and went are judged as before."""
    grow(place, 100)
    score(place / "photos", place / "s.parquet", add=True)
    early = rows_of(place / "s.parquet")["100.png"]
    (place / "photos" / "003.png").unlink()
    (place / "photos" / "004.png").unlink()
    draw(place / "photos" / "004.png", 304)
    Image.open(place / "photos" / "100.png").save(place / "photos" / "101.png", compress_level=1)  # other bytes
    (place / "photos" / "100.png").unlink()
    score(place / "photos", place / "s.parquet", add=True)
    rows = rows_of(place / "s.parquet")
    assert (rows["003.png"]["status"], rows["100.png"]["status"]) == ("gone", "gone")
    assert rows["003.png"]["unc_fitted"] is None
    late = rows["101.png"]
    assert [late[name] for name in FITTED] == pytest.approx([early[name] for name in FITTED], abs=1e-3)
    assert open_table(place / "s.parquet").metadata["fit"]["judged"] == 3


def test_without_the_fit_that_was_kept_changed_rows_leave_new_ones_without_scores_and_a_line(place):
    grow(place, 100)
    (place / "photos" / "004.png").unlink()
    draw(place / "photos" / "004.png", 304)
    score(place / "photos", place / "s.parquet", add=True)
    (place / "s.parquet.fit").unlink()
    grow(place, 101)
    result = score(place / "photos", place / "s.parquet", add=True)
    assert rows_of(place / "s.parquet")["101.png"]["unc_fitted"] is None
    assert any("unc_fitted" in note and "--refit" in note for note in result.notes)


def test_a_table_that_was_too_small_for_fitted_scores_gets_them_as_it_grows(place, tiny_checkpoint):
    (place / "few").mkdir()
    files = sorted((place / "photos").iterdir())
    for path in files[:20]:
        (place / "few" / path.name).hardlink_to(path)
    score(place / "few", place / "f.parquet", model=tiny_checkpoint, **WIDE)
    assert "unc_fitted" not in open_table(place / "f.parquet").schema.names
    for path in files[20:]:
        (place / "few" / path.name).hardlink_to(path)
    score(place / "few", place / "f.parquet", add=True)
    grown, at_once = (rows_of(place / name) for name in ("f.parquet", "s.parquet"))
    for key, row in at_once.items():
        assert grown[key]["unc_fitted"] == pytest.approx(row["unc_fitted"], abs=1e-3)
        assert grown[key].keys() == row.keys()
    state = (place / "f.parquet").read_bytes()
    score(place / "few", place / "f.parquet", add=True)
    assert (place / "f.parquet").read_bytes() == state


def test_refit_gives_what_scoring_the_whole_gives(place, tiny_checkpoint):
    out = place / "s.parquet"
    grow(place, 100, 101, 102, 103)
    score(place / "photos", out, add=True)
    score(place / "photos", out, add=True, refit=True)
    score(place / "photos", place / "whole.parquet", model=tiny_checkpoint, **WIDE)
    refitted, at_once = open_table(out), open_table(place / "whole.parquet")
    assert refitted.schema == at_once.schema
    for name in FITTED:
        a, b = (np.array(each.read([name])[name].to_pylist(), float) for each in (refitted, at_once))
        np.testing.assert_allclose(a, b, atol=0.03, err_msg=name)
    assert refitted.read(["copies"]).equals(at_once.read(["copies"]))
    assert "judged" not in refitted.metadata["fit"]
    assert not (place / "s.parquet.fit").exists()


def test_refit_reads_the_right_images_where_rows_are_gone_and_repeated_changes_nothing(place):
    (place / "photos" / "000.png").unlink()
    result = score(place / "photos", place / "s.parquet", add=True, refit=True)
    rows = rows_of(place / "s.parquet")
    assert rows["000.png"]["unc_fitted"] is None
    assert rows["001.png"]["unc_fitted"] is not None
    assert result.statuses == {"ok": N - 1, "gone": 1}
    before = (place / "s.parquet").stat().st_mtime_ns
    score(place / "photos", place / "s.parquet", add=True, refit=True)
    assert (place / "s.parquet").stat().st_mtime_ns == before


def test_a_table_of_curate_fit_is_judged_by_its_fit_and_not_refitted(place):
    fit(place / "s.parquet", apply=place / "f.parquet", seed=3)
    before = rows_of(place / "f.parquet")
    grow(place, 100)
    score(place / "photos", place / "f.parquet", add=True)
    after = rows_of(place / "f.parquet")
    assert {key: after[key] for key in before} == before
    assert after["100.png"]["unc_fitted"] is not None
    with pytest.raises(InputError, match="curate fit"):
        score(place / "photos", place / "f.parquet", add=True, refit=True)


def test_a_model_that_was_fitted_judges_new_rows_itself(place, tiny_checkpoint):
    fit(place / "s.parquet", place / "m.safetensors", model=tiny_checkpoint)
    score(place / "photos", place / "m.parquet", model=place / "m.safetensors", **WIDE)
    grow(place, 100)
    score(place / "photos", place / "m.parquet", add=True)
    assert rows_of(place / "m.parquet")["100.png"]["unc_fitted"] is not None
    assert not (place / "m.parquet.fit").exists()


def test_what_is_no_fit_in_its_place_is_left_alone(place):
    (place / "s.parquet.fit").write_bytes(b"mine")
    grow(place, 100)
    with pytest.raises(InputError, match=r"s\.parquet\.fit"):
        score(place / "photos", place / "s.parquet", add=True)
    assert (place / "s.parquet.fit").read_bytes() == b"mine"
