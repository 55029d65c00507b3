"""Which copy a deduplication keeps, of real files: the one that lost least, or the preferred folder's."""

import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image, ImageDraw, ImageFont
from runs import SMALL
from typer.testing import CliRunner

from curate.cli import app
from curate.engines.score import score
from curate.policies.dedup.policy import dedup
from curate.policies.dedup.request import DedupRequest
from curate.policies.verify import verify

NAMES = ("astronaut", "chelsea", "coffee")
PHOTOS = Path(__file__).parents[4] / "examples" / "photos"


def scored(folder, checkpoint, out):
    score(folder, out, model=checkpoint, settings=SMALL)
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


def test_the_original_is_kept_and_no_group_keeps_a_worse_copy(copies, tmp_path):
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


def test_the_preferred_folder_is_kept_though_it_holds_a_worse_copy(copies, tmp_path):
    result = dedup(copies, tmp_path / "u.parquet", prefer="*_q10.jpg")
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


def meters(folder, n, *, first=0):
    """Displays that differ in their digits alone."""
    folder.mkdir(exist_ok=True)
    random = np.random.default_rng(1)
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
    folder = tmp_path_factory.mktemp("displays")
    return scored(meters(folder / "p", 20), tiny_checkpoint, folder / "s.parquet")


def test_a_large_group_just_above_the_threshold_is_said_and_its_pairs_are_written_to_judge(displays, tmp_path):
    said = CliRunner().invoke(app, ["dedup", str(displays), "-o", str(tmp_path / "u.parquet")])
    assert "template" in said.output
    assert "audit: " in said.output
    judged = (tmp_path / "u.audit.csv").read_text().splitlines()
    decisions = rows(tmp_path / "u.decisions.parquet")
    kept = {decisions[line.split(",")[1]]["decision"] for line in judged[1:]} | {
        decisions[line.split(",")[2]]["decision"] for line in judged[1:]
    }
    assert len(judged) > 4
    assert kept == {"keep", "drop"}
    assert verify(tmp_path / "u.receipt.json").identical
    judged = CliRunner().invoke(app, ["review", "verdicts", str(tmp_path / "u.audit.csv")])
    assert (judged.exit_code, "none" in judged.output) == (1, True)


def test_copies_of_photographs_are_no_such_group(copies, tmp_path):
    result = dedup(copies, tmp_path / "u.parquet")
    assert result.audit is None
    assert not (tmp_path / "u.audit.csv").exists()


def test_pairs_that_nobody_asked_for_never_replace_what_is_there(displays, tmp_path):
    (tmp_path / "u.audit.csv").write_text("mine")
    assert dedup(displays, tmp_path / "u.parquet").audit is None
    assert (tmp_path / "u.audit.csv").read_text() == "mine"
    assert dedup(displays, tmp_path / "u.parquet", overwrite=True).audit is not None
    (tmp_path / "u.audit.verdicts.jsonl").write_text("judged")
    assert dedup(displays, tmp_path / "u.parquet", overwrite=True).audit is None


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
    assert any("flat" in getattr(note, "why", "") for note in result.notes)
    assert verify(result.receipt).identical
    against = dedup(table, finder="embedding", against=_copy(table, tmp_path), only_against=True, dry_run=True)
    assert against.n_leaks == 2
    graph = dedup(table, tmp_path / "g.parquet", finder="embedding", graph=tmp_path / "graph.parquet")
    assert graph.dropped == 1


def _copy(table, folder):
    shutil.copy(table, folder / "copy.parquet")
    return folder / "copy.parquet"
