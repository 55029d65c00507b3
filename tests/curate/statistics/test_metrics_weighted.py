import numpy as np
import pytest
import scipy.stats
import sklearn.metrics

from curate.statistics import weighted
from scoring.metrics import ranking, resampling


def sample(seed, n=200, values=None):
    generator = np.random.default_rng(seed)
    score = generator.normal(size=n) if values is None else generator.integers(0, values, n) / 3
    right = generator.random(n) < 1 / (1 + np.exp(-score))
    return score, right, np.bincount(generator.integers(0, n, n), minlength=n)


def slow_aurc(score, right):
    """The definition, averaged over random orders of equal scores."""
    generator = np.random.default_rng(0)
    areas = []
    for _ in range(400):
        order = np.lexsort((generator.random(len(score)), -score))
        wrong = 1.0 - right[order]
        areas.append(np.mean(np.cumsum(wrong) / np.arange(1, len(score) + 1)))
    return np.mean(areas), np.std(areas) / 20


@pytest.mark.parametrize("values", [None, 5], ids=["distinct", "tied"])
@pytest.mark.parametrize("seed", range(3))
def test_weighted_measures_equal_measures_of_repeated_rows(seed, values):
    score, right, counts = sample(seed, values=values)
    other = np.random.default_rng(seed + 9).integers(0, 4, len(score)) - score
    order = weighted.RankOrder(score)
    rows = np.repeat(np.arange(len(score)), counts)
    targets = np.stack([right, ~right], 1)
    area, cost = order.auroc_and_aurc(counts, order.sort(targets), weighted.harmonic_sums(len(score)))
    assert area[0] == pytest.approx(sklearn.metrics.roc_auc_score(right[rows], score[rows]), abs=1e-12)
    assert area[1] == pytest.approx(1 - area[0], abs=1e-12)
    assert cost[0] == pytest.approx(weighted.aurc(score[rows], right[rows]), abs=1e-12)
    rank = weighted.weighted_spearman(order, weighted.RankOrder(other), counts)
    assert rank == pytest.approx(scipy.stats.spearmanr(score[rows], other[rows]).statistic, abs=1e-12)


@pytest.mark.parametrize("values", [None, 4], ids=["distinct", "tied"])
def test_aurc_is_the_mean_over_orders_of_equal_scores(values):
    score, right, _ = sample(5, n=60, values=values)
    mean, error = slow_aurc(score, right)
    assert weighted.aurc(score, right) == pytest.approx(mean, abs=4 * error + 1e-12)


def test_a_perfect_order_has_no_excess_and_a_constant_score_the_error_rate():
    right = np.arange(5000) >= 1000
    least = weighted.least_aurc(0.2)
    assert weighted.aurc(np.arange(5000.0), right) == pytest.approx(least, abs=(1 + np.log(5000)) / 5000)
    assert weighted.aurc(np.zeros(5000), right) == pytest.approx(0.2, abs=1e-12)


def test_least_aurc_is_the_published_formula_and_zero_without_errors():
    assert weighted.least_aurc(0.3) == pytest.approx(0.3 + 0.7 * np.log(0.7))
    assert weighted.least_aurc(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]


def test_only_the_order_of_a_score_counts():
    score, right, counts = sample(7)
    for change in (np.exp, np.cbrt):
        a, b = weighted.RankOrder(score), weighted.RankOrder(change(score))
        assert np.array_equal(a.auroc(counts, a.sort(right[:, None])), b.auroc(counts, b.sort(right[:, None])))


def test_infinite_scores_have_their_place_and_nan_is_refused():
    right = np.array([[True], [False], [True]])
    order = weighted.RankOrder(np.array([np.inf, -np.inf, 0.0]))
    assert order.auroc(order.ones(), order.sort(right)) == [1.0]
    with pytest.raises(ValueError, match="without NaN"):
        weighted.RankOrder(np.array([0.0, np.nan]))


def test_targets_all_alike_have_no_auroc_in_a_resample():
    order = weighted.RankOrder(np.arange(3.0))
    assert np.isnan(order.auroc(np.array([3, 0, 0]), order.sort(np.array([[1], [0], [1]]))))[0]


def test_resample_gives_the_intervals_of_a_sorting_bootstrap():
    score, right, _ = sample(3, n=400)
    order = weighted.RankOrder(score)
    target = order.sort(right[:, None])
    fast = resampling.resample(lambda counts: order.auroc(counts, target), 400, repeats=2000, seed=1)
    low, high = resampling.percentiles(fast)
    draws = np.random.default_rng(2).integers(0, 400, (1000, 400))
    slow = np.quantile([ranking.auroc(score[rows], right[rows]) for rows in draws], [0.025, 0.975])
    assert [low[0], high[0]] == pytest.approx(slow, abs=0.008)
    assert np.array_equal(fast, resampling.resample(lambda c: order.auroc(c, target), 400, repeats=2000, seed=1))


def test_percentiles_leave_out_what_is_not_a_number():
    low, high = resampling.percentiles(np.array([[0.0, np.nan], [1.0, np.nan], [np.nan, np.nan]]), level=0.5)
    assert (low[0], high[0]) == (0.25, 0.75)
    assert np.isnan([low[1], high[1]]).all()


@pytest.mark.parametrize("values", [None, 3], ids=["distinct", "tied"])
def test_abstained_accuracy_of_counts_runs_straight_through_each_run_of_equal_scores(values):
    score, right, counts = sample(11, n=80, values=values)
    order = weighted.RankOrder(score)
    coverage = np.array([0.01, 0.2, 0.37, 0.5, 0.99, 1.0])
    got = order.accuracy_at(counts, order.sort(np.stack([right, ~right], 1)), coverage)
    rows = np.repeat(np.arange(80), counts)
    kept, correct = [0.0], [0.0]
    for value in sorted(set(score[rows]), reverse=True):
        alike = rows[score[rows] == value]
        kept.append(kept[-1] + len(alike))
        correct.append(correct[-1] + right[alike].sum())
    expected = coverage * len(rows)
    assert got[:, 0] == pytest.approx(np.interp(expected, kept, correct) / expected, abs=1e-12)
    assert got.sum(1) == pytest.approx(np.ones(6))
