"""Near copies are confirmed by thumbnails: images of one template stay, and their own copies go."""

import csv
import io
import json
import os
import threading
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import write_table
from PIL import Image, ImageDraw, ImageFont
from runs import SMALL

import curate
from curate.policies.dedup.grouping import confirmed
from curate.tables.signatures import Thumbnails, signature_array, thumbnail_array
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.images import Preprocessing, decode

STRICT = {"bytes": None, "signature": 0.99}
NUMBERS = ("AB 1234", "KX 7650", "ZT 0388", "QR 9417", "LM 2206", "DC 5871")


def plate(text, scene=3):
    coarse = np.random.default_rng(scene).integers(0, 256, (9, 12, 3), dtype=np.uint8)
    image = Image.fromarray(coarse).resize((320, 240), Image.Resampling.BICUBIC)
    pen = ImageDraw.Draw(image)
    pen.rectangle((100, 160, 220, 190), fill="white")
    pen.text((106, 162), text, fill="black", font=ImageFont.load_default(24))
    return image


def table_of(path, images, *, without=()):
    """A table of images, JPEG of a quality that follows from the key, as ``score`` writes their copies' columns."""
    decoded = []
    for image, quality in images.values():
        out = io.BytesIO()
        image.save(out, "JPEG", quality=quality)
        decoded.append(decode(out.getvalue(), Preprocessing()))
    columns = {
        "key": list(images),
        "status": ["ok"] * len(images),
        "sha256": [each.sha256 for each in decoded],
        "signature": signature_array([each.signature for each in decoded]),
        "thumbnail": thumbnail_array([each.thumbnail for each in decoded]),
    }
    return write_table(path, {name: values for name, values in columns.items() if name not in without})


def with_copies():
    images = {}
    for text in NUMBERS:
        image = plate(text)
        images |= {f"{text}.jpg": (image, 90), f"{text} again.jpg": (image, 90), f"{text} small.jpg": (image, 70)}
    return images


def dropped(result):
    rows = pq.read_table(result.decisions, columns=["key", "decision", "kept_key"]).to_pylist()
    return {row["key"]: row["kept_key"] for row in rows if row["decision"] == "drop"}


@pytest.mark.parametrize("finder", [None, STRICT])
def test_plates_of_one_car_stay_and_each_loses_its_own_copies(tmp_path, finder):
    path = table_of(tmp_path / "s.parquet", with_copies())
    result = curate.dedup(path, tmp_path / "u.parquet", finder=finder)
    gone = dropped(result)
    assert result.kept == len(NUMBERS)
    assert all(kept[:7] == key[:7] for key, kept in gone.items())
    reasons = pq.read_table(result.decisions)["reason"].to_pylist()
    n_alone = sum("in a part" in reason for reason in reasons)
    assert (n_alone > 0) == any(f"{n_alone} row" in note and "a part" in note for note in result.notes)
    assert curate.verify(result.receipt).identical


def test_small_groups_keep_images_of_a_template_and_not_versions_of_a_photograph(tmp_path):
    plates = {f"{text}.jpg": (plate(text), 90) for text in NUMBERS[:3]}
    result = curate.dedup(table_of(tmp_path / "s.parquet", plates), tmp_path / "u.parquet")
    assert result.kept == 3
    image = plate(NUMBERS[0])
    versions = {"a.jpg": (image, 90), "small.jpg": (image, 70), "dark.jpg": (image.point(lambda v: v * 0.93), 90)}
    versions["other number.jpg"] = (plate(NUMBERS[1]), 60)
    result = curate.dedup(table_of(tmp_path / "v.parquet", versions), tmp_path / "w.parquet")
    assert result.kept == 1


def test_pairs_of_a_template_wait_where_they_are_the_most_and_versions_of_photographs_go(tmp_path):
    """Six scenes with two numbers each, as two slices of a volume; then with seven copies, which are the most."""
    images = {f"{scene} {text}.jpg": (plate(text, scene), 90) for scene in range(6) for text in NUMBERS[:2]}
    result = curate.dedup(table_of(tmp_path / "s.parquet", images), tmp_path / "u.parquet")
    assert (result.dropped, result.to_review) == (0, 6)
    assert curate.verify(result.receipt).identical
    for scene in range(10, 17):
        images |= {f"{scene} {quality}.jpg": (plate(NUMBERS[2], scene), quality) for quality in (60, 90)}
    result = curate.dedup(table_of(tmp_path / "t.parquet", images), tmp_path / "v.parquet")
    assert (result.dropped, result.to_review) == (6 + 7, 0)


@pytest.mark.parametrize(
    ("option", "turned"), [("mirrored", Image.Transpose.FLIP_LEFT_RIGHT), ("rotated", Image.Transpose.ROTATE_90)]
)
def test_a_turned_copy_is_confirmed_in_its_view(tmp_path, option, turned):
    images = {"a.jpg": (plate(NUMBERS[0]), 90), "turned.jpg": (plate(NUMBERS[0]).transpose(turned), 80)}
    images["other.jpg"] = (plate(NUMBERS[1]).transpose(turned), 80)
    path = table_of(tmp_path / "s.parquet", images)
    result = curate.dedup(path, tmp_path / "u.parquet", finder=STRICT, **{option: True})
    assert (len(dropped(result)), result.kept) == (1, 2)
    assert "other.jpg" not in dropped(result)


def test_no_row_is_dropped_for_an_image_of_the_same_template_in_another_table(tmp_path):
    old = table_of(tmp_path / "old.parquet", {"old.jpg": (plate(NUMBERS[0]), 90)})
    images = {"copy.jpg": (plate(NUMBERS[0]), 70), "other.jpg": (plate(NUMBERS[1]), 90)}
    new = table_of(tmp_path / "new.parquet", images)
    result = curate.dedup(new, tmp_path / "u.parquet", against=old, finder=STRICT)
    assert set(dropped(result)) == {"copy.jpg"}
    bare = table_of(tmp_path / "bare.parquet", images, without=("thumbnail",))
    result = curate.dedup(bare, tmp_path / "v.parquet", against=old, finder=STRICT)
    assert (dropped(result), result.to_review) == ({}, 2)
    result = curate.dedup(old, tmp_path / "w.parquet", against=bare, finder=STRICT)
    assert any("1 near copy" in note and f"{bare} has no thumbnails" in note for note in result.notes)


def drawing(grey):
    """A crossed box with a faint dot."""
    image = Image.new("RGB", (200, 160), "white")
    pen = ImageDraw.Draw(image)
    pen.rectangle((30, 30, 150, 120), outline="black", width=5)
    pen.line((30, 30, 150, 120), fill="navy", width=5)
    pen.rectangle((20, 140, 22, 142), fill=(grey, grey, grey))
    return image


@pytest.mark.parametrize("report_only", [False, True])
def test_a_drawing_leaks_from_its_own_copy_and_from_no_other_drawing(tiny_checkpoint, tmp_path, report_only):
    """The smaller copy is less similar by signature than the drawing with another dot, of the same size."""
    for folder in ("new", "other", "both"):
        (tmp_path / folder).mkdir()
    drawing(225).save(tmp_path / "new" / "mine.png")
    for folder in ("other", "both"):
        drawing(180).save(tmp_path / folder / "unlike.png")
    drawing(225).resize((100, 80)).save(tmp_path / "both" / "small.png")
    tables = {name: tmp_path / f"{name}.parquet" for name in ("new", "other", "both")}
    for name, path in tables.items():
        curate.score(tmp_path / name, path, model=tiny_checkpoint, **SMALL)
    read = [row for path in tables.values() for row in pq.read_table(path, columns=["key", "signature"]).to_pylist()]
    unit = {row["key"]: np.frombuffer(row["signature"], np.int8)[:255].astype(float) for row in read}
    cosine = {key: each @ unit["mine.png"] / np.linalg.norm(each) for key, each in unit.items()}
    assert cosine["unlike.png"] > cosine["small.png"]
    for name, leaks in (("other", []), ("both", ["small.png"])):
        out = tmp_path / f"{name}_out.parquet"
        result = curate.dedup(tables["new"], out, against=tables[name], report_only=report_only)
        lines = list(csv.DictReader(result.leaks.read_text(encoding="utf-8-sig").splitlines()))
        assert [line["other_key"] for line in lines] == leaks
        assert (result.n_leaks, result.to_review) == (len(leaks), 0)
        assert result.dropped == (0 if report_only else len(leaks))
        assert curate.verify(result.receipt).identical


def test_a_receipt_from_before_thumbnails_still_passes(tmp_path):
    path = table_of(tmp_path / "s.parquet", with_copies(), without=("thumbnail",))
    result = curate.dedup(path, tmp_path / "u.parquet", finder={"bytes": None, "signature": 0.95})
    (rule,) = json.loads(result.receipt.read_text())["policy"]
    assert "confirmed" not in rule  # an earlier version had no such field, and verify compares the rule


def test_thumbnails_of_some_rows(tmp_path):
    values = np.random.default_rng(0).integers(0, 256, (5, 4096), dtype=np.uint8)
    path = write_table(tmp_path / "s.parquet", {"thumbnail": thumbnail_array([*values[:3], None, values[4]])})
    some = Thumbnails.read(open_table(path), np.array([1, 3, 4]))
    assert (some.values[[0, 2]] == values[[1, 4]]).all()
    assert some.known.tolist() == [True, False, True]


@pytest.mark.parametrize("values", [[b"short"], [b"x" * 4095, b"x" * 4097], ["x" * 4096], [1]])
def test_a_column_that_holds_no_thumbnails_is_refused(tmp_path, values):
    path = write_table(tmp_path / "odd.parquet", {"thumbnail": pa.array(values)})
    with pytest.raises(InputError, match="thumbnail"):
        Thumbnails.read(open_table(path), np.arange(len(values)))


def test_machines_of_many_cores_do_not_compare_in_a_thread_each(monkeypatch):
    threads = set()

    def change(first, second, at, *, most):
        threads.add(threading.get_ident())
        time.sleep(0.02)
        return np.zeros(len(second))

    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(64), raising=False)
    monkeypatch.setattr(confirmed, "local_change", change)
    monkeypatch.setattr(confirmed, "AT_ONCE", 1)
    rows = np.arange(64)
    some = Thumbnails(rows, np.zeros((64, 4096), np.uint8), np.ones(64, bool))
    assert not confirmed._changes(some, rows, some, rows, np.zeros(64, np.int64)).any()
    assert 1 < len(threads) <= 16
