"""The images behind rows, from their uris or from what was scored."""

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from curate.manifest.contract import ReadError
from curate.tables.images import Images, images_by_key
from curate.tables.table import open_table
from curate.tables.writer import TableWriter
from scoring.errors import InputError


@pytest.fixture
def folder(tmp_path):
    """1,200 files, so that there are gaps to jump over."""
    (tmp_path / "images").mkdir()
    for number in range(1200):
        (tmp_path / "images" / f"{number:04}.png").write_bytes(b"image %d" % number)
    return tmp_path


def scored(folder, numbers, request=None, **columns):
    table = pa.table({"key": [f"{number:04}.png" for number in numbers], **columns})
    noted = {"kind": "scores"} if request is None else {"kind": "scores", "request": request}
    path = folder / f"t{len(list(folder.glob('t*.parquet')))}.parquet"
    with TableWriter(path, table.schema, noted) as writer:
        writer.write(table)
    return open_table(path)


def test_rows_are_found_by_key_and_come_in_the_order_of_the_source_with_their_own_bytes(folder):
    numbers = [900, 3, 1199, 5, 4, 700]
    images = Images.of(scored(folder, numbers), range(6), source=str(folder / "images"))
    for rows in ([0, 1, 2, 3, 4, 5], [2, 1], [], [4]):
        read = list(images.read(rows))
        assert [image.row for image in read] == sorted(rows, key=lambda row: numbers[row])
        assert {image.row: image.data for image in read} == {row: b"image %d" % numbers[row] for row in rows}
    assert images.data(5) == b"image 700"


def test_an_image_that_is_gone_or_another_one_now_is_a_problem_of_its_row(folder):
    digests = [hashlib.sha256(b"image %d" % number).hexdigest() for number in range(4)]
    table = scored(folder, range(4), sha256=digests, uri=[str(folder / "images" / f"{n:04}.png") for n in range(4)])
    (folder / "images" / "0001.png").unlink()
    (folder / "images" / "0002.png").write_bytes(b"another")
    read = {image.row: image for image in Images.of(table, range(4)).read(range(4))}
    assert [read[row].data for row in range(4)] == [b"image 0", None, None, b"image 3"]
    assert read[1].problem.startswith("missing: ")
    assert read[2].problem.startswith("changed: ")
    assert Images.of(table, [2]).data(2) == b"another"


def test_rows_without_an_image_are_refused_at_once_or_when_they_are_read(folder):
    source = str(folder / "images")
    with pytest.raises(InputError, match=r"'9999\.png' \(1 of 2"):
        Images.of(scored(folder, [1, 9999]), [0, 1], source=source)
    batch = pa.table({"key": ["0001.png", "none.png"]})
    read = images_by_key(batch, source=source)
    assert read("0001.png") == b"image 1"
    with pytest.raises(ReadError) as caught:
        read("none.png")
    assert caught.value.status == "missing"
    with pytest.raises(InputError, match="2 of 2"):
        images_by_key(pa.table({"key": ["x", "y"]}), source=source)


def test_a_source_is_read_as_the_table_notes_and_its_other_forms_as_usual(folder):
    names = ["0003.png", "0007.png"]
    keys = {"name": names, "key": ["a", "b"], "place": [f"images/{name}" for name in names], "file": ["x", "y"]}
    csv = "\n".join(",".join(row) for row in (keys, *zip(*keys.values(), strict=True)))
    (folder / "list.csv").write_text(csv)
    pq.write_table(pa.table({"key": names, "image": [b"one", b"two"]}), folder / "other.parquet")
    noted = {"model": "world", "key": "name", "path_column": "place", "root": str(folder)}
    for table, source, expected in (
        (scored(folder, [3, 7], noted), "list.csv", b"image 3"),
        (scored(folder, [3, 7], noted), "images", b"image 3"),
        (scored(folder, [3, 7], noted), "other.parquet", b"one"),
        (scored(folder, [3, 7], {**noted, "root": str(folder / "gone")}), "list.csv", b"image 3"),
    ):
        assert Images.of(table, [0, 1], source=str(folder / source)).data(0) == expected
    with pytest.raises(InputError, match="2 of 2"):
        Images.of(scored(folder, [3, 7]), [0, 1], source=str(folder / "list.csv"))
    with pytest.raises(InputError, match="expected str as key"):
        Images.of(scored(folder, [3], {"key": 5}), [0], source=str(folder / "images"))
