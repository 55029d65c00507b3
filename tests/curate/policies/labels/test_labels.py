"""``curate labels`` on tables: what it writes, and one line for every table that it cannot use."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mislabelled import N, changed, embedded, invoke
from reviewed_table import act, queue, serving
from sample_verdicts import judge
from typer.testing import CliRunner

from curate.cli import app
from curate.policies.labels.policy import labels
from curate.policies.verify import verify
from scoring.errors import InputError


def audited(*args):
    return CliRunner().invoke(app, ["review", "verdicts", *map(str, args)])


def wrong_keys(path):
    read = pq.read_table(path, columns=["key", "label", "clean", "status"]).to_pylist()
    return {row["key"] for row in read if row["label"] != row["clean"] and row["status"] == "ok"}


def test_planted_mistakes_are_suspected_and_corrected_in_a_new_column(table, tmp_path):
    result = labels(table, tmp_path / "out.parquet", "label", relabel="checked")
    out = pq.read_table(result.subset).to_pylist()
    assert len(out) == result.kept == N - 2
    suspected = {row["key"] for row in out if row["label_quality"] < 0.5}
    assert len(suspected & wrong_keys(table)) > 0.9 * len(wrong_keys(table))
    assert len(suspected) == result.suspected
    right = sum(row["checked"] == row["clean"] for row in out)
    assert right > sum(row["label"] == row["clean"] for row in out)
    assert all(row["checked"] == (row["suggested_label"] if row["key"] in suspected else row["label"]) for row in out)
    assert result.wrong["low"] <= 0.1 <= result.wrong["high"]
    assert result.failed == 2
    assert verify(result.receipt).identical


def test_suspected_rows_leave_by_drop_and_rows_without_a_label_are_undecided(table, tmp_path):
    labelled = pq.read_table(table)["label"].to_pylist()
    changed(table, label=[None if i < 4 else label for i, label in enumerate(labelled)])
    result = labels(table, tmp_path / "out.parquet", "label", drop_suspected=True)
    assert result.dropped == result.suspected > 0
    assert result.undecided_by == {"no label": 4}
    decisions = {row["key"]: row for row in pq.read_table(result.decisions).to_pylist()}
    clean = pq.read_table(table)["clean"].to_pylist()
    assert [decisions[f"k{i:04}"]["suggested_label"] for i in range(4)] == clean[:4]
    assert "is the most likely" in decisions["k0000"]["reason"]
    assert decisions[f"k{N - 1:04}"]["decision"] == "failed"
    gone = next(row for row in decisions.values() if row["decision"] == "drop")
    assert gone["given_label"] != gone["suggested_label"]
    assert gone["label_why"]
    assert verify(result.receipt).identical


def test_the_order_of_the_rows_changes_nothing(table, tmp_path):
    first = labels(table, tmp_path / "a.parquet", "label")
    other = tmp_path / "turned.parquet"
    pq.write_table(pq.read_table(table).take(np.random.default_rng(3).permutation(N)), other)
    second = labels(other, tmp_path / "b.parquet", "label")
    read = [
        {row["key"]: (row["label_quality"], row["suggested_label"]) for row in pq.read_table(each.subset).to_pylist()}
        for each in (first, second)
    ]
    assert read[0] == read[1]
    assert first.input_digest == second.input_digest


@pytest.mark.parametrize("column", ["number", "share", "flag"])
def test_numbers_and_flags_are_classes_and_suggested_in_their_own_type(table, tmp_path, column):
    result = labels(table, tmp_path / "out.parquet", column, relabel="again")
    written = pq.read_schema(result.subset)
    assert written.field("suggested_label").type == written.field("again").type == written.field(column).type


def test_nan_is_no_label(table):
    share = pq.read_table(table)["share"].to_pylist()
    changed(table, share=[float("nan") if i < 5 else value for i, value in enumerate(share)])
    result = labels(table, label="share")
    assert [row["label"] for row in sorted(result.of_class, key=lambda row: row["label"])] == ["0", "0.5", "1"]
    assert result.suggestions == 5


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--label", "labl"], "did you mean 'label'"),
        (["--label", "lists"], "column 'lists'"),
        (["--label", "one"], "at least two classes"),
        (["--label", "empty"], "column 'empty'"),
        (["--label", "each"], "two rows or more"),
        (["--label", "label", "--relabel", "clean"], "never overwritten"),
        (["--label", "label", "--relabel", "x", "--drop-suspected"], "choose one"),
        (["--label", "label", "--label", "label"], "column of labels once"),
        (["--label", "label", "--below", "0"], "(0, 1]"),
        (["--label", "label", "--review", "50"], "--out"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(table, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    result = invoke(table, *options)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == [table.name]


def test_a_table_without_embeddings_says_how_to_get_them(table):
    pq.write_table(pq.read_table(table).drop_columns(["embedding"]), table)
    result = invoke(table, "--label", "label")
    assert result.exit_code == 1
    assert "no column 'embedding'" in result.stderr


def test_a_class_of_one_row_is_not_judged_and_stays(table, tmp_path):
    labelled = pq.read_table(table)["label"].to_pylist()
    changed(table, label=["yeti" if i == 7 else label for i, label in enumerate(labelled)])
    result = labels(table, tmp_path / "out.parquet", "label")
    out = {row["key"]: row for row in pq.read_table(result.subset).to_pylist()}
    assert out["k0007"]["label_quality"] is None
    assert out["k0007"]["label"] == "yeti"
    dropped = labels(table, tmp_path / "drop.parquet", "label", drop_suspected=True)
    assert dropped.undecided_by == {"no other row of its class": 1}


def test_a_rare_class_that_would_be_lost_is_named(table, tmp_path):
    rare = pq.read_table(table, columns=["label"])["label"].to_pylist()
    rare[:2] = ["dodo"] * 2  # two rows that look like an ant and like a bee
    shown = invoke(changed(table, label=rare), "--drop-suspected", "-o", tmp_path / "out.parquet")
    assert "1 class (dodo)" in shown.stderr
    assert "of class dodo" in shown.stderr
    result = labels(table)
    dodo = next(each for each in result.of_class if each["label"] == "dodo")
    assert dodo["rows"] == dodo["suspected"] == 2
    assert f"suspected: {result.suspected} labels" in str(result)


def test_many_classes_and_equal_images_with_other_labels(tmp_path):
    generator = np.random.default_rng(0)
    middles = generator.normal(size=(700, 16)).astype(np.float32)
    true = np.repeat(np.arange(700), 3)
    vectors = middles[true]  # the rows of a class are equal
    labelled = true.copy()
    labelled[::30] = (labelled[::30] + 1) % 700
    path = tmp_path / "many.parquet"
    keys = [str(i) for i in range(2100)]
    pq.write_table(pa.table({"key": keys, "label": labelled, "embedding": embedded(vectors)}), path)
    result = labels(path, label="label")
    assert result.suspected >= 60
    assert result.contradicted_by["copy"] >= 60
    assert {int(row["suggested"]) for row in result.worst} <= set(range(700))


def test_a_changed_quality_is_named_by_verify(table, tmp_path):
    result = labels(table, tmp_path / "out.parquet", "label")
    written = pq.read_table(result.subset)
    quality = np.array(written["label_quality"].to_pylist(), np.float32)
    quality[3] = 0.123
    at = written.schema.names.index("label_quality")
    pq.write_table(written.set_column(at, written.schema.field(at), pa.array(quality)), result.subset)
    verification = verify(result.receipt)
    assert [(each.key, each.column) for each in verification.different] == [("k0003", "label_quality")]


def test_a_review_is_drawn_by_strata_and_its_verdicts_bound_the_share(table, tmp_path):
    done = invoke(table, "--label", "label", "--review", 120, "-o", tmp_path / "out.parquet", "-q")
    assert done.exit_code == 0, done.stderr
    path = tmp_path / "out.review.csv"
    rows = list(csv.DictReader(path.open()))
    sizes = {row["stratum"]: int(row["size"]) for row in rows}
    assert sum(sizes.values()) == N - 2
    clean = {row["key"]: row["clean"] for row in pq.read_table(table, columns=["key", "clean"]).to_pylist()}
    judged = []
    for row in rows:
        verdict = "keep" if row["given"] == clean[row["key"]] else "relabel"
        judged.append((verdict, row["key"], "", clean[row["key"]] if verdict == "relabel" else ""))
    judge(path, judged, question="label")
    report = json.loads(audited(path, "--json").stdout)
    true_share = len(wrong_keys(table)) / (N - 2)
    assert report["wrong"]["strict"]["low"] <= true_share <= report["wrong"]["strict"]["high"]
    assert report["counts"]["blank"] == report["counts"]["unsure"] == 0
    suggested = sum(row["suggested"] == clean[row["key"]] != row["given"] for row in rows)
    assert report["counts"]["suggested"] == suggested > 0
    assert report["suspected"]["strict"]["value"] > 0.8
    assert "wrong labels" in audited(path).stdout
    judge(path, [("keep", judged[0][1], "", ""), ("drop", judged[1][1], "", "")], question="label", reviewer="bob")
    again = json.loads(audited(path, "--json").stdout)["counts"]
    assert again["unsure"] == (judged[0][0] != "keep") + (judged[1][0] == "keep")
    with pytest.raises(InputError, match="--review would replace"):
        labels(table, tmp_path / "out.parquet", "label", review=120, overwrite=True)


def test_a_review_is_shown_by_pairs_of_labels_and_relabelled_by_one_key(table, tmp_path):
    labels(table, tmp_path / "out.parquet", "label", review=60)
    path = tmp_path / "out.review.csv"
    rows = list(csv.DictReader(path.open()))
    with serving(table, results=[path], reviewer="ann") as server:
        groups = queue(server)
        first = [
            row for row in rows[:48] if (row["given"], row["suggested"]) == (rows[0]["given"], rows[0]["suggested"])
        ]
        assert (groups[0]["n"], groups[0]["label"]) == (len(first), rows[0]["suggested"])
        act(server, "relabel", groups[0]["id"])
        for group in groups[1:]:
            act(server, "keep", group["id"])
        assert queue(server) == []
    counts = json.loads(audited(path, "--json").stdout)["counts"]
    assert counts == {"given": 60 - len(first), "suggested": len(first), "other": 0, "unsure": 0, "blank": 0}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("stratum", "said", 1), "no column 'stratum'"),
        (lambda text: text.replace(",trusted ", ",other ", 1), "expected a stratum"),
        (lambda text: "\n".join(text.split("\n")[:-3]) + "\n", "of one sample"),
        (lambda text: text + text.split("\n")[1] + "\n", "occurs twice"),
        (lambda text: text, "got none"),
        (lambda text: "", "no column"),
    ],
)
def test_a_spoilt_review_is_reported(table, tmp_path, change, words):
    labels(table, tmp_path / "out.parquet", "label", review=20)
    path = tmp_path / "out.review.csv"
    path.write_text(change(path.read_text()))
    result = audited(path)
    assert result.exit_code == 1
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_the_report_is_on_stdout_and_the_json_is_whole(table):
    text = invoke(table, "--label", "label").stdout
    for words in ("wrong labels:", "suspected:", "labelled", "but rather", "quality"):
        assert words in text
    report = json.loads(invoke(table, "--label", "label", "--json").stdout)
    assert report["judged"] == N - 2
    assert sum(row["rows"] for row in report["of_class"]) == N - 2
    assert report["subset"] is None
    assert report["worst"][0]["quality"] <= report["worst"][-1]["quality"] < 0.5
