"""Maps from scores to probabilities, against other libraries, slow definitions and exact counts."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.calibration import _sigmoid_calibration
from sklearn.isotonic import IsotonicRegression

from curate.columns import ERROR_COLUMNS
from curate.statistics.calibration import EqualMass, calibrated
from curate.statistics.calibrators import CALIBRATORS, Isotonic, Logistic, cross_fitted
from curate.tables.provenance import outside_by_chance


def drawn(seed, n, decimals=8, slope=2.0):
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n).round(decimals)
    y = (generator.random(n) < 1 / (1 + np.exp(1 - slope * x))).astype(float)
    return x, y, generator.uniform(0.2, 3, n)


def max_min(x, y, w):
    """The isotonic fit by its definition: at each x the largest, over starts up to it, of the least mean to an end."""
    at = np.unique(x)

    def mean(low, high):
        rows = (x >= low) & (x <= high)
        return w[rows] @ y[rows] / w[rows].sum()

    return at, np.array(
        [max(min(mean(low, high) for high in at[at >= level]) for low in at[at <= level]) for level in at]
    )


@pytest.mark.parametrize("seed", range(4))
def test_isotonic_is_the_max_min_of_means_with_ties_and_weights(seed):
    x, y, w = drawn(seed, 40, decimals=1)
    at, expected = max_min(x, y, w)
    np.testing.assert_allclose(Isotonic.fit(x, y, w).predict(at), expected, atol=1e-12)


@pytest.mark.parametrize("decimals", [1, 8])
def test_isotonic_equals_scikit_learn_between_and_beyond_its_rows(decimals):
    x, y, w = drawn(5, 3000, decimals)
    points = np.linspace(-6, 6, 997)
    other = IsotonicRegression(out_of_bounds="clip").fit(x, y, w)
    np.testing.assert_allclose(Isotonic.fit(x, y, w).predict(points), other.predict(points), atol=1e-12)


def test_logistic_is_platts_of_scikit_learn():
    x, y, _ = drawn(1, 500)
    slope, intercept = _sigmoid_calibration(x, y)  # 1 / (1 + exp(slope x + intercept))
    fitted = Logistic.fit(x, y, np.ones(len(x)))
    np.testing.assert_allclose([fitted.slope, fitted.intercept], [-slope, -intercept], rtol=1e-5)


def test_logistic_with_weights_is_the_least_of_its_loss():
    x, y, w = drawn(2, 200)
    y[::7] = 0.5  # judges who differ
    n = w.sum() ** 2 / (w**2).sum()
    bad = n * np.average(y, weights=w)
    targets = y * (bad + 1) / (bad + 2) + (1 - y) / (n - bad + 2)

    def loss(beta):
        logit = beta[0] + beta[1] * x
        return w @ (np.logaddexp(0, logit) - targets * logit)

    best = minimize(loss, [0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    fitted = Logistic.fit(x, y, w)
    np.testing.assert_allclose([fitted.intercept, fitted.slope], best, rtol=1e-4)


def test_logistic_is_finite_where_a_threshold_separates_the_classes():
    x = np.arange(100.0)
    fitted = Logistic.fit(x, (x >= 50).astype(float), np.ones(100))
    p = fitted.predict(x)
    assert np.isfinite([fitted.slope, fitted.intercept]).all()
    assert p[0] < 0.05 < 0.95 < p[-1]


@pytest.mark.parametrize("kind", CALIBRATORS.values(), ids=CALIBRATORS)
def test_a_map_never_falls_and_stays_within_its_ends(kind):
    x, y, w = drawn(3, 300)
    fitted = kind.fit(x, y, w)
    p = fitted.predict(np.linspace(-50, 50, 2001))
    assert (np.diff(p) >= 0).all()
    assert p.min() >= 0
    assert p.max() <= 1
    assert p[0] == fitted.predict(np.array([x.min()]))[0]
    assert p[-1] == fitted.predict(np.array([x.max()]))[0]
    np.testing.assert_array_equal(kind.from_json(fitted.to_json()).predict(x), fitted.predict(x))


@pytest.mark.parametrize("kind", CALIBRATORS.values(), ids=CALIBRATORS)
def test_a_score_that_goes_the_wrong_way_gives_the_share_of_bad_rows(kind):
    x, y, w = drawn(4, 2000)
    p = kind.fit(-x, y, w).predict(-x)
    np.testing.assert_allclose(p, np.average(y, weights=w), atol=0.01)
    assert np.ptp(p) < 0.05


@pytest.mark.parametrize("kind", CALIBRATORS.values(), ids=CALIBRATORS)
def test_a_weight_of_two_is_nearly_a_row_twice(kind):
    x, y, _ = drawn(6, 400)
    twice = np.arange(400) % 4 == 0
    weighted = kind.fit(x, y, 1.0 + twice).predict(x)
    repeated = kind.fit(*(np.concatenate([values, values[twice]]) for values in (x, y)), np.ones(500)).predict(x)
    np.testing.assert_allclose(weighted, repeated, atol=5e-3)


@pytest.mark.parametrize(
    "record",
    [
        {"x": [1.0, 1.0], "p": [0.1, 0.2]},
        {"x": [1.0, 2.0], "p": [0.2, 0.1]},
        {"x": [1.0, 2.0], "p": [0.2, 1.1]},
        {"x": [1.0], "p": []},
        {"x": [], "p": []},
        {"x": [float("nan")], "p": [0.5]},
    ],
)
def test_invalid_knots_are_refused(record):
    with pytest.raises(ValueError, match=r"knots|probabilities"):
        Isotonic.from_json(record)


def test_a_slope_that_falls_is_refused():
    with pytest.raises(ValueError, match="slope"):
        Logistic.from_json({"intercept": 0, "slope": -1, "low": 0, "high": 1})


def test_a_held_out_probability_does_not_depend_on_its_own_row():
    x, y, w = drawn(7, 100)
    fold = np.arange(100) % 5
    p = cross_fitted(Isotonic, x, y, w, fold)
    other = y.copy()
    other[fold == 2] = 1 - other[fold == 2]
    again = cross_fitted(Isotonic, x, other, w, fold)
    np.testing.assert_array_equal(p[fold == 2], again[fold == 2])
    assert (p[fold != 2] != again[fold != 2]).any()


@pytest.mark.parametrize(("n", "m"), [(2, 3), (3, 4), (5, 2)])
def test_the_probability_of_rows_outside_is_a_count_of_orders(n, m):
    counts = np.zeros(m + 1)
    for first in combinations(range(n + m), n):
        counts[sum(1 for place in range(n + m) if place < first[0] or place > first[-1])] += 1
    expected = [counts[k:].sum() / counts.sum() for k in range(m + 1)]
    np.testing.assert_allclose([outside_by_chance(n, m, k) for k in range(m + 1)], expected, atol=1e-12)


def test_bins_of_equal_mass_are_slices_of_the_sorted_rows():
    p, y, _ = drawn(8, 200)
    bins = EqualMass(p, np.stack([p, y], 1), 10).means(np.ones(200))
    parts = np.argsort(p).reshape(10, 20)
    np.testing.assert_allclose(bins, [p[parts].mean(1), y[parts].mean(1)], atol=1e-12)


def test_errors_match_a_slow_implementation_of_the_definition():
    x, y, _ = drawn(9, 400)
    p = 1 / (1 + np.exp(-x))
    measured = calibrated({"p": p, "half": np.full(400, 0.5)}, "half", y, np.ones(400), repeats=20)["p"]
    squares = gaps = 0.0
    for rows in np.argsort(p).reshape(10, 40):
        gap, share = p[rows].mean() - y[rows].mean(), y[rows].mean()
        gaps += abs(gap) / 10
        squares += (gap**2 - share * (1 - share) / 39) / 10
    assert measured.ece.value == pytest.approx(gaps)
    assert measured.rms.value == pytest.approx(np.sqrt(max(squares, 0)))
    assert measured.brier.value == pytest.approx(np.mean((p - y) ** 2))
    assert measured.gain.value == pytest.approx(0.25 - np.mean((p - y) ** 2))
    assert measured.rms.low <= measured.rms.value <= measured.rms.high


def test_intervals_hold_the_truth_about_as_often_as_stated():
    """Promises that are all 0.1 too low: the error is 0.1, whatever the draw."""
    inside = []
    for seed in range(30):
        generator = np.random.default_rng(seed)
        p = generator.uniform(0.05, 0.85, 400)
        y = (generator.random(400) < p + 0.1).astype(float)
        measured = calibrated({"p": p}, "p", y, np.ones(400), repeats=40, seed=seed)["p"]
        inside.append(measured.rms.low <= 0.1 <= measured.rms.high)
    assert np.mean(inside) >= 0.8


def test_promises_that_are_kept_are_within_chance():
    generator = np.random.default_rng(1)
    p = generator.uniform(0, 1, 2000)
    y = (generator.random(2000) < p).astype(float)
    measured = calibrated({"p": p}, "p", y, np.ones(2000), repeats=50)["p"]
    assert measured.by_chance.low <= measured.ece.value <= measured.by_chance.high
    assert measured.rms.low == 0.0


def test_described_columns_match_the_maps():
    assert list(ERROR_COLUMNS) == [f"p_error_{name}" for name in CALIBRATORS]
