"""``curate evaluate``: numbers that are known beforehand, rows that are left out, and mistakes."""

import itertools
import json
from statistics import NormalDist

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.stats
import sklearn.metrics
import sklearn.neighbors
import torch
from typer.testing import CliRunner

from curate.cli import app
from curate.evaluation.correctness import Correctness, accuracies, certainty_measures
from curate.evaluation.ranked import at_random
from curate.evaluation.run import evaluate
from curate.tables.table import embedding_field
from scoring.errors import InputError

QUICK = {"repeats": 50}


def make(path, n=120, *, seed=0, classes=4, embedding=True, **changes):
    """A scored table whose kappa is high where the row lies near the middle of its class."""
    generator = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, 8))
    noise = generator.gamma(2, 0.6, n)
    rows = centres[labels] + noise[:, None] * generator.normal(size=(n, 8))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    votes = generator.multinomial(20, [0.25] * 4, n) * (noise > 1)[:, None] + 20 * np.eye(4, dtype=int)[labels % 4]
    columns = {
        "key": pa.array([f"{i}.jpg" for i in range(n)]),
        "status": pa.array(["ok"] * n),
        "label": pa.array([f"class {c}" for c in labels]),
        "votes": pa.array(votes.tolist()),
        "kappa_a": pa.array((100 / (1 + noise)).astype(np.float32)),
        "unc_b": pa.array((noise + generator.normal(size=n)).astype(np.float32)),
    }
    if embedding:
        flat = pa.array(rows.astype(np.float16).reshape(-1))
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, type=embedding_field(8).type)
    columns.update(changes)
    pq.write_table(pa.table({k: v for k, v in columns.items() if v is not None}), path)
    return path


@pytest.fixture
def table(tmp_path):
    return make(tmp_path / "s.parquet")


def measure(evaluation, name):
    return next(measure_ for measure_ in evaluation.measures if measure_.name == name)


def run(*args):
    return CliRunner().invoke(app, ["evaluate", *map(str, args)])


def test_values_equal_scikit_learn_and_scipy(table):
    evaluation = evaluate(table, label="label", votes="votes", **QUICK)
    data = pq.read_table(table)
    rows = np.stack(data["embedding"].to_numpy()).astype(np.float64)
    labels = np.array(data["label"].to_pylist())
    near = sklearn.neighbors.NearestNeighbors(n_neighbors=2, metric="cosine").fit(rows).kneighbors(rows)[1]
    other = np.where(near[:, 0] == np.arange(len(rows)), near[:, 1], near[:, 0])
    right = labels[other] == labels
    kappa, unc = data["kappa_a"].to_numpy(), data["unc_b"].to_numpy()
    assert measure(evaluation, "Recall@1").values["embedding"].value == pytest.approx(right.mean())
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine = units @ units.T - 9 * np.eye(len(rows))
    hits = labels[np.argsort(-cosine, axis=1)] == labels[:, None]
    for k in (2, 4):
        assert measure(evaluation, f"Recall@{k}").values["embedding"].value == pytest.approx(hits[:, :k].any(1).mean())
    precise = [
        sum(hit[: k + 1].mean() for k in range(r) if hit[k]) / max(r, 1)
        for hit, r in zip(hits, (labels[:, None] == labels).sum(1) - 1, strict=True)
    ]
    assert measure(evaluation, "mAP@R").values["embedding"].value == pytest.approx(np.mean(precise))
    r_auroc = measure(evaluation, "R-AUROC")
    assert r_auroc.values["kappa_a"].value == pytest.approx(sklearn.metrics.roc_auc_score(right, kappa))
    assert r_auroc.values["unc_b"].value == pytest.approx(sklearn.metrics.roc_auc_score(right, -unc))
    average = scipy.stats.rankdata(kappa) + scipy.stats.rankdata(-unc)
    assert r_auroc.values["rank average"].value == pytest.approx(sklearn.metrics.roc_auc_score(right, average))
    votes = np.sort(np.array(data["votes"].to_pylist()), axis=1)  # so that equal votes tie to the bit
    disagreement = scipy.stats.entropy(votes, axis=1)
    expected = scipy.stats.spearmanr(unc, disagreement).statistic
    assert measure(evaluation, "Spearman, votes").values["unc_b"].value == pytest.approx(expected)
    assert evaluation.columns == ["kappa_a", "unc_b", "rank average", "class entropy", "embedding", "baseline"]


def test_baselines_of_retrieval_are_the_mean_over_all_orders_of_the_others():
    labels = np.array([0, 0, 0, 1, 1, 2])
    expected = at_random(torch.from_numpy(labels))
    for row, label in enumerate(labels):
        orders = [np.array(order) == label for order in itertools.permutations(np.delete(labels, row))]
        for k in (1, 2, 4):
            assert expected[f"Recall@{k}"][row] == pytest.approx(np.mean([hits[:k].any() for hits in orders]))
        r = int((labels == label).sum()) - 1
        precise = [sum(hits[: k + 1].mean() for k in range(r) if hits[k]) / max(r, 1) for hits in orders]
        assert expected["mAP@R"][row] == pytest.approx(np.mean(precise))


def test_every_number_is_in_its_interval_and_says_which_way_is_better(table):
    evaluation = evaluate(table, label="label", votes="votes", against=table, **QUICK)
    assert len(evaluation.measures) > 12
    for each in evaluation.measures:
        assert each.meaning
        assert each.n >= 100
        assert each.better == "higher" or each.name.startswith(("AURC", "excess", "mean", "AUROC, against"))
        for interval in each.values.values():
            assert interval.low <= interval.value + 0.05 * abs(interval.value)
            assert interval.value - 0.05 * abs(interval.value) <= interval.high


def test_intervals_hold_the_truth_where_few_rows_are_wrong():
    generator, common = np.random.default_rng(0), {"repeats": 60, "seed": 0}
    covered, n, n_wrong, rate = np.zeros(2), 100, 2, 0.99
    for _ in range(60):
        random = Correctness({"linear": np.arange(n) >= n_wrong}, None, {})
        measures, _ = certainty_measures({"a": generator.normal(size=n)}, random, **common)
        right = Correctness({"linear": generator.random(n) < rate}, None, {}, baseline={"linear": np.zeros(n)})
        found = measures[0].values["a"], accuracies(right, **common)[0].values["embedding"]
        covered += [each.low <= truth <= each.high for each, truth in zip(found, (0.5, rate), strict=True)]
    assert (covered >= 0.9 * 60).all()  # resamples alone: about 0.6 of both
    assert random.few == {"linear": (n_wrong, n - n_wrong)}


def test_the_interval_of_an_auroc_holds_the_truth_with_fifteen_errors():
    generator, n, n_wrong, truth = np.random.default_rng(0), 300, 15, 0.97
    right = np.arange(n) >= n_wrong
    above, covered = np.sqrt(2) * NormalDist().inv_cdf(truth), 0
    for _ in range(60):
        scores = generator.normal(size=n) + above * right
        measures, _ = certainty_measures({"a": scores}, Correctness({"linear": right}, None, {}), repeats=60, seed=0)
        covered += measures[0].values["a"].low <= truth <= measures[0].values["a"].high
    assert covered >= 0.9 * 60  # resamples alone: about three in four


def test_the_verdict_refuses_no_score_by_a_handful_of_errors(tmp_path):
    generator = np.random.default_rng(2)
    rows = np.eye(8)[np.arange(80) % 2] + generator.normal(size=(80, 8)) / 20
    rows[0] = rows[1] + 0.01  # one row among those of another class
    flat = pa.array((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16).reshape(-1))
    embedding = pa.FixedSizeListArray.from_arrays(flat, type=embedding_field(8).type)
    path = make(tmp_path / "few.parquet", 80, classes=2)
    made = pq.read_table(path)
    at = made.schema.get_field_index("embedding")
    pq.write_table(made.set_column(at, "embedding", embedding), path)
    result = evaluate(path, label="label", **QUICK)
    assert result.caveats.few["linear"] == (1, 79)
    assert "cannot be determined" in result.verdict()[0]
    assert any("linear" in note and "right on 79" in note for note in result.notes())


def test_a_table_does_not_differ_from_itself_but_from_a_more_certain_one(tmp_path, table):
    same = measure(evaluate(table, against=table, **QUICK), "AUROC, against")
    assert same.values["kappa_a"].value == pytest.approx(0.5)
    kappa = pq.read_table(table)["kappa_a"].to_numpy()
    worse = make(tmp_path / "w.parquet", kappa_a=pa.array(kappa - 1000))
    apart = measure(evaluate(table, against=worse, **QUICK), "AUROC, against")
    assert apart.values["kappa_a"].value == 1


def test_differences_are_paired_and_of_the_best_column(table):
    evaluation = evaluate(table, label="label", column=["kappa_a", "unc_b"], **QUICK)
    gaps = measure(evaluation, "R-AUROC").differences
    values = {name: interval.value for name, interval in measure(evaluation, "R-AUROC").values.items()}
    best = max(values, key=values.get)
    assert {gap.first for gap in gaps} == {best}
    for gap in gaps:
        assert gap.interval.value == pytest.approx(values[best] - values[gap.second])
        assert gap.interval.low <= gap.interval.value <= gap.interval.high


def test_rows_without_status_label_or_score_are_left_out_and_counted(tmp_path, table):
    data = pq.read_table(table).to_pydict()
    data["status"][:3] = ["corrupt"] * 3
    data["label"][3:5] = [None] * 2
    data["kappa_a"][5:9] = [float("nan")] * 3 + [None]
    path = make(
        tmp_path / "holes.parquet",
        status=pa.array(data["status"]),
        label=pa.array(data["label"]),
        kappa_a=pa.array(data["kappa_a"], pa.float32()),
    )
    evaluation = evaluate(path, label="label", **QUICK)
    assert evaluation.left_out == {"status is not ok": 3, "a score is null or NaN": 4, "without a label": 2}
    assert evaluation.used == 111
    assert measure(evaluation, "Recall@1").n == 111


def test_another_order_of_rows_gives_the_same_sample_and_accuracy(tmp_path, table):
    settings = {"repeats": 20, "sample": 60}
    shuffled = tmp_path / "shuffled.parquet"
    order = np.random.default_rng(0).permutation(120)
    pq.write_table(pq.read_table(table).take(order), shuffled)
    before, after = (evaluate(path, label="label", **settings) for path in (table, shuffled))
    assert before.used == after.used == 60
    for name in ("Recall@1", "R-AUROC", "kNN accuracy"):
        a, b = measure(before, name), measure(after, name)
        assert [interval.value for interval in a.values.values()][:3] == pytest.approx(
            [interval.value for interval in b.values.values()][:3]
        )


def test_labels_of_a_file_are_joined_by_key(tmp_path, table):
    data = pq.read_table(table)
    lines = [f"{key},{label}" for key, label in zip(data["key"].to_pylist(), data["label"].to_pylist(), strict=True)]
    (tmp_path / "truth.csv").write_text("\n".join(["key,class", *lines[::-1][10:]]) + "\n")
    evaluation = evaluate(table, labelled=tmp_path / "truth.csv", label="class", **QUICK)
    assert evaluation.used == 110
    inside = evaluate(table, label="label", **QUICK)
    assert inside.used == 120
    pq.write_table(data.select(["key", "votes"]).slice(20), tmp_path / "v.parquet")
    votes = evaluate(table, labelled=tmp_path / "v.parquet", votes="votes", **QUICK)
    assert measure(votes, "Spearman, votes").n == 100
    assert votes.caveats.without_votes == 20
    assert any("20 of 120 rows" in note for note in votes.notes())


def test_without_embeddings_what_needs_none_still_runs_and_the_rest_says_why(tmp_path):
    path = make(tmp_path / "s.parquet", embedding=False)
    evaluation = evaluate(path, label="label", votes="votes", **QUICK)
    assert measure(evaluation, "Spearman, votes").values
    assert "no embedding column" in measure(evaluation, "R-AUROC").missing
    assert "no embedding column" in run(path, "--label", "label", "--repeats", 5).stdout


def test_a_table_of_uncertainties_alone_has_them_turned(tmp_path):
    path = make(tmp_path / "s.parquet", kappa_a=None)
    evaluation = evaluate(path, label="label", **QUICK)
    assert "rank average" not in evaluation.columns
    turned = make(tmp_path / "t.parquet", kappa_a=pa.array(-pq.read_table(path)["unc_b"].to_numpy()), unc_b=None)
    again = evaluate(turned, label="label", **QUICK)
    assert measure(evaluation, "R-AUROC").values["unc_b"] == measure(again, "R-AUROC").values["kappa_a"]


def test_infinite_uncertainty_is_the_least_certain_and_has_no_slope(tmp_path):
    unc = pq.read_table(make(tmp_path / "s.parquet"))["unc_b"].to_numpy().copy()
    unc[0] = np.inf
    evaluation = evaluate(make(tmp_path / "i.parquet", unc_b=pa.array(unc)), label="label", **QUICK)
    assert np.isfinite(measure(evaluation, "R-AUROC").values["unc_b"].value)
    assert "unc_b" not in measure(evaluation, "logistic slope").values
    assert evaluation.caveats.without_slope["unc_b"] == "infinite"
    assert any("infinite" in note for note in evaluation.notes())


def test_fewer_different_embeddings_than_folds_leave_the_linear_classifier_out_with_a_note(tmp_path):
    rows = np.tile(np.eye(8, dtype=np.float16)[:2], (60, 1))
    same = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=embedding_field(8).type)
    path = make(tmp_path / "s.parquet", embedding=False, label=pa.array(["a", "a", "b", "b"] * 30))
    table = pq.read_table(path).append_column("embedding", same)
    pq.write_table(table, path)
    evaluation = evaluate(path, label="label", **QUICK)
    assert (
        measure(evaluation, "linear accuracy").missing == "the rows have 2 different embeddings, fewer than the 5 folds"
    )
    assert measure(evaluation, "Recall@1").values["embedding"].value == pytest.approx(0.5, abs=0.05)
    assert measure(evaluation, "R-AUROC").values


MISTAKES = {
    "a column that is missing": (["--label", "labl"], {}, "no column 'labl'; did you mean 'label'?"),
    "nothing to measure": ([], {}, "expected something to measure against"),
    "one class": (["--label", "label"], {"label": ["a"] * 120}, "at least two classes in 'label', got one"),
    "no label": (["--label", "label"], {"label": pa.nulls(120, pa.string())}, "got none on a row that has a score"),
    "fractions": (["--label", "label"], {"label": np.arange(120) / 7}, "expected classes in 'label', got fractions"),
    "lists as labels": (["--label", "votes"], {}, "expected one label a row in 'votes'"),
    "no score": (["--label", "label"], {"kappa_a": None, "unc_b": None}, "expected a score column"),
    "a score of text": (["--label", "label", "--column", "key"], {}, "numbers in column 'key'"),
    "scores of NaN": (["--label", "label"], {"unc_b": [float("nan")] * 120}, "got null or NaN in every row"),
    "votes of several lengths": (
        ["--votes", "votes"],
        {"votes": [[1, 2, 3]] * 100 + [[1, 2]] * 20},
        "lists of one length in 'votes', got",
    ),
    "votes that are numbers": (["--votes", "kappa_a"], {}, "expected lists of counts"),
    "no votes at all": (["--votes", "votes"], {"votes": [[0, 0]] * 120}, "every list is null or all zero"),
    "negative votes": (["--votes", "votes"], {"votes": [[1, -1]] * 120}, "got a negative or infinite count"),
    "empty votes": (["--votes", "votes"], {"votes": pa.array([[]] * 120, pa.list_(pa.int64()))}, "got empty lists"),
    "a report in no folder": (["--label", "label", "-o", "/dev/null/r.json"], {}, "not a folder"),
    "a source that nothing reads": (["--label", "label", "--source", "x"], {}, "--source needs --degrade"),
    "a model that nothing runs": (["--label", "label", "--model", "x"], {}, "--model needs --degrade"),
    "no file": (["--labelled", "truth.csv", "--label", "x"], {}, "truth.csv, got: No such file"),
    "repeats": (["--label", "label", "--repeats", "0"], {}, "--repeats must be between 1"),
    "a small sample": (["--label", "label", "--sample", "3"], {}, "--sample must be at least 20, got 3"),
    "a report of another kind": (["--label", "label", "-o", "r.txt"], {}, "ends in .json"),
    "corrupted images of no model": (["--degrade", "20"], {}, "pass it as --model"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    args, changes, text = MISTAKES[name]
    make("s.parquet", **{k: v if v is None or isinstance(v, pa.Array) else pa.array(v) for k, v in changes.items()})
    result = run("s.parquet", *args)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert text in result.stderr


def test_too_few_rows_are_counted_by_reason(tmp_path):
    path = make(tmp_path / "s.parquet", n=24, status=pa.array(["ok"] * 10 + ["corrupt"] * 14))
    with pytest.raises(InputError, match=r"10 of 24 \(14 status"):
        evaluate(path, label="label")


def test_keys_that_do_not_meet_are_shown_from_both_sides(tmp_path, table):
    (tmp_path / "t.csv").write_text("key,label\nother,1\n")
    with pytest.raises(InputError, match=r"here '0\.jpg', there 'other'"):
        evaluate(table, labelled=tmp_path / "t.csv")


def test_tables_of_two_models_are_not_compared(tmp_path, table):
    paths = []
    for digest in ("aaa", "bbb"):
        data = pq.read_table(table)
        metadata = {b"curate": json.dumps({"kind": "scores", "model": {"digest": digest}}).encode()}
        paths.append(tmp_path / f"{digest}.parquet")
        pq.write_table(data.replace_schema_metadata(metadata), paths[-1])
    with pytest.raises(InputError, match="scored by another model"):
        evaluate(paths[0], against=paths[1])


def test_the_report_is_the_json_and_is_not_replaced_unless_requested(tmp_path, table):
    out = tmp_path / "r.json"
    result = run(table, "--label", "label", "--repeats", 20, "--json", "-o", out)
    assert result.exit_code == 0, result.output
    assert json.loads(out.read_text()) == json.loads(result.stdout)
    names = [each["name"] for each in json.loads(result.stdout)["measures"]]
    assert {"Recall@1", "R-AUROC", "AUROC, linear right", "logistic slope", "excess AURC, linear"} <= set(names)
    assert len(json.loads(result.stdout)["curves"]["linear"]["kappa_a"]) == 10
    again = run(table, "--label", "label", "-o", out)
    assert again.exit_code == 1
    assert "exists already" in again.stderr


def test_the_printed_table_has_a_row_a_measure_and_a_sentence_for_each(table, monkeypatch):
    monkeypatch.setattr("curate.evaluation.work.MOST_FAST", 119)
    result = run(table, "--label", "label", "--repeats", 20)
    assert "R-AUROC ↑" in result.stdout
    assert "higher is better" in result.stdout
    assert "at unit length" in result.stdout
    assert all(words in result.stderr for words in ("neighbours and linear classifiers of 120 rows", "--sample"))
    assert run(table, "--label", "label", "--repeats", 20, "--quiet").stderr == ""


def test_the_same_seed_gives_the_same_numbers(table):
    first, second = (evaluate(table, label="label", **QUICK).to_json() for _ in "ab")
    assert first == second


def test_an_empty_label_of_a_csv_is_missing_and_no_class(tmp_path, table):
    keys, labels = (pq.read_table(table)[name].to_pylist() for name in ("key", "label"))
    rows = [f"{key},{'' if i < 30 else label}" for i, (key, label) in enumerate(zip(keys, labels, strict=True))]
    (tmp_path / "truth.csv").write_text("\n".join(["key,class", *rows]))
    evaluation = evaluate(table, labelled=tmp_path / "truth.csv", label="class", repeats=5)
    assert evaluation.left_out["without a label"] == 30
    assert evaluation.used == 90


def test_nothing_is_printed_as_minus_nothing(tmp_path):
    """No row has its neighbour's label, so every accuracy is 0."""
    make(tmp_path / "s.parquet", label=pa.array([f"one of a kind {i}" for i in range(120)]))
    result = run(tmp_path / "s.parquet", "--label", "label", "--repeats", "20")
    assert result.exit_code == 0, result.output
    assert "0.000 [0.000, 0.000]" in result.stdout
    assert "-0.000" not in result.stdout


def test_real_scores_separate_right_from_wrong(shared_data, tmp_path):
    from curate.engines.score import score

    out = tmp_path / "s.parquet"
    score(shared_data / "cifar10_test.parquet", out, key="id", limit=300, device="cpu", fit=False)
    people = shared_data / "cifar10h_test_0-1999.parquet"
    settings = {"repeats": 100}
    evaluation = evaluate(out, label="label", labelled=people, votes="counts", **settings)
    column = next(name for name in evaluation.columns if name.startswith(("kappa_", "unc_")))
    assert measure(evaluation, "R-AUROC").values[column].low > 0.5
    assert measure(evaluation, "R-AUROC").p[column] == pytest.approx(1 / 101)
    assert measure(evaluation, "Spearman, votes").values[column].value > 0


def test_a_class_too_large_to_rank_has_no_average_precision_and_says_why(table, monkeypatch):
    monkeypatch.setattr("curate.evaluation.ranked.MOST_RANKED", 1000)
    evaluation = evaluate(table, label="label", **QUICK)
    assert "(--sample)" in measure(evaluation, "mAP@R").missing
    assert measure(evaluation, "Recall@4").values
