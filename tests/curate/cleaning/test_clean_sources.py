"""Lists, tables and several folders as the source of a cleaning."""

import shlex
import shutil
from pathlib import Path

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commandline import run
from PIL import Image
from planted_photos import counts, refused, states

from curate.cleaning.steps import command_of

pytestmark = pytest.mark.usefixtures("few_copies")
PHOTOS = Path(__file__).parents[3] / "examples" / "photos"


def test_paths_of_a_list_start_at_the_root_that_is_named(workdir):
    Path("names.csv").write_text("file\nbrick.jpg\ncoffee.jpg\n")
    typed = ["clean", "names.csv", "-o", "listed", "--model", "m.safetensors", "--root", "photos"]
    assert counts(run(*typed, "-q", "--json"))["kept"] == 2
    assert command_of(Path("listed")) == ["curate", *typed]


def test_several_folders_and_images_are_one_dataset_that_grows(workdir):
    for folder, name in (("a", "brick"), ("b", "coffee")):
        Path(folder).mkdir()
        shutil.copy(f"photos/{name}.jpg", folder)
    typed = ["clean", "a", "b", "-o", "new/both", "--model", "m.safetensors"]
    assert counts(run(*typed, "-q", "--json"))["images"] == 2
    assert command_of(Path("new/both")) == ["curate", *typed]
    typed[2:2] = ["photos/coins.jpg"]
    changes = counts(run(*typed, "-q", "--json"))["changes"]
    assert (changes["new"], changes["gone"], changes["renamed"]) == (1, 0, 0)
    assert set(pl.read_parquet("new/both/subset.parquet")["key"]) == {"a/brick.jpg", "b/coffee.jpg", "photos/coins.jpg"}
    refused(run("clean", "a", "new", "-o", "new/both"), "outside")


def test_an_image_that_changed_is_found_again_by_a_list_and_a_pattern_too(workdir):
    Path("few").mkdir()
    shutil.copy("photos/brick.jpg", "few")
    Path("names.txt").write_text("few/brick.jpg\n")
    for source in ("names.txt", "few/*.jpg"):
        typed = ["clean", source, "-o", "listed", "--model", "m.safetensors", "--overwrite", "-q"]
        assert states(run(*typed, "--json"))[0] == "done"
        assert states(run(*typed[:-2], "-q", "--json"))[0] == "up to date"
        Image.new("RGB", (90, 90), "red").save("few/brick.jpg")
        again = run(*typed[:-2], "-q", "--json")
        assert (states(again)[0], counts(again)["unusable"]) == ("done", 1)
        shutil.copy("photos/coffee.jpg", "few/brick.jpg")


def test_a_table_is_read_by_named_columns_and_the_next_command_finds_its_images(workdir):
    images = [Path(f"photos/{name}.jpg").read_bytes() for name in ("coffee", "rocket")]
    pq.write_table(pa.table({"id": ["a", "b"], "left": images, "right": [None, None]}), "i.parquet")
    typed = ["clean", "i.parquet", "-o", "read", "--model", "m.safetensors", "--key", "id", "--image-column", "left"]
    lines = run(*typed).stdout.splitlines()
    assert any("junk" in line and "50" in line for line in lines)
    assert run(*shlex.split(lines[-1].removeprefix("next: curate "))).exit_code == 0
    assert sorted(path.read_bytes() for path in Path("training").glob("*.jpg")) == sorted(images)
    assert command_of(Path("read")) == ["curate", *typed]


def test_a_list_that_names_an_image_twice_is_cleaned_by_the_numbers_of_its_rows(workdir):
    Path("twice.csv").write_text("shot,note\nbrick.jpg,1\nbrick.jpg,2\n")
    typed = ["clean", "twice.csv", "-o", "two", "--model", "m.safetensors", "--key", "#", "--path-column", "shot"]
    summary = counts(run(*typed, "--root", "photos", "-q", "--json"))
    assert (summary["copies_by"], summary["kept"]) == ({"bytes": 1}, 1)
    assert command_of(Path("two")) == ["curate", *typed, "--root", "photos"]


def test_the_next_command_of_a_subset_without_rows_exports_nothing(workdir):
    Path("plain").mkdir()
    Image.new("RGB", (64, 64), "red").save("plain/a.png")
    result = run("clean", "plain", "-o", "none", "--model", "m.safetensors")
    assert result.stdout.splitlines()[-1] == "next: curate issues none/steps/score.parquet"
