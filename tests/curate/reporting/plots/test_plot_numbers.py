"""The numbers behind each kind of image, against a slow restatement or another library."""

import json
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import auc, roc_curve

import curate
from scoring.errors import InputError

N = 240
CLASSES = 6


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A table of N rows in six classes, whose kappa is high where the embedding is near the middle of its class."""
    folder = tmp_path_factory.mktemp("plots")
    draw = np.random.default_rng(0)
    label = np.arange(N) % CLASSES
    noise = draw.uniform(0.1, 1.6, N)
    centres = draw.normal(size=(CLASSES, 8))
    embedding = centres[label] / np.linalg.norm(centres[label], axis=1)[:, None] + noise[:, None] * draw.normal(
        size=(N, 8)
    ) / np.sqrt(8)
    embedding /= np.linalg.norm(embedding, axis=1)[:, None]
    kappa = np.exp(4 - noise + 0.2 * draw.normal(size=N)).round(1)  # with ties
    chance = np.clip(1.1 - 0.5 * noise, 0, 1)
    names = np.array(["ant", "bee", "cat", "dog", "eel", "fox"])[label]
    table = pa.table(
        {
            "key": [f"{i:03}.png" for i in range(N)],
            "status": ["ok"] * (N - 2) + ["corrupt"] * 2,
            "embedding": pa.FixedSizeListArray.from_arrays(embedding.astype(np.float32).ravel(), 8),
            "kappa_visimsiam": pa.array([*kappa[:-2], None, None], pa.float64()),
            "unc_losspred": pa.array([*noise[:-2], None, None], pa.float64()),
            "label": names,
            "right": draw.random(N) < chance,
            "confidence": chance,
            "even": draw.uniform(0.001, 1, N),
            "wide": 10.0 ** draw.uniform(-3, 3, N),
        }
    )
    pq.write_table(table, folder / "s.parquet")
    return folder


@pytest.fixture(scope="module")
def rows(place):
    return pl.read_parquet(place / "s.parquet").filter(pl.col("status") == "ok")


def numbers(place, kind, **options):
    drawn = curate.plot(place / "s.parquet", kind, **options)
    json.dumps(drawn.to_json(), allow_nan=False)
    return drawn.numbers


def test_a_histogram_counts_every_row_with_a_value_once(place, rows):
    drawn = numbers(place, "histogram")
    assert [spread.name for spread in drawn.spreads] == ["kappa_visimsiam", "unc_losspred"]
    for spread in drawn.spreads:
        values, edges = rows[spread.name].to_numpy(), spread.edges
        inside = [sum(a <= v < b for v in values) for a, b in pairwise(edges[:-1])]
        assert spread.counts[:-1] == inside
        assert sum(spread.counts) == spread.rows == N - 2
        assert spread.median == np.median(values)
    assert drawn.notes == [
        f"2 of {N} rows have no finite {name} and are left out" for name in ("kappa_visimsiam", "unc_losspred")
    ]


def test_a_histogram_of_values_far_apart_has_bins_even_in_the_logarithm(place):
    (spread,) = numbers(place, "histogram", column="wide").spreads
    assert spread.log
    assert not numbers(place, "histogram", column="even").spreads[0].log
    steps = np.diff(np.log(spread.edges))
    assert np.allclose(steps, steps[0])


def test_groups_of_a_histogram_share_its_bins_and_add_up(place, rows):
    drawn = numbers(place, "histogram", column="unc_losspred", per="label")
    all_rows = numbers(place, "histogram", column="unc_losspred").spreads[0]
    assert sorted(spread.name for spread in drawn.spreads) == ["ant", "bee", "cat", "dog", "eel", "fox"]
    assert np.sum([spread.counts for spread in drawn.spreads], 0).tolist() == all_rows.counts
    for spread in drawn.spreads:
        assert spread.median == rows.filter(pl.col("label") == spread.name)["unc_losspred"].median()


def test_abstained_accuracy_and_its_bands_equal_evaluate(place):
    accuracies = numbers(place, "abstained-accuracy", label="label", repeats=60)
    curves = curate.evaluate(place / "s.parquet", label="label", repeats=60).curves["linear"]
    assert set(accuracies.accuracy) == set(curves)
    for name, curve in curves.items():
        assert [point["coverage"] for point in curve] == pytest.approx(accuracies.coverage)
        band = accuracies.accuracy[name]
        for end, values in (("accuracy", band.value), ("low", band.low), ("high", band.high)):
            assert values == pytest.approx([point[end] for point in curve], abs=1e-12)


@pytest.mark.parametrize("prediction", ["linear", "neighbour", "kNN"])
def test_the_area_under_risk_and_coverage_equals_evaluate(place, prediction):
    risks = numbers(place, "risk-coverage", label="label", repeats=5, prediction=prediction)
    measures = {each.name: each for each in curate.evaluate(place / "s.parquet", label="label", repeats=5).measures}
    if prediction != "kNN":  # evaluate leaves these out
        expected = measures[f"AURC, {prediction}"].values
        assert risks.aurc == pytest.approx({name: interval.value for name, interval in expected.items()})
    for band in risks.risk.values():
        assert band.value[-1] == pytest.approx(risks.at_random)
        assert all(low <= high for low, high in zip(band.low, band.high, strict=True))
    entropy = risks.risk["class entropy"].value
    assert all(best <= value + 1e-12 for best, value in zip(risks.perfect, entropy, strict=True))


def test_risk_by_a_user_column_is_the_share_of_errors_among_the_most_certain(place, rows):
    risks = numbers(place, "risk-coverage", right="right", column="unc_losspred", repeats=5)
    order = rows.sort("unc_losspred")["right"].to_numpy()  # no ties
    for share, risk in zip(risks.coverage, risks.risk["unc_losspred"].value, strict=True):
        exact = share * len(order)
        n = int(exact)
        errors = (~order[:n]).sum() + (exact - n) * (~order[n : n + 1]).sum()
        assert risk == pytest.approx(errors / exact)


def test_a_roc_equals_scikit_learn(place, rows):
    drawn = numbers(place, "roc", right="right", column="kappa_visimsiam", repeats=5)
    right, kappa = rows["right"].to_numpy(), rows["kappa_visimsiam"].to_numpy()  # with ties
    false, true, _ = roc_curve(right, kappa, drop_intermediate=False)
    band, grid = drawn.true_positive_rate["kappa_visimsiam"], drawn.false_positive_rate
    highest = [np.interp(rate, false - np.arange(len(false))[::-1] * 1e-12, true) for rate in grid]
    assert band.value == pytest.approx(highest, abs=1e-6)
    assert all(low <= high for low, high in zip(band.low, band.high, strict=True))
    assert drawn.auroc["kappa_visimsiam"] == pytest.approx(auc(false, true))


def test_reliability_of_a_confidence_is_its_mean_and_the_share_right_in_tenths(place):
    table = pl.read_parquet(place / "s.parquet").with_columns(pl.col("confidence").rank("ordinal") / N).head(N - 40)
    path = place / "c.parquet"
    table.write_parquet(path)
    drawn = curate.plot(path, "reliability", right="right", column="confidence", repeats=5).numbers
    order = table.sort("confidence")
    tenth = len(order) // 10
    parts = [order.slice(start, tenth) for start in range(0, len(order), tenth)]
    mean, right = [part["confidence"].mean() for part in parts], [part["right"].mean() for part in parts]
    assert drawn.confidence["confidence"] == pytest.approx(mean)
    assert drawn.accuracy["confidence"].value == pytest.approx(right)
    assert drawn.ece["confidence"].value == pytest.approx(np.abs(np.subtract(mean, right)).mean())


def test_the_calibration_error_of_promises_that_are_right_is_in_its_interval(place, tmp_path):
    generator, inside = np.random.default_rng(3), []
    for number in range(8):
        promised = generator.random(N)
        table = pl.read_parquet(place / "s.parquet").with_columns(
            pl.Series("confidence", promised), pl.Series("right", generator.random(N) < promised)
        )
        path = tmp_path / f"{number}.parquet"
        table.write_parquet(path)
        ece = curate.plot(path, "reliability", right="right", column="confidence", repeats=60).numbers.ece["confidence"]
        inside.append(0 <= ece.low < ece.value < ece.high)
    assert all(inside)  # resamples as they are lie above some values


def test_reliability_without_a_column_is_of_the_linear_classifier(place):
    drawn = numbers(place, "reliability", label="label", repeats=5)
    (confidence,) = drawn.confidence.values()
    assert confidence == sorted(confidence)
    accuracy = curate.evaluate(place / "s.parquet", label="label", repeats=5).measures[2]
    assert accuracy.name == "linear accuracy"
    assert np.mean(drawn.accuracy["linear classifier"].value) == pytest.approx(accuracy.values["embedding"].value)


def test_reliability_of_scores_is_shown_over_tenths_and_promises_nothing(place):
    drawn = numbers(place, "reliability", label="label", repeats=5, column=["unc_losspred", "kappa_visimsiam"])
    assert drawn.confidence == drawn.ece == {}
    assert np.mean(drawn.accuracy["unc_losspred"].value) == pytest.approx(
        np.mean(drawn.accuracy["kappa_visimsiam"].value)
    )
    with pytest.raises(InputError, match="cannot share an axis"):
        numbers(place, "reliability", right="right", column=["confidence", "unc_losspred"], repeats=5)
