"""``curate score`` as typed: what it reports for a source before the images are read."""

import shutil

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from curate.cli import app

OPTIONS = ["--model", "m.safetensors", "--device", "cpu"]


@pytest.fixture
def photos(tmp_path, monkeypatch, tiny_checkpoint):
    """Four images in two sub-folders."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny_checkpoint, "m.safetensors")
    for i in range(4):
        folder = tmp_path / "photos" / ("cat" if i % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 40), (60 * i, 0, 99)).save(folder / f"{i}.png")
    return tmp_path


def run(*args, code=0):
    result = CliRunner().invoke(app, [str(arg) for arg in args])
    assert result.exit_code == code, result.output
    return result


def refused(*args):
    result = run(*args, code=1)
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    return lines[0]


def test_class_folders_are_noticed_and_the_option_that_keeps_them_named(photos):
    said = run("score", "photos", "-o", "s.parquet", *OPTIONS).stderr
    assert "(2: cat, dog)" in said
    assert "class folders" not in run("score", "photos", "-o", "l.parquet", "--label-from-folder", *OPTIONS).stderr
    assert pl.read_parquet("l.parquet")["label"].to_list() == ["cat", "cat", "dog", "dog"]


def test_folders_that_are_no_classes_are_not_taken_for_some(photos):
    Image.new("RGB", (40, 40)).save(photos / "photos" / "loose.png")
    assert "class folders" not in run("score", "photos", "-o", "s.parquet", *OPTIONS).stderr


def test_another_input_says_which_option_differs(photos):
    run("score", "photos", "-o", "s.parquet", *OPTIONS)
    assert "--label-from-folder or" in refused("score", "photos", "-o", "s.parquet", "--label-from-folder", *OPTIONS)
    assert "here, so --limit" in refused("score", "photos", "-o", "s.parquet", "--limit", 3, *OPTIONS)


def test_a_missing_label_says_how_to_get_one_from_folders(photos):
    run("score", "photos", "-o", "s.parquet", *OPTIONS)
    for line in (
        ("filter", "s.parquet", "--keep-top", 1, "--per", "label", "--dry-run"),
        ("select", "s.parquet", "-b", 1, "--balance", "label", "--dry-run"),
        ("evaluate", "s.parquet", "--label", "label"),
        ("dedup", "s.parquet", "--label", "label", "--dry-run"),
    ):
        assert "no column 'label'" in refused(*line), line
        assert "column folder" in refused(*line), line
    assert "column folder" not in refused("filter", "s.parquet", "--keep-top", 1, "--per", "lable", "--dry-run")


def test_a_folder_of_images_where_a_table_is_expected_names_the_command(photos):
    assert "curate score photos -o" in refused("info", "photos")
    (photos / "empty").mkdir()
    assert "expected part-*.parquet" in refused("info", "empty")


@pytest.mark.parametrize("name", ["x.csv", "x.json", "x.png", "x.tar", "X.CSV"])
def test_a_name_of_another_kind_of_file_is_no_folder_of_parts(photos, name):
    before = sorted(path.name for path in photos.iterdir())
    line = refused("score", "photos", "-o", name, *OPTIONS)
    assert "scores are Parquet" in line
    assert line.endswith(f"for example {name[0]}.parquet")
    assert sorted(path.name for path in photos.iterdir()) == before


def test_scoring_a_scored_table_is_reported_in_one_line(photos):
    run("score", "photos", "-o", "s.parquet", *OPTIONS)
    said = run("score", "s.parquet", "-o", "again.parquet", *OPTIONS).stderr.splitlines()
    assert len([line for line in said if "scored table already" in line]) == 1
    assert not [line for line in said if line.startswith("your column")]
    assert pl.read_parquet("again.parquet")["status"].to_list() == ["ok"] * 4


def test_a_scored_table_that_names_no_images_is_refused_before_a_row_fails(photos):
    files = sorted((photos / "photos").rglob("*.png"))
    pq.write_table(pa.table({"image": [file.read_bytes() for file in files]}), "bytes.parquet")
    run("score", "bytes.parquet", "-o", "s.parquet", *OPTIONS)
    line = refused("score", "s.parquet", "-o", "again.parquet", *OPTIONS)
    assert "scored table without paths" in line
    assert "source of its images" in line
    assert not (photos / "again.parquet").exists()
