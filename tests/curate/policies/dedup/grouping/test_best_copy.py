"""Which copy a deduplication keeps, of real files: the one that lost least, or the preferred folder's."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from made import same_thumbnails, signed, write_table
from PIL import Image, ImageDraw, ImageFont
from runs import SMALL
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.score import score
from curate.policies.dedup.policy import dedup
from curate.policies.dedup.request import DedupRequest
from curate.policies.verify import verify
from curate.reporting.review import read_findings
from curate.reporting.write import report
from curate.reviewing.serve import review

NAMES = ("astronaut", "chelsea", "coffee")
PHOTOS = Path(__file__).parents[5] / "examples" / "photos"


def scored(folder, checkpoint, out):
    score(folder, out, model=checkpoint, **SMALL)
    return out


@pytest.fixture(scope="module")
def copies(tiny_checkpoint, tmp_path_factory):
    """Photographs with corrupted copies of the same size, and each once more in a folder."""
    folder = tmp_path_factory.mktemp("copies")
    photos = folder / "p"
    (photos / "sorted").mkdir(parents=True)
    for name in NAMES:
        picture = Image.open(PHOTOS / f"{name}.jpg").convert("RGB")
        picture.thumbnail((160, 160))
        picture.save(photos / f"{name}_original.png")
        shutil.copy(photos / f"{name}_original.png", photos / "sorted" / f"{name}.png")
        picture.save(photos / f"{name}_q10.jpg", quality=10)
        picture.convert("L").save(photos / f"{name}_grey.jpg", quality=95)
        picture.convert("1").save(photos / f"{name}_1bit.png")
        picture.quantize(8).save(photos / f"{name}_8colours.png")
    return scored(photos, tiny_checkpoint, folder / "s.parquet")


def rows(path):
    return {row["key"]: row for row in pq.read_table(path).to_pylist()}


def test_the_original_is_kept_and_no_group_keeps_a_lower_quality_copy(copies, tmp_path):
    result = dedup(copies, tmp_path / "u.parquet")
    kept = rows(result.subset)
    originals = {f"{name}_original.png" for name in NAMES} | {f"sorted/{name}.png" for name in NAMES}
    assert {key for key, row in kept.items() if row["format"] == "png" and row["quality_colours"] > 256} <= originals
    assert len(set(kept) & originals) == len(NAMES)
    assert result.n_lower == 0
    assert not any(row["lower_quality"] for row in pq.read_table(result.groups).to_pylist())
    assert verify(result.receipt).identical


def test_the_reason_names_what_was_done_to_a_copy(copies, tmp_path):
    reasons = {key: row["reason"] for key, row in rows(dedup(copies, tmp_path / "u.parquet").decisions).items()}
    assert "JPEG quality 10" in reasons["astronaut_q10.jpg"]
    assert "grey" in reasons["chelsea_grey.jpg"]
    assert "two colours" in reasons["coffee_1bit.png"]


def test_the_preferred_folder_is_kept_though_it_holds_a_lower_quality_copy(copies, tmp_path):
    result = dedup(copies, tmp_path / "u.parquet", finder={"bytes": None, "signature": 0.95}, prefer="*_q10.jpg")
    kept = {key for key in rows(result.subset) if not key.endswith(("8colours.png", "1bit.png"))}
    assert kept == {f"{name}_q10.jpg" for name in NAMES}
    assert result.n_lower == len(NAMES)
    assert verify(result.receipt).identical
    result = dedup(copies, dry_run=True, prefer=["sorted/*", "*_q10.jpg"])
    assert result.n_lower == 0


def test_equal_files_in_several_folders_are_named_with_the_option(copies):
    said = CliRunner().invoke(app, ["dedup", str(copies), "--dry-run"]).output
    assert "--prefer" in said
    said = CliRunner().invoke(app, ["dedup", str(copies), "--dry-run", "--prefer", "sorted/*"]).output
    assert "3 dropped files" not in said
    assert "no group keeps" in said


def test_leaks_name_what_was_done_too(copies, tmp_path):
    table = pq.read_table(copies)
    grey = table.filter([key.endswith("_grey.jpg") for key in table["key"].to_pylist()])
    pq.write_table(grey, tmp_path / "grey.parquet")
    result = dedup(tmp_path / "grey.parquet", tmp_path / "u.parquet", against=copies, finder="signature")
    assert result.n_leaks == len(NAMES)
    others = table.filter([key.endswith("_original.png") for key in table["key"].to_pylist()])
    pq.write_table(others, tmp_path / "others.parquet")
    result = dedup(
        tmp_path / "grey.parquet", tmp_path / "v.parquet", against=tmp_path / "others.parquet", finder="signature"
    )
    assert result.leaks.read_text().count("grey, JPEG quality") == len(NAMES)
    assert verify(result.receipt).identical


def test_a_rule_of_an_earlier_receipt_reads_and_decides_as_before():
    rule = DedupRequest({"bytes": 1.0}).to_json()
    for name in ("prefer", "without_flat", "facts"):
        del rule[name]
    request = DedupRequest.from_json(rule)
    assert (request.prefer, request.without_flat, request.facts) == ((), False, ())
    assert DedupRequest.from_json(request.to_json()) == request


def meters(folder, n, *, first=0, seed=1):
    """Displays that differ in their digits alone."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(seed)
    for number in range(first, first + n):
        picture = Image.new("RGB", (150, 100), (200, 200, 205))
        draw = ImageDraw.Draw(picture)
        draw.rounded_rectangle([10, 20, 140, 80], 6, fill=(25, 25, 25))
        text = f"{random.integers(0, 999999):06d}"
        draw.text((22, 32), text, fill="white", font=ImageFont.load_default(size=30))
        picture.save(folder / f"meter_{number:02}.png")
    return folder


@pytest.fixture(scope="module")
def displays(tiny_checkpoint, tmp_path_factory):
    """Twenty displays, and the fifth and sixth again: the same file, and the same image as a JPEG."""
    folder = tmp_path_factory.mktemp("displays")
    made = meters(folder / "p", 20)
    shutil.copy(made / "meter_05.png", made / "again_05.png")
    Image.open(made / "meter_06.png").save(made / "again_06.jpg", quality=95)
    return scored(made, tiny_checkpoint, folder / "s.parquet")


@pytest.fixture(scope="module")
def old_displays(displays):
    """The same table as an earlier version wrote it, without thumbnails."""
    path = displays.with_name("old.parquet")
    table = pq.read_table(displays)
    pq.write_table(table.drop_columns(["thumbnail"]), path)
    return path


def unit_signatures(table):
    """The signatures as unit vectors, by key."""
    read = pq.read_table(table, columns=["key", "signature"]).to_pydict()
    unit = np.stack([np.frombuffer(each, np.int8) for each in read["signature"]]).astype(float)
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    return dict(zip(read["key"], unit, strict=True))


def test_displays_of_one_template_are_kept_and_their_copies_dropped(displays, tmp_path):
    decisions = decided(displays, tmp_path)
    kept = {key for key, row in decisions.items() if row["decision"] == "keep"}
    assert len(kept) == len(rows(tmp_path / "u.parquet")) == 20
    assert {"meter_05.png", "again_05.png"} - kept
    assert {"meter_06.png", "again_06.jpg"} - kept
    assert verify(tmp_path / "u.receipt.json").identical


def test_near_copies_in_a_table_without_thumbnails_are_kept_until_reviewed(old_displays, tmp_path):
    said = CliRunner().invoke(app, ["dedup", str(old_displays), "-o", str(tmp_path / "u.parquet")])
    assert "no thumbnails" in said.output
    decisions, unit = rows(tmp_path / "u.decisions.parquet"), unit_signatures(old_displays)
    dropped = {key for key, row in decisions.items() if row["decision"] == "drop"}
    assert len(dropped & {"meter_05.png", "again_05.png"}) == len(dropped) == 1
    waiting = {key: row for key, row in decisions.items() if row["rule"] == "review"}
    assert len(waiting) >= 15
    assert all(unit[key] @ unit[row["kept_key"]] >= 0.95 for key, row in waiting.items())
    assert all(row["group"] is not None and "until reviewed" in row["reason"] for row in waiting.values())
    receipt = json.loads((tmp_path / "u.receipt.json").read_text())
    assert (receipt["to_review"], receipt["counts"]["dropped"]) == (len(waiting), 1)
    assert verify(tmp_path / "u.receipt.json").identical
    groups = pq.read_table(tmp_path / "u.groups.parquet").to_pylist()
    assert not any(group["conflict"] or group["lower_quality"] for group in groups)


def test_verdicts_settle_what_waits_and_unjudged_rows_still_wait(old_displays, tmp_path):
    waiting = [key for key, row in decided(old_displays, tmp_path).items() if row["rule"] == "review"]
    server = review(old_displays, [tmp_path / "u.parquet"], verdicts=tmp_path / "v.verdicts.jsonl", reviewer="ann")
    under_review = server.site.review
    try:
        group = next(each for each in under_review.state()["queue"] if each["kind"] == "near-copy")
        items = {item["key"]: item["row"] for item in under_review.group(group["id"])["items"]}
        assert (set(items), group["question"]) == (set(waiting), "copy")
        seq = under_review.state()["seq"]
        under_review.act(seq, "keep", group["id"], rows=[items[key] for key in [*waiting[:3], *waiting[-2:]]])
        rest = next(each for each in under_review.state()["queue"] if each["kind"] == "near-copy")
        seq = under_review.state()["seq"]
        under_review.act(seq, "drop", rest["id"], rows=[items[key] for key in waiting[:3]])
    finally:
        server.server_close()
    after = decided(old_displays, tmp_path, verdicts=tmp_path / "v.verdicts.jsonl")
    assert [after[key]["rule"] for key in waiting[:3]] == ["review"] * 3
    assert {after[key]["decision"] for key in waiting[:-2]} == {"keep"}
    assert {after[key]["decision"] for key in waiting[-2:]} == {"drop"}
    assert verify(tmp_path / "u.receipt.json").identical


def test_what_waits_at_a_stricter_threshold_is_listed_once(old_displays, tmp_path):
    result = dedup(old_displays, tmp_path / "u.parquet", finder={"signature": 0.96})
    report(old_displays, result.subset, out=tmp_path / "r.html", findings=tmp_path / "f")
    near = [line for line in read_findings(tmp_path / "f") if line["kind"] == "near-copy"]
    assert result.to_review > 0
    assert len({line["key"] for line in near}) == len(near) > result.to_review
    assert sum("by signature (cosine" in line["finding"] for line in near) >= len(near) - 2


def decided(table, folder, **options):
    return rows(dedup(table, folder / "u.parquet", overwrite=True, **options).decisions)


def test_a_threshold_that_was_chosen_drops_displays_and_they_are_named(displays, tmp_path):
    result = dedup(displays, tmp_path / "u.parquet", finder={"bytes": None, "signature": 0.95})
    assert (result.kept, result.to_review) == (22 - result.dropped, 0)
    assert result.dropped >= 15
    (loose,) = [note for note in result.notes if "just above the threshold" in note]
    assert "are dropped" in loose
    assert verify(result.receipt).identical


def test_displays_that_another_table_has_others_of_are_no_leaks(displays, tiny_checkpoint, tmp_path):
    folder = meters(tmp_path / "p", 8, first=30, seed=2)
    shutil.copy(displays.parent / "p" / "meter_05.png", folder / "old.png")
    new = scored(folder, tiny_checkpoint, tmp_path / "new.parquet")
    result = dedup(new, tmp_path / "u.parquet", against=displays)
    gone = {key for key, row in rows(result.decisions).items() if row["decision"] == "drop"}
    assert (gone, result.n_leaks, result.to_review) == ({"old.png"}, 1, 0)
    assert verify(result.receipt).identical


def test_copies_of_photographs_do_not_wait(copies, tmp_path):
    result = dedup(copies, tmp_path / "u.parquet")
    waiting = [key for key, row in rows(result.decisions).items() if row["rule"] == "review"]
    assert all(key.endswith(("_1bit.png", "_8colours.png", "_q10.jpg")) for key in waiting)
    assert result.facts()["to_review"] == len(waiting)


def test_pairs_just_above_a_threshold_wait_where_most_are_of_one_template(tmp_path):
    signatures = np.zeros((24, 255))
    signatures[:12, 0] = 0.97**0.5
    for pair in range(12):
        signatures[2 * pair : 2 * pair + 2, 1 + pair] = (0.022 if pair < 6 else 0.992) ** 0.5
    signatures[range(24), range(20, 44)] = 0.008**0.5
    table = {}
    for n in (14, 24):  # six pairs of one template with one other pair, and with six
        write_table(
            tmp_path / f"{n}.parquet", {"signature": signed(np.rint(127 * signatures[:n])), **same_thumbnails(n)}
        )
        table[n] = dedup(tmp_path / f"{n}.parquet", tmp_path / f"{n}u.parquet", finder={"signature": 0.99})
    assert (table[14].dropped, table[14].to_review) == (0, 7)
    assert (table[24].dropped, table[24].to_review) == (6, 6)
    assert verify(table[14].receipt).identical


def test_a_strict_threshold_drops_no_image_of_another_light_or_pale_colour(tiny_checkpoint, tmp_path):
    (tmp_path / "p").mkdir()
    for name, fill in (("brown", (202, 192, 184)), ("blue", (187, 194, 205)), ("dark", (90, 84, 79))):
        picture = Image.new("RGB", (128, 128), "white")
        ImageDraw.Draw(picture).regular_polygon((64, 60, 50), 6, fill=fill)
        picture.save(tmp_path / "p" / f"{name}.png")
        picture.resize((64, 64)).save(tmp_path / "p" / f"{name}_copy.jpg", quality=80)
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    strict, usual = (dedup(table, finder={"signature": least}, dry_run=True) for least in (0.99, 0.95))
    assert (strict.kept - strict.to_review, usual.kept) == (3, 1)


def test_a_strict_threshold_drops_no_file_of_several_images_for_its_first(tiny_checkpoint, tmp_path):
    (tmp_path / "p").mkdir()
    cover, *pages = (Image.open(PHOTOS / f"{name}.jpg").convert("RGB").resize((96, 96)) for name in NAMES)
    for number, page in enumerate(pages):
        cover.save(tmp_path / f"p/report{number}.tif", save_all=True, append_images=[page])
    shutil.copy(tmp_path / "p/report1.tif", tmp_path / "p/report1_again.tif")
    photo = Image.open(PHOTOS / f"{NAMES[1]}.jpg").convert("RGB").resize((128, 128))
    photo.save(tmp_path / "p/camera.jpg", "MPO", save_all=True, append_images=[photo.resize((32, 32))], quality=95)
    photo.resize((96, 96)).save(tmp_path / "p/small.jpg", quality=90)
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    strict, usual = (dedup(table, finder={"bytes": None, "signature": least}, dry_run=True) for least in (0.99, 0.95))
    assert (strict.kept, strict.dropped_by["bytes"], usual.kept) == (3, 1, 2)
    assert sum(pq.read_table(table)["n_frames"].to_pylist()) == 2 + 1 + 3 * 2


def test_no_drawing_is_dropped_for_another_of_its_size(tiny_checkpoint, tmp_path):
    """An icon in another shade or with a dot; stored again without loss, in WebP or smaller, they are copies."""
    (tmp_path / "p").mkdir()
    for name, fill, word in (("red", (180, 40, 40), ""), ("red_dot", (180, 40, 40), "."), ("rust", (186, 46, 38), "")):
        picture = Image.new("RGB", (128, 128), "white")
        pen = ImageDraw.Draw(picture)
        pen.regular_polygon((64, 60, 50), 6, fill=fill)
        pen.text((60, 112), word, fill="black")
        picture.save(tmp_path / "p" / f"{name}.png")
        picture.save(tmp_path / "p" / f"{name}.bmp")
    picture.resize((64, 64)).save(tmp_path / "p" / "small.png")
    picture.save(tmp_path / "p" / "lossy.webp", quality=80)
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    strict, usual = (dedup(table, finder={"signature": least}, dry_run=True) for least in (0.99, 0.95))
    assert (strict.kept, usual.kept) == (3, 1)
    assert dedup(table, finder={"signature": None}, dry_run=True).kept == 3  # the default, and no threshold was typed


def test_diagrams_of_other_widths_are_kept_and_their_reduced_copies_dropped(tiny_checkpoint, tmp_path):
    """Two boxes joined by a line, of which the words decide the width; in small groups too."""
    (tmp_path / "p").mkdir()
    for words in ("Reader", "Writer2"):
        diagram = Image.new("RGB", (60 + 22 * len(words), 160), "white")
        pen = ImageDraw.Draw(diagram)
        for top in (10, 100):
            pen.rectangle((10, top, diagram.width - 10, top + 50), outline="black", width=3)
            pen.text((24, top + 8), words if top == 100 else "Base", fill="black", font=ImageFont.load_default(32))
        pen.line((diagram.width // 2, 60, diagram.width // 2, 100), fill="navy", width=3)
        diagram.save(tmp_path / "p" / f"{words}.png")
        diagram.resize((diagram.width * 3 // 4, 120)).save(tmp_path / "p" / f"{words}_small.png")
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    kept, typed = (dedup(table, finder={"signature": least}, dry_run=True).kept for least in (None, 0.9))
    assert (kept, typed) == (2, 1)


def test_flat_images_are_not_compared_by_embedding(tiny_checkpoint, tmp_path):
    folder = tmp_path / "p"
    folder.mkdir()
    for number in range(8):
        Image.new("RGB", (64, 64), (250 - number, 250, 250)).save(folder / f"flat{number}.png")
    shutil.copy(folder / "flat0.png", folder / "flat0-again.png")
    Image.open(PHOTOS / "chelsea.jpg").resize((90, 60)).save(folder / "cat.png")
    Image.open(PHOTOS / "chelsea.jpg").resize((90, 60)).save(folder / "cat.jpg", quality=95)
    table = scored(folder, tiny_checkpoint, tmp_path / "s.parquet")
    result = dedup(table, tmp_path / "u.parquet", finder={"bytes": None, "embedding": 0.9})
    gone = {key for key, row in rows(result.decisions).items() if row["decision"] == "drop"}
    assert {key[:3] for key in gone} == {"cat", "fla"}
    assert len(gone) == 2
    assert any("flat" in note for note in result.notes)
    assert verify(result.receipt).identical
    against = dedup(table, finder="embedding", against=_copy(table, tmp_path), only_against=True, dry_run=True)
    assert against.n_leaks == 2


def _copy(table, folder):
    shutil.copy(table, folder / "copy.parquet")
    return folder / "copy.parquet"


def test_equal_drawings_are_copies_though_another_has_nearly_their_thumbnail(tiny_checkpoint, tmp_path):
    drawing = np.full((640, 640, 3), 255, np.uint8)
    drawing[150:450, 150:180], drawing[300:330, 150:520], drawing[500:570, 230:450] = 0, 0, (200, 0, 0)
    spots = drawing.copy()
    for y in (480, 520, 560):
        spots[y : y + 4, 480:484] = 253
    (tmp_path / "p").mkdir()
    Image.fromarray(drawing).save(tmp_path / "p" / "a.png", compress_level=0)
    for level in (3, 6, 9):
        Image.fromarray(spots).save(tmp_path / "p" / f"b{level}.png", compress_level=level)
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    gone = {key for key, row in decided(table, tmp_path).items() if row["decision"] == "drop"}
    assert len(gone) == 2
    assert "a.png" not in gone


def test_a_part_that_differs_waits_where_no_loss_of_the_file_explains_it(tiny_checkpoint, tmp_path):
    """A photograph with and without a name, as PNG; its copies are a JPEG, that as PNG, and a smaller PNG."""
    photo = Image.open(PHOTOS / "chelsea.jpg").convert("RGB").resize((240, 160))
    named = photo.copy()
    ImageDraw.Draw(named).text((10, 120), "Chelsea", fill="white", font=ImageFont.load_default(20))
    for kind in ("png", "jpg"):
        (tmp_path / kind).mkdir()
        for name, image in (("photo", photo), ("named", named)):
            image.save(tmp_path / kind / f"{name}.{kind}", quality=95)
    Image.open(tmp_path / "jpg" / "named.jpg").save(tmp_path / "png" / "named_noisy.png")
    named.resize((120, 80)).save(tmp_path / "png" / "named_small.png")
    named.save(tmp_path / "png" / "named.jpg", quality=60)
    for kind, waiting in (("png", 1), ("jpg", 0)):
        table = scored(tmp_path / kind, tiny_checkpoint, tmp_path / f"{kind}.parquet")
        result = dedup(table, dry_run=True)
        assert (result.to_review, result.kept) == (waiting, 1 + waiting)


def test_a_jpeg_of_another_drawing_waits_and_its_own_goes(tiny_checkpoint, tmp_path):
    first = Image.open(meters(tmp_path / "m", 1) / "meter_00.png")
    second = first.copy()
    ImageDraw.Draw(second).rectangle((60, 40, 64, 56), fill="white")
    (tmp_path / "p").mkdir()
    first.save(tmp_path / "p" / "first.png")
    first.save(tmp_path / "p" / "again.jpg", quality=50)
    second.save(tmp_path / "p" / "second.jpg", quality=50)
    table = scored(tmp_path / "p", tiny_checkpoint, tmp_path / "s.parquet")
    decisions = decided(table, tmp_path, prefer="*.png")
    assert {key: (row["decision"], row["rule"] == "review") for key, row in decisions.items()} == {
        "first.png": ("keep", False),
        "again.jpg": ("drop", False),
        "second.jpg": ("keep", True),
    }
