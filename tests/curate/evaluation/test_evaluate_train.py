"""``curate evaluate --train``: predictions learned from another table, against scikit-learn."""

import itertools
import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn.linear_model
import sklearn.metrics
import sklearn.neighbors
import torch
from test_evaluate import QUICK, make, measure, run

from curate.evaluation.run import evaluate
from curate.evaluation.trained import _few_rows
from curate.probes.mixture import fit_mixture
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


def test_accuracies_equal_scikit_learn(tables):
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


@pytest.mark.parametrize(("k", "temperature"), [(50, 0.1), (200, 0.01)])
def test_the_vote_equals_a_search_over_all_pairs(tables, k, temperature):
    train, test = tables
    (x, y), (z, answer) = units(train), units(test)
    cosine, names = z @ x.T, np.unique(y)
    least = np.sort(cosine, 1)[:, -k][:, None]
    weight = np.where(cosine >= least, np.exp(cosine / temperature), 0)
    votes = np.stack([weight[:, y == name].sum(1) for name in names], 1)
    evaluation = evaluate(
        test, train=train, label="label", probe="knn", set={"k": k, "temperature": temperature}, **QUICK
    )
    assert value(evaluation, "kNN accuracy") == pytest.approx((names[votes.argmax(1)] == answer).mean())
    assert value(evaluation, "1-NN accuracy", "baseline") == pytest.approx(0.25)
    assert {each.name for each in evaluation.measures}.isdisjoint({"linear accuracy", "AUROC, linear right"})


def test_clusters_get_the_classes_of_the_best_matching_and_agree_as_scikit_learn_says(tables):
    train, test = tables
    evaluation = evaluate(test, train=train, label="label", probe=["gmm"], set={"starts": 2}, **QUICK)
    (x, y), (z, answer) = (
        (torch.from_numpy(rows.astype(np.float32)), np.unique(labels, return_inverse=True)[1])
        for rows, labels in map(units, (train, test))
    )
    mixture = fit_mixture(x, 4, starts=2, seed=0)
    learned, clusters = mixture.clusters(x).numpy(), mixture.clusters(z).numpy()
    best = max(itertools.permutations(range(4)), key=lambda names: (np.array(names)[learned] == y).sum())
    assert value(evaluation, "GMM accuracy") == pytest.approx((np.array(best)[clusters] == answer).mean())
    nmi, ari = (
        score(answer, clusters)
        for score in (sklearn.metrics.normalized_mutual_info_score, sklearn.metrics.adjusted_rand_score)
    )
    assert value(evaluation, "GMM NMI") == pytest.approx(nmi)
    assert value(evaluation, "GMM ARI") == pytest.approx(ari)
    for each in evaluation.measures:
        low, high = each.values["embedding"][1:]
        assert low < each.values["embedding"].value < high
        assert each.values["baseline"].value < low


def test_a_perceptron_and_labels_by_number_are_measured(tables):
    train, test = tables
    evaluation = evaluate(
        test, train=train, label="label", probe="mlp,few,lars", set={"labels": "3, 10%", "draws": 2}, **QUICK
    )
    few, share = (
        measure(evaluation, "linear accuracy, 3 labels a class"),
        measure(evaluation, "linear accuracy, 10% of labels"),
    )
    drawn = [float(text) for text in re.findall(r"0\.\d{3}", few.meaning)]
    assert len(drawn) == 2
    assert few.values["embedding"].value == pytest.approx(np.mean(drawn), abs=1e-3)
    assert 0.3 < few.values["embedding"].value < value(evaluation, "MLP accuracy")
    assert share.values["embedding"].value > 0.3
    assert value(evaluation, "LARS accuracy") > 0.5
    assert (evaluation.settings["passes"], evaluation.settings["rate"]) == (200, 1.6)
    assert "k" not in evaluation.settings


def test_a_share_of_the_labels_is_a_share_of_each_class():
    labels = torch.tensor([0] * 100 + [1] * 10 + [2])
    chosen = _few_rows(labels, 0.1, torch.Generator().manual_seed(0))
    assert torch.bincount(labels[chosen]).tolist() == [10, 1, 1]


def test_images_that_are_measured_are_no_images_to_learn_from(tmp_path):
    digests = pa.array([f"{n:064x}" for n in range(120)])
    test = make(tmp_path / "test.parquet", 120, sha256=digests)
    with pytest.raises(InputError, match="120 images"):
        evaluate(test, train=test, label="label", **QUICK)
    more = pa.array([f"{n:064x}" for n in range(100, 300)])
    train = make(tmp_path / "train.parquet", 200, seed=3, sha256=more)
    assert any("20 rows of --train" in note for note in evaluate(test, train=train, label="label", **QUICK).notes())


def test_a_class_that_was_never_seen_counts_as_wrong(tmp_path):
    test = make(tmp_path / "test.parquet", 100, classes=4)
    train = make(tmp_path / "train.parquet", 60, seed=3, classes=2)
    evaluation = evaluate(test, train=train, label="label", **QUICK)
    assert value(evaluation, "linear accuracy") <= 0.5
    assert any("50 of 100 rows" in note for note in evaluation.notes())


def test_what_cannot_be_learned_from_is_one_line(tables, tmp_path):
    train, test = tables
    for path, digest in ((tmp_path / "one.parquet", "a"), (tmp_path / "two.parquet", "b")):
        named = {b"curate": json.dumps({"model": {"digest": digest * 64}}).encode()}
        pq.write_table(pq.read_table(train).replace_schema_metadata(named), path)
    bare = make(tmp_path / "bare.parquet", embedding=False)
    learned = pq.read_table(train)
    other = learned.set_column(learned.schema.get_field_index("label"), "label", pa.array(["other", "more"] * 100))
    pq.write_table(other, tmp_path / "named.parquet")
    lines = [
        ((test, "--train", tmp_path / "named.parquet", "--label", "label"), "classes"),
        ((test, "--train", train), "--label"),
        ((tmp_path / "one.parquet", "--train", tmp_path / "two.parquet", "--label", "label"), "another model"),
        ((test, "--train", bare, "--label", "label"), "embedding"),
        ((test, "--train", train, "--label", "lable"), "lable"),
        ((test, "--train", tmp_path / "gone.parquet", "--label", "label"), "gone.parquet"),
        ((test, "--train", train, "--label", "label", "--subset", train), "--train"),
        ((test, "--label", "label", "--probe", "knn"), "--train"),
        ((test, "--train", train, "--label", "label", "--probe", "mpl"), "mlp"),
        ((test, "--train", train, "--label", "label", "--set", "k=201"), "200"),
        ((test, "--train", train, "--label", "label", "--set", "temperature=0"), "temperature"),
        ((test, "--train", train, "--label", "label", "--set", "labels=0"), "10%"),
        ((test, "--train", train, "--label", "label", "--set", "passes=9"), "mlp"),
        ((test, "--train", train, "--label", "label", "--set", "neighbours=9"), "neighbours"),
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


@pytest.mark.parametrize("probe", ["knn", "linear"])
def test_a_model_without_a_score_is_measured_by_its_embeddings(tables, tmp_path, probe):
    train, test = tables
    data = pq.read_table(test)
    scores = [name for name in data.column_names if name.startswith(("kappa_", "unc_"))]
    bare = tmp_path / "bare.parquet"
    pq.write_table(data.drop_columns(scores), bare)
    usual, alone = (evaluate(path, train=train, label="label", probe=probe, **QUICK) for path in (test, bare))
    name = {"knn": "kNN accuracy", "linear": "linear accuracy"}[probe]
    assert value(alone, name) == value(usual, name)
    assert set(alone.columns) == {"embedding", "baseline", *(["class entropy"] if probe == "linear" else [])}
    for options in ({}, {"train": train, "against": test}):
        with pytest.raises(InputError, match="score column"):
            evaluate(bare, label="label", **options, **QUICK)
