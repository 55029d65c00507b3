"""Labels of a file, of annotators and of rounds are judged as those of a column are."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rounds_table
from mislabelled import CLASSES, N, changed, embedded, invoke, rows_of

from curate.commands.verify import lines_of
from curate.policies.labels.policy import labels
from curate.policies.verify import verify
from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next
from scoring.errors import InputError


def test_several_annotators_together_are_more_accurate_than_each_alone(table, tmp_path):
    generator = np.random.default_rng(5)
    clean = np.array(pq.read_table(table)["clean"].to_pylist())
    votes = {}
    for name, p in (("label", 0.9), ("number", 0.75), ("share", 0.75)):
        other = generator.choice(CLASSES, N)
        votes[name] = np.where(generator.random(N) < p, clean, other).tolist()
    changed(table, **votes)
    result = labels(table, tmp_path / "out.parquet", ["label", "number", "share"], relabel="agreed")
    assert [row["column"] for row in result.annotators] == ["label", "number", "share"]
    assert result.annotators[0]["accuracy"]["value"] > result.annotators[1]["accuracy"]["value"]
    out = pq.read_table(result.subset).to_pylist()
    right = {name: sum(row[name] == row["clean"] for row in out) for name in (*votes, "agreed")}
    assert right["agreed"] > max(right[name] for name in votes)
    assert {round(3 * row["label_agreement"], 4) for row in out} <= {1, 2, 3}
    assert verify(result.receipt).identical


def told(path):
    names = ["key", "decision", "reason", "score", "given_label", "suggested_label", "label_why"]
    return pq.read_table(path, columns=names).to_pylist()


def sheet(path, rows, header=("key", "label", "annotator")):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def test_a_file_of_labels_decides_as_the_column_that_it_was_taken_from(table, tmp_path):
    rows = pq.read_table(table).select(["key", "label"]).to_pylist()[::-1]
    file = sheet(tmp_path / "labels.csv", [(row["key"], row["label"]) for row in rows], ("key", "label"))
    bare = tmp_path / "bare.parquet"
    pq.write_table(pq.read_table(table).drop_columns(["label"]), bare)
    by_file = labels(bare, tmp_path / "file.parquet", labelled=file, drop_suspected=True)
    by_column = labels(table, tmp_path / "column.parquet", "label", drop_suspected=True)
    assert told(by_file.decisions) == told(by_column.decisions)
    assert by_file.dropped == by_column.dropped > 0
    assert by_file.annotators == [] == by_column.annotators
    few = sheet(tmp_path / "few.csv", [(row["key"], row["label"]) for row in rows[:90]], ("key", "label"))
    some = labels(table, tmp_path / "some.parquet", labelled=few)
    assert some.judged == 88
    assert some.suggestions == N - 90


def test_votes_in_a_file_are_weighed_as_the_columns_of_annotators_are(table, tmp_path):
    generator = np.random.default_rng(5)
    read = pq.read_table(table)
    clean, keys = np.array(read["clean"].to_pylist()), read["key"].to_pylist()
    votes = {}
    for name, p in (("label", 0.9), ("number", 0.75), ("share", 0.75)):
        votes[name] = np.where(generator.random(N) < p, clean, generator.choice(CLASSES, N)).tolist()
    changed(table, **votes)
    by_column = labels(table, tmp_path / "column.parquet", list(votes), relabel="agreed")
    rows = [(key, label, name) for name in votes for key, label in zip(keys, votes[name], strict=True)]
    file = sheet(tmp_path / "votes.csv", [rows[at] for at in generator.permutation(len(rows))])
    by_file = labels(table, tmp_path / "file.parquet", labelled=file, relabel="agreed")
    assert told(by_file.decisions) == told(by_column.decisions)
    assert by_file.annotators == by_column.annotators
    assert by_file.alike == pytest.approx(by_column.alike)
    first, second = (pq.read_table(each.subset) for each in (by_file, by_column))
    assert first["label_agreement"].equals(second["label_agreement"])
    assert first["agreed"].to_pylist() == second["agreed"].to_pylist()
    report = invoke(table, "--labelled", file)
    assert "number" in report.stdout
    assert "annotators of a row" in report.stdout


def test_the_labels_of_a_file_are_in_the_receipt_and_verify_reads_them_again(table, tmp_path):
    rows = pq.read_table(table).select(["key", "label"]).to_pylist()
    pairs = [(row["key"], row["label"]) for row in rows]
    file = sheet(tmp_path / "labels.csv", pairs, ("key", "label"))
    result = labels(table, tmp_path / "out.parquet", labelled=file)
    noted = json.loads(result.receipt.read_text())["policy"][0]["labelled"]
    assert noted["path"] == str(file)
    assert verify(result.receipt).identical
    sheet(file, pairs[::-1], ("key", "label"))
    verification = verify(result.receipt)
    assert (verification.n_different, verification.identical) == (0, False)
    assert any("the rules read" in note for note in lines_of(verification)["notes"])
    other = next(name for name in CLASSES if name != pairs[0][1])
    sheet(file, [(pairs[0][0], other), *pairs[1:]], ("key", "label"))
    verification = verify(result.receipt)
    assert not verification.identical
    assert any("labels.csv" in note for note in lines_of(verification)["notes"])
    pq.write_table(pa.table(dict(zip(("key", "label"), zip(*pairs, strict=True), strict=True))), tmp_path / "v.parquet")
    with pytest.raises(InputError, match="read by --labelled"):
        labels(table, tmp_path / "v.parquet", labelled=tmp_path / "v.parquet", overwrite=True)


def test_what_came_back_to_rounds_is_judged(tmp_path):
    truth = rounds_table.table(tmp_path / "t.parquet")
    rounds = tmp_path / "r"
    round_init(rounds, tmp_path / "t.parquet", classes=rounds_table.CLASSES, batch=40, holdout="10")
    rows = []
    for _ in range(2):
        keys = pq.read_table(round_next(rounds).folder / "batch.parquet")["key"].to_pylist()
        said = [
            (
                key,
                rounds_table.CLASSES[(rounds_table.CLASSES.index(truth[key]) + (who == "eve" and number % 4 == 0)) % 3],
                who,
            )
            for number, key in enumerate(keys)
            for who in ("ann", "bob", "eve")
        ]
        round_import(rounds, rounds_table.sheet(tmp_path / "answers.csv", said))
        rows += said
    result = labels(tmp_path / "t.parquet", tmp_path / "out.parquet", labelled=rounds, relabel="agreed")
    assert result.judged == len(rows) / 3 == 90
    assert [each["column"] for each in result.annotators] == ["ann", "bob", "eve"]
    assert result.annotators[2]["accuracy"]["value"] < result.annotators[0]["accuracy"]["value"]
    by_file = labels(
        tmp_path / "t.parquet",
        tmp_path / "file.parquet",
        labelled=sheet(tmp_path / "v.csv", rows[::-1]),
        relabel="agreed",
    )
    assert told(result.decisions) == told(by_file.decisions)
    digests = [json.loads(each.receipt.read_text())["policy"][0]["labelled"]["digest"] for each in (result, by_file)]
    assert digests[0] == digests[1]
    assert verify(result.receipt).identical
    round_import(rounds, rounds_table.sheet(tmp_path / "more.csv", [(rows[0][0], truth[rows[0][0]], "kim")]))
    assert not verify(result.receipt).identical
    (rounds / "rounds" / "0001" / "labels-0001.parquet").unlink()
    with pytest.raises(InputError, match="was changed"):
        verify(result.receipt)


def test_thousands_of_annotators_cost_what_their_votes_do(tmp_path):
    vectors, true, labelled = rows_of()
    pq.write_table(
        pa.table({"key": [f"k{i:04}" for i in range(N)], "embedding": embedded(vectors)}), tmp_path / "t.parquet"
    )
    generator = np.random.default_rng(0)
    rows = [
        (f"k{i:04}", CLASSES[true[i] if generator.random() < 0.8 else labelled[i]], f"worker {w}")
        for i in range(N)
        for w in generator.choice(5000, 20, replace=False)
    ]
    result = labels(tmp_path / "t.parquet", labelled=sheet(tmp_path / "v.csv", rows))
    assert len(result.annotators) == len({who for _, _, who in rows}) > 2000
    report = invoke(tmp_path / "t.parquet", "--labelled", tmp_path / "v.csv").stdout
    assert len(report.splitlines()) < 80
    assert "more; --json has them" in report


def test_the_column_label_is_examined_where_none_is_named(table, tmp_path):
    assert labels(table) == labels(table, label="label")
    pq.write_table(pq.read_table(table).drop_columns(["label"]), tmp_path / "bare.parquet")
    with pytest.raises(InputError, match="--label"):
        labels(tmp_path / "bare.parquet")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--labelled", "none.csv"], "none.csv does not exist"),
        (["--labelled", "v.csv", "--label", "a", "--label", "b"], "column of v.csv"),
        (["--labelled", "v.csv", "--label", "a"], "no column 'a'"),
        (["--labelled", "v.csv"], "such as 'stranger'"),
        (["--labelled", "one.csv"], "classes in one.csv"),
        (["--label", "lable", "--review", "50", "-o", "x.parquet"], "did you mean 'label'"),
    ],
)
def test_labels_that_cannot_be_had_are_one_line(table, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    sheet(tmp_path / "v.csv", [("stranger", "cat")], ("key", "label"))
    sheet(tmp_path / "one.csv", [("k0001", "cat"), ("k0002", "cat")], ("key", "label"))
    result = invoke("scores.parquet", *options)
    assert result.exit_code == 1
    assert words in result.output
    assert result.output.strip().count("\n") == 0
