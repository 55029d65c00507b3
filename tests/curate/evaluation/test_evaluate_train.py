"""``curate evaluate --train``: predictions learned from another table, against scikit-learn."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.linear_model
import sklearn.neighbors
import torch
from test_evaluate import QUICK, make, measure, run

from curate.evaluation.run import evaluate
from curate.evaluation.trained import _some
from scoring.errors import InputError


@pytest.fixture
def tables(tmp_path):
    return make(tmp_path / "train.parquet", 200, seed=1), make(tmp_path / "test.parquet", 90, seed=2)


def units(path):
    data = pq.read_table(path)
    rows = np.stack(data["embedding"].to_numpy()).astype(np.float64)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), np.array(data["label"].to_pylist())


def value(evaluation, name, column="embedding"):
    return measure(evaluation, name).values[column].value


def test_accuracies_are_those_of_scikit_learn(tables):
    train, test = tables
    evaluation = evaluate(test, train=train, label="label", **QUICK)
    (x, y), (z, answer) = units(train), units(test)
    nearest = sklearn.neighbors.KNeighborsClassifier(1).fit(x, y).predict(z) == answer
    assert value(evaluation, "1-NN accuracy") == pytest.approx(nearest.mean())
    near = np.argsort(-(z @ x.T), axis=1, kind="stable")[:, :20]
    names = np.unique(y)
    weight = np.exp(np.take_along_axis(z @ x.T, near, 1) / 0.07)
    votes = np.stack([((y[near] == name) * weight).sum(1) for name in names], 1)
    assert value(evaluation, "kNN accuracy") == pytest.approx((names[votes.argmax(1)] == answer).mean())
    scale = np.sqrt(((x - x.mean(0)) ** 2).sum(1).mean())
    fitted = sklearn.linear_model.LogisticRegression(C=1, tol=1e-8, max_iter=2000).fit((x - x.mean(0)) / scale, y)
    linear = fitted.predict((z - x.mean(0)) / scale) == answer
    assert value(evaluation, "linear accuracy") == pytest.approx(linear.mean())
    kappa = pq.read_table(test)["kappa_a"].to_numpy()
    auroc = sklearn.metrics.roc_auc_score(linear, kappa)
    assert value(evaluation, "AUROC, linear right", "kappa_a") == pytest.approx(auroc)
    few, more = value(evaluation, "linear accuracy, 1% of labels"), value(evaluation, "linear accuracy, 10% of labels")
    assert 0.25 < few <= more <= 1
    assert evaluation.settings["train"] == str(train)


def test_a_share_of_the_labels_is_a_share_of_each_class():
    labels = torch.tensor([0] * 100 + [1] * 10 + [2])
    chosen = _some(labels, 0.1, torch.Generator().manual_seed(0))
    assert torch.bincount(labels[chosen]).tolist() == [10, 1, 1]


def test_images_that_are_measured_are_no_images_to_learn_from(tmp_path):
    digests = pa.array([f"{n:064x}" for n in range(120)])
    test = make(tmp_path / "test.parquet", 120, sha256=digests)
    with pytest.raises(InputError, match="120 images that are measured"):
        evaluate(test, train=test, label="label", **QUICK)
    more = pa.array([f"{n:064x}" for n in range(100, 300)])
    train = make(tmp_path / "train.parquet", 200, seed=3, sha256=more)
    assert any("20 rows of --train" in note for note in evaluate(test, train=train, label="label", **QUICK).notes())


def test_a_class_that_was_never_seen_counts_as_wrong(tmp_path):
    test = make(tmp_path / "test.parquet", 100, classes=4)
    train = make(tmp_path / "train.parquet", 60, seed=3, classes=2)
    evaluation = evaluate(test, train=train, label="label", **QUICK)
    assert value(evaluation, "linear accuracy") <= 0.5
    assert any("50 of 100 rows are of classes" in note for note in evaluation.notes())


def test_what_cannot_be_learned_from_is_one_line(tables, tmp_path):
    train, test = tables
    for path, digest in ((tmp_path / "one.parquet", "a"), (tmp_path / "two.parquet", "b")):
        named = {b"curate": json.dumps({"model": {"digest": digest * 64}}).encode()}
        pq.write_table(pq.read_table(train).replace_schema_metadata(named), path)
    bare = make(tmp_path / "bare.parquet", embedding=False)
    lines = [
        ((test, "--train", train), "--label"),
        ((tmp_path / "one.parquet", "--train", tmp_path / "two.parquet", "--label", "label"), "another model"),
        ((test, "--train", bare, "--label", "label"), "embedding"),
        ((test, "--train", train, "--label", "lable"), "lable"),
        ((test, "--train", tmp_path / "gone.parquet", "--label", "label"), "gone.parquet"),
        ((test, "--train", train, "--label", "label", "--subset", train), "--train"),
    ]
    for arguments, word in lines:
        got = run(*arguments)
        assert got.exit_code == 1, arguments
        assert word in got.stderr
        assert got.stderr.strip().count("\n") == 0, got.stderr


def test_own_embeddings_compare_whichever_model_scored_the_tables(tables, tmp_path):
    paths = []
    for path, digest in zip(tables, "ab", strict=True):
        named = {b"curate": json.dumps({"model": {"digest": digest * 64}}).encode()}
        data = pq.read_table(path)
        mine = pa.array(np.stack(data["embedding"].to_numpy()).astype(np.float32).tolist(), pa.list_(pa.float32()))
        paths.append(tmp_path / f"{digest}.parquet")
        pq.write_table(data.append_column("mine", mine).replace_schema_metadata(named), paths[-1])
    by_name = evaluate(paths[1], train=paths[0], label="label", embedding="mine", **QUICK)
    usual = evaluate(tables[1], train=tables[0], label="label", **QUICK)
    assert value(by_name, "kNN accuracy") == value(usual, "kNN accuracy")
    with pytest.raises(InputError, match="another model"):
        evaluate(paths[1], train=paths[0], label="label", **QUICK)
