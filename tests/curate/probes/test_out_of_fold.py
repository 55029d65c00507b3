"""small-loss on a table: losses from embeddings alone, or from a column."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from choosing import columns_of, csv, table, write
from typer.testing import CliRunner

import curate
from curate.cli import app
from curate.policies.verify import verify
from curate.probes import out_of_fold
from curate.probes.linear import spread_of
from curate.probes.probabilities import Labelled
from curate.selectors.contract import Pool
from curate.tables.vectors import vector_hashes
from scoring.errors import InputError
from scoring.metrics.classifier import spread_folds


def pool_of(n=90, classes=3, seed=0, d=6):
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    vectors = np.eye(classes, d)[labels] + 0.6 * generator.standard_normal((n, d))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return Pool(np.arange(n), vectors=vectors, labels=labels)


def losses(pool, classes=None, excluded=None):
    names = tuple("abcdefghij"[: classes or int(pool.labels.max()) + 1])
    out = np.zeros(len(pool.labels), bool) if excluded is None else excluded
    pool, facts, notes = out_of_fold.with_label_losses(pool, Labelled(classes=names), "label", out)
    return pool.holdout_loss, facts, notes


def flipped(columns, share=0.3, seed=1):
    """The columns with some labels moved on to the next class, and which."""
    generator = np.random.default_rng(seed)
    wrong = generator.random(len(columns["label"])) < share
    names = sorted(set(columns["label"]))
    moved = [
        names[(names.index(name) + 1) % len(names)] if is_wrong else name
        for name, is_wrong in zip(columns["label"], wrong, strict=True)
    ]
    return {**columns, "label": moved}, wrong


def batch_of(result):
    return pq.read_table(result.subset)


def test_losses_come_from_logistic_regressions_on_the_other_folds(monkeypatch):
    from sklearn.linear_model import LogisticRegression

    loose = losses(pool_of())[0]
    monkeypatch.setattr(out_of_fold, "TOLERANCE", 1e-9)
    pool = pool_of()
    loss, facts, _ = losses(pool)
    spread = spread_of(pool.vectors)
    rows = (pool.vectors.astype(np.float64) - spread.mean) * spread.scale
    of_vector = np.unique(vector_hashes(pool.vectors), return_inverse=True)[1].astype(np.int64)
    folds = spread_folds(torch.from_numpy(pool.labels), 5, seed=0, groups=torch.from_numpy(of_vector)).numpy()
    expected, right = np.full(90, np.nan), 0
    for fold in range(5):
        held, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        model = LogisticRegression(C=1.0, tol=1e-10, max_iter=5000).fit(rows[others], pool.labels[others])
        expected[held] = -model.predict_log_proba(rows[held])[np.arange(len(held)), pool.labels[held]]
        right += int((model.predict(rows[held]) == pool.labels[held]).sum())
    assert np.abs(loss - expected).max() < 1e-4
    assert np.abs(loose - expected).max() < 0.02  # as far as a fit goes that is stopped early
    assert (facts["rows"], facts["says_otherwise"], facts["not_judged"]) == (90, 90 - right, 0)


def test_an_identical_embedding_never_confirms_itself():
    """Of a class there are two rows, one the copy of the other: no model of other rows knows the class."""
    pool = pool_of(61)
    pool.labels[60], pool.labels[59] = 3, 3
    assert (losses(pool)[0] < 80).all()
    pool.vectors[60] = pool.vectors[59]
    loss, facts, notes = losses(pool)
    assert np.flatnonzero(loss > 80).tolist() == [59, 60]
    assert (facts["rows"], facts["not_judged"]) == (59, 2)
    assert notes[1] == "2 rows have the largest loss, because their class has no other image: 'd'"


def test_a_class_of_one_row_gets_the_largest_loss_and_is_reported():
    pool = pool_of(60)
    pool.labels[7] = 3
    loss, facts, notes = losses(pool)
    assert loss.argmax() == 7
    assert loss[7] == pytest.approx(-np.log(np.finfo(np.float32).tiny))
    assert np.isfinite(loss).all()
    assert facts["classes"] == 4
    assert notes[1] == "1 row has the largest loss, because their class has no other image: 'd'"


def test_rows_that_are_excluded_or_have_no_class_are_not_used():
    pool = pool_of()
    out = np.arange(90) >= 80
    first = losses(pool, 3, out)[0]
    pool.labels[80:] = (pool.labels[80:] + 1) % 3
    assert np.array_equal(losses(pool, 3, out)[0], first)
    pool.labels[80:] = -1
    loss, facts, _ = losses(pool, 3)
    assert np.array_equal(loss, first)
    assert facts["rows"] == 80
    assert (loss[80:] > 80).all()


def test_of_many_rows_some_of_every_class_are_learned_from(monkeypatch):
    monkeypatch.setattr(out_of_fold, "MOST_ROWS", 12)
    pool = pool_of(400, classes=2)
    pool.labels[395:] = 2
    loss, facts, _ = losses(pool)
    assert (facts["rows"], facts["not_judged"]) == (400, 0)
    assert loss[395:].max() < 80


def test_blocks_change_nothing(monkeypatch):
    loss = losses(pool_of())[0]
    monkeypatch.setattr(out_of_fold, "BLOCK_NUMBERS", 30)
    assert np.abs(losses(pool_of())[0] - loss).max() < 1e-6


def test_wrong_labels_of_a_table_are_left_out_counted_and_verified(tmp_path):
    columns, wrong = flipped(columns_of(300))
    source = write(tmp_path / "s.parquet", columns)
    result = curate.select(source, tmp_path / "b.parquet", "small-loss", "20%")
    is_wrong = dict(zip(columns["key"], wrong.tolist(), strict=True))
    batch = batch_of(result)
    picked = [is_wrong[key] for key in batch["key"].to_pylist()]
    assert wrong.mean() > 0.25
    assert np.mean(picked) < wrong.mean() / 3
    names, counts = np.unique(batch["label"].to_pylist(), return_counts=True)
    assert (len(names), counts.tolist()) == (5, [12] * 5)
    assert batch["part_trusted"].to_pylist() == [1.0] * 60
    assert 0 < batch["gain"].to_numpy().min() <= batch["gain"].to_numpy().max() <= 1
    agree = 300 - result.model["says_otherwise"]
    assert abs(agree - (~wrong).sum()) < 30
    assert result.notes[0] == (
        "5 probes, each applied to rows that it was not fitted on, agree with 'label' on "
        f"{agree / 300:.1%} of 300 rows and disagree on {300 - agree:,}"
    )
    assert json.loads(result.receipt.read_text())["probe"]["kind"] == "linear probe, out of fold"
    assert verify(result.receipt).identical
    moved = {**columns, "label": [columns["label"][-1], *columns["label"][:-1]]}
    write(source, moved)
    assert not verify(result.receipt).identical


def test_a_smaller_budget_is_a_prefix_of_a_larger_one_in_the_table_too(tmp_path):
    source = write(tmp_path / "s.parquet", flipped(columns_of(120))[0])
    few, many = (
        batch_of(curate.select(source, tmp_path / f"{n}.parquet", "small-loss", n, seed=3))["key"].to_pylist()
        for n in (20, 90)
    )
    assert many[:20] == few


def test_a_column_of_losses_replaces_embeddings(tmp_path):
    source = table(tmp_path / "s.parquet", 60, embedding=None)
    result = curate.select(source, tmp_path / "b.parquet", "small-loss", 15, holdout_loss="holdout")
    assert result.model == {}
    rows = {row["key"]: row for row in pq.read_table(source).to_pylist()}
    for label in {row["label"] for row in rows.values()}:
        best = sorted(row["holdout"] for row in rows.values() if row["label"] == label)[:6]
        picked = [rows[row["key"]]["holdout"] for row in batch_of(result).to_pylist() if row["label"] == label]
        assert len(picked) == 3
        assert set(picked) <= set(best)
    gains = batch_of(result)["gain"].to_numpy()
    assert np.allclose(gains, np.exp(-batch_of(result)["holdout"].to_numpy()), rtol=1e-6)
    assert verify(result.receipt).identical


def test_labelled_rows_are_used_with_the_class_of_the_file_and_are_not_picked(tmp_path):
    source = table(tmp_path / "s.parquet", 60)
    of_first = [(f"img/{i:03}.png", "class 0") for i in range(0, 40, 5)]
    labels = csv(tmp_path / "l.csv", of_first)
    result = curate.select(source, tmp_path / "b.parquet", "small-loss", 28, labelled=labels)
    batch = batch_of(result)
    assert not {key for key, _ in of_first} & set(batch["key"].to_pylist())
    counts = dict(zip(*np.unique(batch["label"].to_pylist(), return_counts=True), strict=True))
    assert counts.get("class 0", 0) == 0  # eight are there already; 28 are seven of each other class
    assert [counts[f"class {c}"] for c in range(1, 5)] == [7, 7, 7, 7]
    renamed = csv(tmp_path / "l2.csv", [(key, "yak") for key, _ in of_first])
    result = curate.select(source, None, "small-loss", 5, labelled=renamed, dry_run=True)
    assert result.model["classes"] == 6


def test_shares_and_the_gate_work_as_for_other_strategies(tmp_path):
    source = table(tmp_path / "s.parquet", 60)
    result = curate.select(source, tmp_path / "a.parquet", "small-loss", 4, per="photographer")
    who = batch_of(result)["photographer"].to_pylist()
    assert {name: who.count(name) for name in set(who)} == {"ann": 4, "bob": 4, None: 4}
    assert verify(result.receipt).identical
    result = curate.select(
        source, tmp_path / "b.parquet", "small-loss", 12, balance="photographer", gate=0.5, quality="unc_losspred"
    )
    assert batch_of(result)["unc_losspred"].to_numpy().max() < np.median(
        pq.read_table(source)["unc_losspred"].to_numpy()
    )
    with pytest.raises(InputError, match=r"--discount .*small-loss"):
        curate.select(source, None, "small-loss", 4, discount=True, quality="unc_losspred", dry_run=True)


def test_rows_without_a_class_are_reported_and_picked_last(tmp_path):
    source = table(tmp_path / "s.parquet", 60, label=[("a", None, "b")[i % 3] for i in range(60)])
    result = curate.select(source, tmp_path / "b.parquet", "small-loss", 50)
    assert batch_of(result)["label"].to_pylist()[40:] == [None] * 10
    assert None not in batch_of(result)["label"].to_pylist()[:40]
    assert result.notes[0] == "20 of 60 candidates without label, which are picked last"


def test_other_threads_pick_the_same_rows(tmp_path):
    source = write(tmp_path / "s.parquet", flipped(columns_of(200))[0])
    before, made = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            made.append(curate.select(source, tmp_path / f"{threads}.parquet", "small-loss", 80))
    finally:
        torch.set_num_threads(before)
    assert batch_of(made[0])["key"].to_pylist() == batch_of(made[1])["key"].to_pylist()


@pytest.mark.parametrize(
    ("columns", "asked", "said"),
    [
        ({"label": None}, {}, "small-loss .* no column 'label'"),
        ({"label": [None] * 60}, {}, "the 60 rows"),
        ({"label": ["cat"] * 60}, {}, "'cat' alone"),
        ({}, {"label": "key"}, "60 rows of 60"),
        ({"embedding": None}, {}, "has no 'embedding' column"),
        ({}, {"holdout_loss": "nothing"}, "has no column 'nothing'"),
        ({"holdout": -np.arange(60.0)}, {"holdout_loss": "holdout"}, "negate log-likelihoods"),
        ({}, {"strategy": "auto", "holdout_loss": "holdout"}, "small-loss, got auto"),
    ],
)
def test_what_cannot_be_requested_is_one_line(tmp_path, columns, asked, said):
    source = table(tmp_path / "s.parquet", 60, **columns)
    with pytest.raises(InputError, match=said) as error:
        curate.select(source, None, **{"strategy": "small-loss", "budget": 5, "dry_run": True, **asked})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(("limit", "value", "most"), [("MOST_CLASSES", 4, 4), ("MOST_WEIGHTS", 24, 3)])
def test_more_classes_than_a_fit_should_hold_are_refused(tmp_path, monkeypatch, limit, value, most):
    monkeypatch.setattr(out_of_fold, limit, value)
    source = table(tmp_path / "s.parquet", 60)
    with pytest.raises(InputError, match=f"{most} classes .*got 5"):
        curate.select(source, None, "small-loss", 5, dry_run=True)


def test_the_command_says_what_the_models_found(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table(tmp_path / "s.parquet", 60)
    done = CliRunner().invoke(app, ["select", "s.parquet", "-b", "10%", "--strategy", "small-loss", "-o", "b.parquet"])
    assert done.exit_code == 0, done.output
    assert "5 probes" in done.stderr
    assert "probe" in (tmp_path / "b.receipt.json").read_text()
