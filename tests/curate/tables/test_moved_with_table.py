"""Images that moved together with their table are found from where the table is now, and only the same images."""

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import curate
from curate.manifest.contract import ReadError
from curate.reporting.served.images import RowImages
from curate.tables.images import Images
from curate.tables.table import open_table
from curate.torch import SubsetDataset

NAMES = ("a.png", "x/b.png", "x/c.png")


@pytest.fixture
def place(tmp_path):
    """A folder that holds `photos` and, in `out`, a table of them."""
    folder = tmp_path / "before"
    (folder / "photos" / "x").mkdir(parents=True)
    (folder / "out").mkdir()
    rows = []
    for number, name in enumerate(NAMES):
        path = folder / "photos" / name
        Image.new("RGB", (40, 30), (80 * number, 90, 20)).save(path)
        rows.append({"key": name, "uri": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
    pq.write_table(pa.Table.from_pylist(rows), folder / "out" / "s.parquet")
    return folder


def images_of(table):
    """The problem of each image, empty where it was read."""
    opened = open_table(table)
    images = Images.of(opened, range(opened.n_rows), partial=True)
    return [image.problem for image in images.read(range(opened.n_rows))]


def test_images_are_read_where_they_moved_to_with_their_table(place):
    assert open_table(place / "out" / "s.parquet").moved is None
    now = place.rename(place.with_name("now"))
    table = now / "out" / "s.parquet"
    assert images_of(table) == [""] * 3
    assert RowImages(open_table(table), source=None)(1).problem == ""
    assert SubsetDataset(table)[2]["key"] == "x/c.png"
    curate.export(table, now / "copies", to="imagefolder")
    copies = {path.read_bytes() for path in (now / "copies").rglob("*.png")}
    assert copies == {(now / "photos" / name).read_bytes() for name in NAMES}
    curate.export(table, now / "list.txt", to="paths")
    assert (now / "list.txt").read_text().splitlines() == [str(now / "photos" / name) for name in NAMES]


def test_a_table_in_the_folder_of_its_images_finds_them(place):
    (place / "out" / "s.parquet").rename(place / "photos" / "s.parquet")
    moved = (place / "photos").rename(place / "pictures")
    assert images_of(moved / "s.parquet") == [""] * 3
    (moved / "s.parquet").rename(place / "out" / "s.parquet")
    assert images_of(place / "out" / "s.parquet") == ["missing: no such file"] * 3  # a folder of another name


def test_other_images_of_the_same_names_are_not_taken(place):
    now = place.rename(place.with_name("now"))
    for number, name in enumerate(NAMES):
        Image.new("RGB", (40, 30), (5, 5, number)).save(now / "photos" / name)
    assert images_of(now / "out" / "s.parquet") == ["missing: no such file"] * 3


def test_an_image_that_is_gone_alone_is_missing_and_a_link_up_leads_nowhere(place):
    now = place.rename(place.with_name("now"))
    (now / "photos" / NAMES[1]).unlink()
    table = open_table(now / "out" / "s.parquet")
    assert [bool(problem) for problem in images_of(now / "out" / "s.parquet")] == [False, True, False]
    rows = table.read().to_pylist()
    up = [{**row, "uri": f"/gone/../{place.parent.name}/now/photos/{row['key']}"} for row in rows]
    pq.write_table(pa.Table.from_pylist(up), now / "out" / "up.parquet")
    assert open_table(now / "out" / "up.parquet").moved is None
    with pytest.raises(ReadError):
        Images.of(open_table(now / "out" / "up.parquet"), [0]).data(0)
