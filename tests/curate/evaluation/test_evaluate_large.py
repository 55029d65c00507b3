"""``curate evaluate`` on tables above the bound from which a sample is compared with all rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_evaluate import QUICK, make, measure

from curate.evaluation.options import EvaluateOptions
from curate.evaluation.run import evaluate
from curate.evaluation.work import judge_table
from curate.tables.table import open_table

DRAWN = 40


@pytest.fixture
def bounded(monkeypatch):
    monkeypatch.setattr("curate.evaluation.work.MOST_FAST", 119)
    monkeypatch.setattr("curate.evaluation.work.DRAWN", DRAWN)


def with_twins(path, equal):
    """A table of which the first rows have embeddings that are equal in every bit."""
    table = pq.read_table(make(path))
    vectors = np.stack(table["embedding"].to_numpy())
    vectors[:equal] = vectors[0]
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), type=table.schema.field("embedding").type)
    at = table.schema.get_field_index("embedding")
    pq.write_table(table.set_column(at, table.schema.field(at), column), path)
    return path


@pytest.mark.parametrize("equal", [1, 30, 90])
def test_a_sample_is_compared_with_all_rows(tmp_path, bounded, equal):
    path = with_twins(tmp_path / "s.parquet", equal)
    table = open_table(path)
    measured, known = judge_table(table, EvaluateOptions(path, label="label"))
    assert len(measured.index) == DRAWN
    vectors = np.stack(table.read(["embedding"]).column(0).to_numpy()).astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosine = np.round(vectors @ vectors.T, 9)
    np.fill_diagonal(cosine, -1)
    labels = np.array(table.read(["label"]).column(0).to_pylist())
    nearest = cosine.argmax(1)  # the first of equal ones
    assert known.right["neighbour"].tolist() == (labels[nearest] == labels)[measured.index].tolist()
    assert known.n_twins == (measured.index < equal).sum() * (equal > 1)


def test_the_sample_is_stated_and_has_an_interval(tmp_path, bounded):
    evaluation = evaluate(make(tmp_path / "s.parquet"), label="label", **QUICK)
    assert evaluation.used == DRAWN
    assert sum(evaluation.left_out.values()) == 120 - DRAWN
    recall = measure(evaluation, "Recall@1")
    assert recall.n == DRAWN
    assert recall.values["embedding"].low < recall.values["embedding"].value < recall.values["embedding"].high
    assert "--sample" in measure(evaluation, "mAP@R").missing


def test_probes_of_other_rows_measure_all_rows(tmp_path, bounded):
    train = make(tmp_path / "train.parquet", seed=1)
    evaluation = evaluate(make(tmp_path / "s.parquet"), label="label", train=train, probe="knn", **QUICK)
    assert measure(evaluation, "kNN accuracy").n == 120


def test_a_stated_sample_is_compared_with_itself(tmp_path, bounded):
    path = make(tmp_path / "s.parquet")
    assert evaluate(path, label="label", sample=119, **QUICK).used == 119
    assert evaluate(path, label="label", sample=120, **QUICK).used == 120


def test_the_bound_itself_is_measured_in_full(tmp_path, monkeypatch):
    path = make(tmp_path / "s.parquet")
    before = evaluate(path, label="label", **QUICK).to_json()
    monkeypatch.setattr("curate.evaluation.work.MOST_FAST", 120)
    assert evaluate(path, label="label", **QUICK).to_json() == before
