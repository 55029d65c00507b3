"""``curate labels`` on tables: what it writes, and one line for every table that it cannot use."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import rounds_table
from reviewed_table import act, queue, serving
from sample_verdicts import judge
from typer.testing import CliRunner

from curate.cli import app
from curate.commands.verify_words import lines_of
from curate.policies.labels.policy import labels
from curate.policies.verify import verify
from curate.rounds.import_labels import import_labels
from curate.rounds.init import start
from curate.rounds.next import next_round
from scoring.errors import InputError

N, CLASSES = 240, ("ant", "bee", "cat")


def rows_of(n=N, seed=0):
    generator = np.random.default_rng(seed)
    true = np.arange(n) % 3
    vectors = generator.normal(size=(3, 12))[true] + 0.3 * generator.normal(size=(n, 12))
    labels = true.copy()
    wrong = generator.permutation(n)[: n // 10]
    labels[wrong] = (true[wrong] + 1) % 3
    return vectors.astype(np.float32), true, labels


def embedded(vectors):
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


@pytest.fixture
def table(tmp_path):
    vectors, true, labels = rows_of()
    names = np.array(CLASSES)
    columns = {
        "key": [f"k{i:04}" for i in range(N)],
        "label": names[labels].tolist(),
        "clean": names[true].tolist(),
        "number": labels.tolist(),
        "share": (labels / 2).tolist(),
        "flag": (labels > 0).tolist(),
        "status": ["ok"] * (N - 2) + ["truncated"] * 2,
        "error": [None] * (N - 2) + ["cut short"] * 2,
        "embedding": embedded(vectors),
        "one": ["same"] * N,
        "each": [f"c{i}" for i in range(N)],
        "lists": [[1]] * N,
        "empty": pa.nulls(N, pa.string()),
    }
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def changed(path, **columns):
    old = pq.read_table(path)
    for name, values in columns.items():
        old = old.set_column(old.schema.names.index(name), name, pa.array(values))
    pq.write_table(old, path)
    return path


def invoke(*args):
    return CliRunner().invoke(app, ["labels", *map(str, args)])


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
    assert "is likeliest" in decisions["k0000"]["reason"]
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
        (["--label", "lists"], "expected names or numbers in column 'lists'"),
        (["--label", "one"], "at least two classes"),
        (["--label", "empty"], "at least two classes in column 'empty'"),
        (["--label", "each"], "two rows or more"),
        (["--label", "label", "--relabel", "clean"], "never written over"),
        (["--label", "label", "--relabel", "x", "--drop-suspected"], "choose one"),
        (["--label", "label", "--label", "label"], "each column of labels once"),
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


def test_many_classes_and_equal_pictures_with_other_labels(tmp_path):
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


def test_several_annotators_agree_on_more_than_one_of_them_knows(table, tmp_path):
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
    assert "two annotators of a row agree" in report.stdout


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
    assert any("what the rules read of it is the same" in note for note in lines_of(verification)["notes"])
    other = next(name for name in CLASSES if name != pairs[0][1])
    sheet(file, [(pairs[0][0], other), *pairs[1:]], ("key", "label"))
    verification = verify(result.receipt)
    assert not verification.identical
    assert any("labels.csv" in note for note in lines_of(verification)["notes"])
    pq.write_table(pa.table(dict(zip(("key", "label"), zip(*pairs, strict=True), strict=True))), tmp_path / "v.parquet")
    with pytest.raises(InputError, match=r"is read by --labelled and would be written over"):
        labels(table, tmp_path / "v.parquet", labelled=tmp_path / "v.parquet", overwrite=True)


def test_what_came_back_to_rounds_is_judged(tmp_path):
    truth = rounds_table.table(tmp_path / "t.parquet")
    rounds = tmp_path / "r"
    start(rounds, tmp_path / "t.parquet", classes=rounds_table.CLASSES, batch=40, holdout="10")
    rows = []
    for _ in range(2):
        keys = pq.read_table(next_round(rounds).folder / "batch.parquet")["key"].to_pylist()
        said = [
            (
                key,
                rounds_table.CLASSES[(rounds_table.CLASSES.index(truth[key]) + (who == "eve" and number % 4 == 0)) % 3],
                who,
            )
            for number, key in enumerate(keys)
            for who in ("ann", "bob", "eve")
        ]
        import_labels(rounds, rounds_table.sheet(tmp_path / "answers.csv", said))
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
    import_labels(rounds, rounds_table.sheet(tmp_path / "more.csv", [(rows[0][0], truth[rows[0][0]], "kim")]))
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
        (["--labelled", "v.csv", "--label", "a", "--label", "b"], "--labelled takes one column of v.csv"),
        (["--labelled", "v.csv", "--label", "a"], "has no column 'a' of classes"),
        (["--labelled", "v.csv"], "got 1 of 1 labelled key not there, such as 'stranger'"),
        (["--labelled", "one.csv"], "labels of at least two classes in one.csv, of rows of scores.parquet"),
        (["--label", "lable", "--review", "50", "-o", "x.parquet"], "no column 'lable'; did you mean 'label'?"),
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
    with pytest.raises(InputError, match="holds verdicts on a sample that --review would replace"):
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
        (lambda text: "\n".join(text.split("\n")[:-3]) + "\n", "all rows of one review"),
        (lambda text: text + text.split("\n")[1] + "\n", "expected row 21"),
        (lambda text: text, "got none"),
        (lambda text: "", "nothing"),
    ],
)
def test_a_review_that_was_spoilt_says_so(table, tmp_path, change, words):
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
