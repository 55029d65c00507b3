"""What ``--verdicts`` does in ``dedup`` and ``labels``, and that ``verify`` repeats it."""

import polars as pl
import pytest
from reviewed_table import GOOD, GREY, RED, N, act, call, queue, serving, write_table

import curate
from curate.policies.verdicts import VerdictFile
from scoring.errors import InputError


@pytest.fixture
def table(tmp_path):
    return write_table(tmp_path)


def decide(table, *decisions, reviewer="ann"):
    """Write (verdict, question, rows, fields) as a review of the table would."""
    frame = pl.read_parquet(table)
    file = VerdictFile(table.with_name("scores.verdicts.jsonl"), reviewer, {"table": str(table)})
    for verdict, question, rows, fields in decisions:
        keys, images = frame["key"][rows].to_list(), [text[:16] for text in frame["sha256"][rows]]
        file.append(verdict, question=question, words="a group", keys=keys, images=images, **fields)
    return file.path


def deduplicated(table, **options):
    """The rows that are kept, the result, and the reasons by row."""
    out = table.with_name("unique.parquet")
    result = curate.dedup(table, out, "bytes", overwrite=True, **options)
    rows = {key: row for row, key in enumerate(pl.read_parquet(table)["key"])}
    reasons = pl.read_parquet(table.with_name("unique.decisions.parquet"))["reason"].to_list()
    return {rows[key] for key in pl.read_parquet(out)["key"]}, result, reasons


def test_copies_are_brought_back_on_the_page_and_an_image_is_dropped_with_its_copies(table):
    before, result, _ = deduplicated(table)
    assert (len(before), result.dropped) == (2 + GOOD, GREY + RED - 2)
    with serving(table, results=[result.subset], reviewer="ann") as server:
        conflict, junk, copies = queue(server)
        (grey,) = before & set(range(GREY))
        assert (copies["kind"], copies["n"], copies["question"]) == ("dropped-copy", GREY + RED - 2, "copy")
        assert call(server, "state")[1]["remaining"] == 2
        items = call(server, f"group?id={copies['id']}")[1]["items"]
        assert {item["beside"]["row"] for item in items} <= before
        back = [item["row"] for item in items if item["row"] < GREY][:2]
        act(server, "keep", copies["id"], out=[item["row"] for item in items if item["row"] not in back])
        assert (conflict["kind"], junk["kind"], junk["n"]) == ("label-conflict", "junk", 2)
        act(server, "drop", junk["id"], out=[grey])
    after, result, reasons = deduplicated(table, verdicts=table.with_name("scores.verdicts.jsonl"))
    reds = set(range(GREY, GREY + RED))
    assert after == (before | set(back)) - reds
    assert result.dropped_by == {"bytes": GREY - 3 + RED - 1, "verdicts": 1}
    assert all("kept by ann" in reasons[row] for row in back)
    assert all("dropped by ann" in reasons[row] for row in reds)
    receipt = table.with_name("unique.receipt.json")
    assert curate.verify(receipt).identical
    path = table.with_name("scores.verdicts.jsonl")
    path.write_text(path.read_text().replace('"ann"', '"bob"'))
    assert not curate.verify(receipt).identical


def test_a_copy_that_is_dropped_gives_its_place_to_another_and_new_labels_are_taken(table):
    (first,) = deduplicated(table)[0] & set(range(GREY))
    other = GREY + RED
    path = decide(
        table, ("drop", "copy", [first], {}), ("relabel", "label", [other], {"column": "label", "label": "owl"})
    )
    kept, _, _ = deduplicated(table, verdicts=path)
    assert first not in kept
    assert len(kept & set(range(GREY))) == 1
    frame = pl.read_parquet(table.with_name("unique.parquet")).sort("key")
    label = pl.read_parquet(table)["label"][other]
    assert frame.filter(label="owl").select("source_label").to_series().to_list() == [label]
    assert curate.verify(table.with_name("unique.receipt.json")).identical


def test_of_equal_files_the_one_that_a_reviewer_judged_is_kept(table):
    (shown,) = deduplicated(table)[0] & set(range(GREY))
    kept, relabelled = (row for row in (GREY - 1, GREY + RED - 1) if row != shown)
    path = decide(
        table, ("keep", "image", [kept], {}), ("relabel", "label", [relabelled], {"column": "label", "label": "owl"})
    )
    again, _, _ = deduplicated(table, verdicts=path)
    assert {kept, relabelled} == again & set(range(GREY + RED))
    assert curate.verify(table.with_name("unique.receipt.json")).identical


def test_two_images_that_are_no_copies_are_kept_whichever_comes_first(table):
    keys = pl.read_parquet(table)["key"].to_list()
    (shown,) = deduplicated(table)[0] & set(range(GREY))
    apart, third = [row for row in range(GREY) if row != shown][:2]
    path = decide(table, ("keep", "copy", [apart], {"beside": [keys[shown]]}))
    for first in (apart, third):  # of which the other two would go
        kept, _, _ = deduplicated(table, verdicts=path, prefer=keys[first])
        assert kept & set(range(GREY)) == {shown, apart}
        assert curate.verify(table.with_name("unique.receipt.json")).identical
    decide(table, ("drop", "image", [shown], {}))
    kept, _, _ = deduplicated(table, verdicts=path, prefer=keys[apart])
    assert kept & set(range(GREY)) == {apart}


def test_a_label_that_a_reviewer_kept_or_gave_is_settled(table):
    out, rows = table.with_name("checked.parquet"), [0, 1, GREY, GREY + 1]
    labels = [("dog", "cat")[(row < GREY) ^ (row in rows)] for row in range(N)]
    frame = pl.read_parquet(table).with_columns(label=pl.Series(labels))
    frame.write_parquet(table)
    assert {row["key"] for row in curate.labels(table, None, "label").worst} >= set(frame["key"][rows])
    path = decide(
        table,
        ("keep", "label", rows[:2], {}),
        ("relabel", "label", rows[2:3], {"column": "label", "label": "owl"}),
        ("drop", "image", rows[3:], {}),
    )
    result = curate.labels(table, out, "label", relabel="better", drop_suspected=False, verdicts=path)
    frame = pl.read_parquet(table.with_name("checked.decisions.parquet"))
    settled = frame[rows]
    assert settled["decision"].to_list() == ["keep", "keep", "keep", "drop"]
    assert set(settled["rule"]) == {"verdicts"}
    assert settled["score"].to_list()[:3] == [1, 1, 1]
    assert all("by ann" in reason for reason in settled["reason"])
    assert not set(frame["key"][rows].to_list()) & {row["key"] for row in result.worst}
    kept = pl.read_parquet(out).filter(pl.col("key") == frame["key"][rows[2]])
    source = pl.read_parquet(table)["label"][rows[2]]
    assert kept.select("label", "source_label", "better", "suggested_label").row(0) == ("owl", source, "owl", "owl")
    assert result.dropped_by == {"verdicts": 1}
    assert curate.verify(table.with_name("checked.receipt.json")).identical


def test_a_subset_may_have_lost_every_image_that_was_judged(table):
    path, subset = decide(table, ("drop", "image", [0, 1], {})), table.with_name("subset.parquet")
    curate.filter(table, subset, verdicts=path)
    out = table.with_name("again.parquet")
    for result in (
        curate.dedup(subset, out, "bytes", verdicts=path),
        curate.filter(out, None, verdicts=path, dry_run=True),
    ):
        assert any("2 verdicts" in note for note in result.notes)
    assert curate.labels(subset, table.with_name("l.parquet"), "label", verdicts=path).dropped_by == {"verdicts": 0}
    for name in ("again", "l"):
        assert curate.verify(table.with_name(f"{name}.receipt.json")).identical


def test_verdicts_that_cannot_be_used_are_refused_in_one_line(table):
    path = decide(table, ("keep", "label", [0], {}))
    frame = pl.read_parquet(table).with_columns(sha256=pl.lit("0" * 64))
    other = table.with_name("other.parquet")
    frame.write_parquet(other)
    for use in (
        lambda file: curate.dedup(other, None, "bytes", verdicts=file, dry_run=True),
        lambda file: curate.labels(other, None, "label", verdicts=file),
    ):
        with pytest.raises(InputError, match="another table"):
            use(path)
    with pytest.raises(InputError, match="one column"):
        curate.labels(table, None, ["label", "key"], verdicts=path)
    decide(table, ("drop", "label", [0], {}), reviewer="bob")
    for use in (
        lambda: curate.dedup(table, None, "bytes", verdicts=path, dry_run=True),
        lambda: curate.labels(table, None, "label", verdicts=path),
    ):
        with pytest.raises(InputError, match=r"1 image.*ann .*keep, bob .*drop"):
            use()
