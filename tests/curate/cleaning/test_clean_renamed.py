"""Images that have another name when a folder is cleaned again: they are known by their bytes."""

import json
from pathlib import Path

import polars as pl
import pytest
from commandline import run
from PIL import Image
from planted_photos import clean, counts
from reviewed_table import act, queue, serving

from curate.cleaning.changes import compare, note_renamed
from curate.policies.verdicts import VerdictFile, read_verdicts
from scoring.errors import InputError

pytestmark = pytest.mark.usefixtures("few_copies")
NUMBERS = ("images", "gone", "unreadable", "unusable", "copies", "dropped_in_review", "kept", "to_review")


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
    (junk,) = (line for line in printed.stdout.splitlines() if "for junk" in line)
    assert "--overwrite" in junk  # the first search was among other images
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


def test_what_was_decided_in_review_is_of_the_image_and_not_of_its_name(workdir):
    clean()
    with serving("out", reviewer="ann") as server:
        groups = queue(server)
        (copies,) = (each for each in groups if each["words"] == "equal files")
        act(server, "drop", groups[0]["id"])
        act(server, "keep", copies["id"])
    before = counts(clean("--json"))
    decided = {key for key, each in read_verdicts("out/subset.verdicts.jsonl").decisions().items() if each.drop}
    assert decided
    kept = pl.read_parquet("out/subset.parquet").select("sha256").sort("sha256")
    Path("photos").rename("inside")
    Path("photos").mkdir()
    Path("inside").rename("photos/inside")
    for _ in range(2):  # the second time nothing is renamed
        again = counts(clean("--json"))
        assert [again[name] for name in NUMBERS] == [before[name] for name in NUMBERS]
        assert pl.read_parquet("out/subset.parquet").select("sha256").sort("sha256").equals(kept)
        lines = Path("out/subset.verdicts.jsonl").read_text().splitlines()
        assert sum('"rename"' in line for line in lines) == 1
    now = {key for key, each in read_verdicts("out/subset.verdicts.jsonl").decisions().items() if each.drop}
    assert now == {f"inside/{key}" for key in decided}
    with serving("out", reviewer="ann") as server:
        assert groups[0]["id"] not in {each["id"] for each in queue(server)}
        act(server, "undo")
        act(server, "undo")
    assert counts(clean("--json"))["dropped_in_review"] is None


def test_verdicts_follow_renamed_images_where_the_steps_are_run_from_their_file(workdir):
    clean()
    with serving("out", reviewer="ann") as server:
        act(server, "drop", queue(server)[0]["id"])
    clean()
    kept = pl.read_parquet("out/subset.parquet").select("sha256").sort("sha256")
    for path in [*Path("photos").iterdir()]:
        path.rename(path.with_name(f"new-{path.name}"))
    for _ in range(2):
        assert run("run", "out/curate.toml").exit_code == 0
        assert all(key.startswith("new-") for key in read_verdicts("out/subset.verdicts.jsonl").decisions())
        assert pl.read_parquet("out/subset.parquet").select("sha256").sort("sha256").equals(kept)
    assert counts(clean("--json"))["changes"]["renamed"] == len([*Path("photos").iterdir()])


def test_a_rename_moves_keys_and_compared_images_and_one_that_is_taken_back_counts(tmp_path):
    file, images = VerdictFile(tmp_path / "v.verdicts.jsonl", "ann", {}), ("X" * 16, "Y" * 16)
    file.append("drop", question="copy", keys=("a", "b"), images=images, beside=("b", "c"))
    keys = []
    for of in (images, images[::-1]):
        file.append("rename", keys=("a", "b"), images=of, beside=("b", "a"))
        keys.append(next((line.keys, line.beside) for line in file.verdicts.live() if line.verdict == "drop"))
    assert keys == [(("b", "a"), ("a", "c")), (("a", "b"), ("b", "c"))]


@pytest.mark.parametrize("after", ["b", "a", "c"])
def test_an_image_that_is_renamed_again_after_a_run_that_was_cut_short_keeps_its_verdict(tmp_path, after):
    def scores(*rows):
        pl.DataFrame(rows, ["key", "sha256"], orient="row").with_columns(status=pl.lit("ok")).write_parquet(
            tmp_path / "steps/score.parquet"
        )

    digests = {name: name.upper() * 64 for name in "abx"}
    (tmp_path / "steps").mkdir()
    outcomes = pl.DataFrame({"key": list("abx"), "sha256": [digests[name] for name in "abx"]})
    outcomes.with_columns(decision=pl.lit("keep"), rule=pl.lit(None, pl.String), reason=pl.lit("why")).write_parquet(
        tmp_path / "steps/outcomes.parquet"
    )
    file = VerdictFile(tmp_path / "subset.verdicts.jsonl", "ann", {})
    file.append("drop", question="copy", keys=("a",), images=("A" * 16,), beside=("x",))
    for _ in range(2):  # a and b are swapped, and the run ends early twice
        scores(("b", digests["a"]), ("a", digests["b"]), ("x", digests["x"]))
        note_renamed(tmp_path)
    scores((after, digests["a"]), ("y", digests["x"]), *([("a", digests["b"])] if after != "a" else []))
    note_renamed(tmp_path)
    (line,) = (line for line in read_verdicts(file.path).live() if line.verdict == "drop")
    assert (line.keys, line.beside) == ((after,), ("y",))


@pytest.mark.parametrize("line", [{"verdict": "rename", "keys": ["a"], "images": ["X"]}, {"verdict": "other"}])
def test_a_damaged_line_of_verdicts_is_named(tmp_path, line):
    path = tmp_path / "v.verdicts.jsonl"
    path.write_text(json.dumps({"session": "s", "n": 1, "reviewer": "ann", "when": "", **line}) + "\n")
    with pytest.raises(InputError, match=r"line 1 of .*v\.verdicts\.jsonl"):
        read_verdicts(path)


def test_outcomes_that_are_damaged_may_be_deleted(tmp_path):
    (tmp_path / "steps").mkdir()
    pl.DataFrame({"key": ["a"], "sha256": ["A"], "status": ["ok"]}).write_parquet(tmp_path / "steps/score.parquet")
    VerdictFile(tmp_path / "subset.verdicts.jsonl", "ann", {}).append(
        "drop", question="junk", keys=("a",), images=("A",)
    )
    (tmp_path / "steps/outcomes.parquet").write_bytes(b"no table")
    with pytest.raises(InputError, match=r"outcomes\.parquet .*delete"):
        note_renamed(tmp_path)
    (tmp_path / "steps/outcomes.parquet").unlink()
    note_renamed(tmp_path)


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
