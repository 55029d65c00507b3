"""Crops that the default lists for review and keeps, and ``--cropped`` drops."""

import json
import re
from dataclasses import asdict, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from made import cut, embedded, same_thumbnails, signed, soft_pictures, write_table

import curate
from curate.commands.info import rule_lines
from curate.policies.dedup.listed import MOST_ROWS, cost_notes, with_listed
from curate.policies.dedup.request import DedupRequest, resolved
from curate.policies.verdicts import Line
from curate.tables.table import open_table
from scoring.images.signature import signature

N, PARTS = 40, 8


def columns(seed=0, parts=PARTS):
    """Forty images, crops c0, c1, ... of the first of them, and a byte copy of the crop c0."""
    generator = np.random.default_rng(seed)
    pictures = soft_pictures(generator, N)
    vectors = generator.normal(0, 1, (N, 32))
    vectors = np.concatenate([vectors, vectors[:parts] + generator.normal(0, 0.1, (parts, 32))])
    made = [cut(generator, each, 1) for each in pictures] + [cut(generator, each, 0.85) for each in pictures[:parts]]
    signatures = np.stack([signature(each) for each in made])
    keys = [*(f"k{i}" for i in range(N)), *(f"c{i}" for i in range(parts))]
    names = [f"{at:063d}{seed}" for at in range(len(keys))]
    again = [*range(len(keys)), *([N] if parts else [])]
    return {
        "key": [*keys, *(["copy"] if parts else [])],
        "sha256": [names[at] for at in again],
        "signature": signed(signatures[again]),
        "embedding": embedded(list(vectors[again].astype(np.float32))),
        **same_thumbnails(len(again)),
        "rank": [float(at < N) for at in again],
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_table(tmp_path_factory.mktemp("listed") / "scores.parquet", columns(), signature="x")


def decisions(result):
    return {row["key"]: row for row in pq.read_table(result.decisions).to_pylist()}


def test_crops_are_listed_and_kept_and_their_copies_dropped(table, tmp_path):
    result = curate.dedup(table, tmp_path / "u.parquet", keep="max:rank")
    rows = decisions(result)
    listed = {key for key, row in rows.items() if row["rule"] == "review"}
    assert len(listed) == result.to_review >= PARTS - 2
    assert listed <= {f"c{i}" for i in range(PARTS)}
    assert all(rows[key]["kept_key"] == f"k{key[1:]}" for key in listed)
    assert all(rows[key]["decision"] == "keep" and "--cropped" in rows[key]["reason"] for key in listed)
    assert all(rows[key]["group"] == rows[rows[key]["kept_key"]]["group"] for key in listed)
    assert all(rows[key]["score"] >= rows[key]["threshold"] == 0.985 for key in listed)
    assert {key for key, row in rows.items() if row["decision"] == "drop"} == {"copy"}
    assert rows["copy"]["kept_key"] == "c0"
    assert result.dropped_by == {"bytes": 1, "signature >= 0.95": 0}
    assert any("--cropped" in note for note in result.notes)
    assert pq.read_table(tmp_path / "u.parquet").num_rows == N + PARTS
    assert curate.verify(tmp_path / "u.parquet").identical
    groups = pq.read_table(result.groups).to_pylist()
    assert {tuple(group["finders"]) for group in groups} <= {("crop",), ("bytes", "crop"), ("crop", "bytes")}

    dropped = decisions(curate.dedup(table, tmp_path / "c.parquet", keep="max:rank", cropped=True))
    assert {key for key, row in dropped.items() if row["decision"] == "drop"} == listed | {"copy"}


def test_listing_changes_no_other_decision(table, tmp_path):
    typed = decisions(curate.dedup(table, tmp_path / "a.parquet", ["bytes", "signature"], keep="max:rank"))
    usual = decisions(curate.dedup(table, tmp_path / "b.parquet", keep="max:rank"))
    assert not any(row["rule"] == "review" for row in typed.values())
    for key, row in usual.items():
        assert row["decision"] == typed[key]["decision"]
        if row["rule"] != "review":
            assert (row["rule"], row["kept_key"]) == (typed[key]["rule"], typed[key]["kept_key"])


def test_a_receipt_without_listed_crops_is_read_and_written_as_before(table, tmp_path):
    curate.dedup(table, tmp_path / "u.parquet", ["bytes", "signature"])
    (rule,) = json.loads((tmp_path / "u.receipt.json").read_text())["policy"]
    assert "listed_crop" not in rule
    assert DedupRequest.from_json(rule).to_json() == rule
    curate.dedup(table, tmp_path / "v.parquet")
    (rule,) = json.loads((tmp_path / "v.receipt.json").read_text())["policy"]
    assert (rule["listed_crop"], rule["cropped"], list(rule["thresholds"])) == (0.985, False, ["bytes", "signature"])


def test_a_crop_with_a_verdict_is_not_listed_again(table, tmp_path):
    rows = decisions(curate.dedup(table, tmp_path / "u.parquet", keep="max:rank"))
    kept, gone = sorted(key for key, row in rows.items() if row["rule"] == "review")[:2]
    path = tmp_path / "v.verdicts.jsonl"
    lines = [
        Line(
            "s", n, "ann", "2026", verdict, question="copy", keys=(key,), images=("",), beside=(rows[key]["kept_key"],)
        )
        for n, (verdict, key) in enumerate((("keep", kept), ("drop", gone)))
    ]
    path.write_text("".join(json.dumps(asdict(line)) + "\n" for line in lines))
    again = decisions(curate.dedup(table, tmp_path / "v.parquet", keep="max:rank", verdicts=path))
    assert (again[kept]["decision"], again[gone]["decision"]) == ("keep", "drop")
    assert "review" not in (again[kept]["rule"], again[gone]["rule"])
    others = {key for key, row in rows.items() if row["rule"] == "review"} - {kept, gone}
    assert {key for key, row in again.items() if row["rule"] == "review"} == others


def test_a_crop_of_an_image_that_a_reviewer_dropped_stays_listed(table, tmp_path):
    rows = decisions(curate.dedup(table, tmp_path / "u.parquet", keep="max:rank"))
    listed = {key for key, row in rows.items() if row["rule"] == "review"}
    crop = min(listed)
    whole = rows[crop]["kept_key"]
    path = tmp_path / "v.verdicts.jsonl"
    line = Line("s", 0, "ann", "2026", "drop", question="image", keys=(whole,), images=("",))
    path.write_text(json.dumps(asdict(line)) + "\n")
    result = curate.dedup(table, tmp_path / "v.parquet", keep="max:rank", verdicts=path)
    again = decisions(result)
    assert again[whole]["decision"] == "drop"
    assert {key for key, row in again.items() if row["rule"] == "review"} == listed
    assert (again[crop]["decision"], again[crop]["kept_key"]) == ("keep", whole)
    assert "ann" in again[crop]["reason"]
    assert curate.verify(tmp_path / "v.parquet").identical


def test_labels_that_contradict_a_listed_crop_are_counted(table, tmp_path):
    made = columns()
    made["label"] = ["cat"] * N + ["dog"] * PARTS + ["dog"]
    labelled = write_table(tmp_path / "labelled.parquet", made, signature="x")
    result = curate.dedup(labelled, tmp_path / "u.parquet", keep="max:rank")
    groups = [row for row in pq.read_table(result.groups).to_pylist() if "crop" in row["finders"]]
    assert result.n_conflicts == len(groups) == result.to_review
    assert {tuple(sorted(group["labels"])) for group in groups} == {("cat", "dog")}
    assert all(group["conflict"] for group in groups)
    assert {tuple(sorted(each["labels"])) for each in result.conflicts} == {("cat", "dog")}
    dropped = curate.dedup(labelled, None, keep="max:rank", cropped=True, dry_run=True)
    assert dropped.n_conflicts == result.n_conflicts
    assert curate.verify(tmp_path / "u.parquet").identical


def test_a_listed_request_is_shown_as_a_rule(table, tmp_path):
    curate.dedup(table, tmp_path / "u.parquet")
    (shown,) = rule_lines(json.loads((tmp_path / "u.receipt.json").read_text())["policy"])
    assert "crop 0.985" in shown
    curate.dedup(table, tmp_path / "v.parquet", ["bytes"])
    (shown,) = rule_lines(json.loads((tmp_path / "v.receipt.json").read_text())["policy"])
    assert "crop" not in shown


@pytest.mark.parametrize("missing", ["embedding", "signature"])
def test_one_line_names_a_table_whose_crops_are_not_searched(missing, tmp_path):
    made = columns(parts=2)
    del made[missing]
    table = write_table(tmp_path / "s.parquet", made, signature="x")
    notes = [note for note in curate.dedup(table, None, dry_run=True).notes if missing in note]
    assert len(notes) == 1


def test_large_tables_and_other_tables_are_not_searched_for_crops(table, tmp_path, monkeypatch):
    other = write_table(tmp_path / "other.parquet", columns(1, parts=0), signature="x")
    result = curate.dedup(table, None, against=other, dry_run=True)
    assert sum("other.parquet" in note and "--cropped" in note for note in result.notes) == 1
    assert result.to_review
    assert not curate.dedup(table, None, against=other, only_against=True, dry_run=True).to_review
    monkeypatch.setattr("curate.policies.dedup.listed.MOST_ROWS", N)
    result = curate.dedup(table, None, dry_run=True)
    assert (result.to_review, sum(f"{N:,} rows" in note for note in result.notes)) == (0, 1)
    assert MOST_ROWS == 50_000


def test_the_cost_of_crops_is_announced_before_a_long_search(table, monkeypatch):
    request = DedupRequest({"bytes": 1.0}, listed_crop=0.985)
    assert not cost_notes(request, 6_000)
    assert not cost_notes(DedupRequest({"bytes": 1.0}), 10**6)
    seconds = [int(re.search(r"(\d+) s", note)[1]) for n in (24_000, 48_000) for note in cost_notes(request, n)]
    assert len(seconds) == 2 < seconds[1] / seconds[0] < 4  # between linear and quadratic
    (mirrored,) = cost_notes(replace(request, mirrored=True), 48_000)
    assert int(re.search(r"(\d+) s", mirrored)[1]) > seconds[1]
    announced = []
    monkeypatch.setattr("curate.policies.dedup.listed.LONG", 0.0)
    curate.dedup(table, None, dry_run=True, announce=announced.append)
    assert sum("crops" in each for each in announced) == 1


def test_two_drawings_are_not_listed(tmp_path):
    made, n = columns(), N + PARTS + 1
    sizes = np.random.default_rng(0).integers(100, 200, (2, n))
    facts = {
        "width": sizes[0],
        "height": sizes[1],
        "format": ["png"] * n,
        "quality_colours": np.full(n, 8.0),
        "quality_brightness": np.linspace(0, 1, n),
        "quality_entropy": np.linspace(0, 1, n),
    }
    drawn = write_table(tmp_path / "drawn.parquet", {**made, **facts}, signature="x")
    assert not curate.dedup(drawn, None, dry_run=True).to_review
    facts["format"][:N] = ["jpeg"] * N
    mixed = write_table(tmp_path / "mixed.parquet", {**made, **facts}, signature="x")
    assert curate.dedup(mixed, None, dry_run=True).to_review >= PARTS - 2


def test_the_bar_moves_while_crops_are_searched(table):
    for options in ({}, {"cropped": True}):
        steps = []
        show = partial(lambda seen, done, total: seen.append((done, total)), steps)
        curate.dedup(table, None, dry_run=True, compared=show, **options)
        n = N + PARTS + 1
        assert steps[-1] == (n, n)
        assert {total for _, total in steps} == {n}
        done = [step for step, _ in steps]
        assert done == sorted(done)
        assert any(0 < step < n for step in done)


def test_a_listed_request_names_its_finder_for_review(table):
    opened = open_table(table)
    request, notes = with_listed(resolved(DedupRequest({}), opened, None)[0], opened)
    assert (request.listed_crop, notes) == (0.985, [])
    assert request.bounds == {"bytes": 1.0, "signature": 0.95, "crop": 0.985}
    assert with_listed(replace(request, only_against=True, listed_crop=None), opened)[0].listed_crop is None


def test_tables_of_no_row_and_of_one_have_no_crops(tmp_path):
    made = columns(parts=0)
    for n in (0, 1):
        few = {name: pa.array(values)[:n] for name, values in made.items()}
        result = curate.dedup(write_table(tmp_path / f"{n}.parquet", few, signature="x"), None, dry_run=True)
        assert (result.n_rows, result.kept, result.to_review) == (n, n, 0)
