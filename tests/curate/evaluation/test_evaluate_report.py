"""What ``curate evaluate`` says about tables that are not quite what it expects, and how it prints many columns."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from curate.cli import app
from curate.commands.printing import columns_that_fit
from curate.engines.score import score
from curate.evaluation.run import evaluate
from curate.tables.table import embedding_field

QUICK = {"repeats": 10}


def make(path, rows, **columns):
    """A foreign table of two classes with the given embeddings (N, D)."""
    flat = pa.FixedSizeListArray.from_arrays(
        pa.array(rows.astype(np.float32).ravel()), type=embedding_field(rows.shape[1], "float32").type
    )
    n = len(rows)
    label = ["a", "b"] * (n // 2)
    pq.write_table(pa.table({"key": [f"{i}" for i in range(n)], "label": label, "embedding": flat, **columns}), path)
    return path


def numbers(n, seed=0):
    return np.random.default_rng(seed).normal(size=n)


@pytest.mark.parametrize("embedding", [True, False])
def test_only_a_table_scored_without_embeddings_is_called_that(folder, tiny_checkpoint, tmp_path, embedding):
    foreign = tmp_path / "f.parquet"
    pq.write_table(pa.table({"label": ["a", "b"] * 20, "kappa_a": numbers(40)}), foreign)
    missing = next(each for each in evaluate(foreign, label="label", **QUICK).measures if each.name == "R-AUROC")
    assert missing.missing == "the table has no embedding column"
    ours = tmp_path / "s.parquet"
    score(folder, ours, model=tiny_checkpoint, embedding=embedding, device="cpu")
    table = pq.read_table(ours)
    labelled = table.append_column("label", pa.array([f"{i % 2}" for i in range(len(table))]))
    pq.write_table(labelled.replace_schema_metadata(table.schema.metadata), ours)
    missing = next(each for each in evaluate(ours, label="label", **QUICK).measures if each.name == "R-AUROC")
    expected = None if embedding else "the table has no embedding column (it was scored with --no-embedding)"
    assert (missing.missing or None) == expected


def test_rows_with_an_exact_twin_are_counted_next_to_the_neighbours(tmp_path):
    rows = numbers(240).reshape(60, 4)
    rows[10:14] = rows[0:4]  # four pairs
    rows[20] = rows[0]  # and a third of the first
    evaluation = evaluate(make(tmp_path / "s.parquet", rows, kappa_a=numbers(60)), label="label", **QUICK)
    notes = [note for note in evaluation.notes() if "twin" in note]
    assert len(notes) == 1
    assert notes[0].startswith("9 of 60 rows have an exact twin")
    assert "Recall@1 and R-AUROC" in notes[0]
    distinct = make(tmp_path / "d.parquet", numbers(240).reshape(60, 4), kappa_a=numbers(60))
    assert not evaluate(distinct, label="label", **QUICK).caveats.n_twins


def test_seven_columns_are_printed_without_breaking_a_name_or_a_number(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    names = [f"kappa_{word}" for word in ("visimsiam", "mcinfonce", "elk", "hib", "norm", "entropy", "something_long")]
    columns = {name: numbers(60, seed) for seed, name in enumerate(names)}
    path = make(tmp_path / "s.parquet", numbers(240).reshape(60, 4), **columns)
    said = CliRunner().invoke(app, ["evaluate", str(path), "--label", "label", "--repeats", "10"]).stdout
    lines = said.splitlines()
    for name in (*names, "rank average"):
        assert any(name in line for line in lines if line.startswith("measure"))
    rows = [line for line in lines if line.startswith("R-AUROC") and "]" in line]
    assert sum(line.count("]") for line in rows) == len(names) + 2  # and rank average, class entropy
    assert all(line.count("[") == line.count("]") for line in rows)
    assert all(len(line.rstrip()) <= 80 for line in lines if line.startswith(("measure", "R-AUROC ↑  ")))


def test_columns_go_into_as_few_tables_as_keep_them_whole():
    wide = [6, 4, 4, 3, 30, 2]
    assert columns_that_fit(wide, 23) == [[0, 1, 2, 3], [0, 4], [0, 5]]  # 6 + 2 + 4 + 2 + 4 + 2 + 3 = 23
    assert columns_that_fit(wide, 22) == [[0, 1, 2], [0, 3], [0, 4], [0, 5]]
    assert columns_that_fit([7], 5) == [[0]]


def judged(tmp_path, **columns):
    """A table on which the nearest row and a classifier are wrong of a third, and what evaluate makes of it."""
    generator = np.random.default_rng(5)
    rows = generator.normal(size=(200, 3)) * 0.4
    rows[np.arange(200), np.arange(200) % 2] += 1
    hard = np.arange(200) % 3 == 0
    rows[hard] = rows[hard][:, [1, 0, 2]]
    made = {name: values(hard, generator) for name, values in columns.items()}
    return evaluate(make(tmp_path / "s.parquet", rows, **made), label="label", repeats=200)


def sure(hard, generator):
    return generator.normal(size=len(hard)) - 3 * hard


def noise(hard, generator):
    return np.random.default_rng(1).normal(size=len(hard))


def test_the_verdict_names_the_column_to_use_and_those_no_better_than_chance(tmp_path):
    lines = judged(tmp_path, kappa_good=sure, kappa_noise=noise, unc_wrong=sure).verdict()
    assert "no better than chance on your labels: kappa_noise (" in lines[0]
    assert lines[1].startswith("worse than chance on your labels")
    assert lines[1].endswith(": unc_wrong")
    assert lines[2].startswith("use kappa_good: AUROC, linear right 0.8")
    assert len(lines) == 3
    shown = CliRunner().invoke(app, ["evaluate", str(tmp_path / "s.parquet"), "--label", "label", "--repeats", "50"])
    assert "\nverdict: use kappa_good: " in shown.stdout
    assert shown.stdout.splitlines()[-1].startswith("verdict: ")


def test_where_no_score_is_better_than_chance_the_verdict_says_what_to_do(tmp_path):
    lines = judged(tmp_path, kappa_noise=noise).verdict()
    assert "labels: kappa_noise" in lines[0]
    assert "curate fit --label" in lines[1]


def test_without_labels_there_is_no_verdict(tmp_path):
    path = make(tmp_path / "s.parquet", numbers(160).reshape(40, 4), kappa_a=numbers(40), votes=[[1, 2]] * 40)
    assert evaluate(path, votes="votes", **QUICK).verdict() == []
