"""Images that have another name when a folder is cleaned again: they are known by their bytes."""

from pathlib import Path

import polars as pl
import pytest
from commandline import run
from PIL import Image
from planted_photos import clean, counts

from curate.cleaning.changes import compare

pytestmark = pytest.mark.usefixtures("few_copies")


def test_renamed_images_are_neither_new_nor_gone_and_keep_their_scores(workdir):
    before = {row["key"]: row for row in pl.read_parquet("out/steps/score.parquet").to_dicts()}
    Path("photos/sub").mkdir()
    now_of = {"coins.jpg": "sub/coins.jpg", "brick.jpg": "coffee.jpg", "coffee.jpg": "brick.jpg"}
    now_of |= {"text.jpg": "words.jpg", "china.jpg": "c.jpg"}
    for key, now in now_of.items():
        Path("photos", key).rename(f"photos/{now}.moving")
    for now in now_of.values():
        Path(f"photos/{now}.moving").rename(f"photos/{now}")
    Image.open("photos/chelsea.jpg").rotate(90).save("photos/turned.jpg")
    Path("photos/chelsea.jpg").unlink()  # renamed and edited
    printed = clean()
    changes = counts(clean("--json", "-q"))["changes"]
    assert changes is None
    lines = [line.split() for line in printed.stdout.splitlines()]
    assert [words[:2] for words in lines if words and words[0] in ("new", "gone", "renamed")] == [
        ["gone", "1"],
        ["new", "1"],
        ["gone", "1"],
        ["renamed", "5"],
    ]
    after = {row["key"]: row for row in pl.read_parquet("out/steps/score.parquet").to_dicts()}
    for key, now in now_of.items():
        assert after[now]["sha256"] == before[key]["sha256"]
        assert after[now]["embedding"] == before[key]["embedding"]
    assert run("verify", "out/subset.receipt.json").exit_code == 0


def test_images_are_matched_by_bytes_before_their_names():
    def outcomes(rows):
        columns = {"key": [], "decision": [], "rule": [], "reason": [], "sha256": []}
        for key, decision, sha256 in rows:
            for name, value in zip(columns, (key, decision, decision, "why", sha256), strict=True):
                columns[name].append(value)
        return pl.DataFrame(columns, schema_overrides={"sha256": pl.String})

    before = [("a", "keep", "A"), ("b", "drop", "B"), ("c", "keep", "C"), ("c2", "drop", "C"), ("e", "keep", "E")]
    now = [("b", "keep", "A"), ("a", "drop", "B"), ("c", "keep", "C"), ("d", "drop", "C"), ("e", "drop", "F")]
    changes = compare(outcomes(before), outcomes(now))
    assert (changes.new, changes.gone, changes.renamed, changes.kept) == (0, 0, 3, 0)
    assert changes.named == [("e", "why")]
    unknown = compare(outcomes([(*row[:2], None) for row in before]), outcomes(now))  # as another version wrote it
    assert (unknown.new, unknown.gone, unknown.renamed, unknown.kept) == (1, 1, 0, 1)
    again = compare(outcomes(before), outcomes([("a", "keep", "A"), ("z", "keep", "Z"), ("y", "keep", "A")]))
    assert (again.new, again.gone, again.renamed) == (2, 4, 0)
