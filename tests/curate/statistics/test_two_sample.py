"""Two-sample tests: their distances against other libraries, and their p values against what chance does."""

from itertools import combinations

import numpy as np
import pytest
from scipy.stats import ks_2samp
from sklearn.covariance import shrunk_covariance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict

from curate.statistics.two_sample import (
    SHRUNK,
    Counts,
    _pairs_won,
    classifier_test,
    exact_test,
    holm,
    kolmogorov_smirnov,
    mmd_test,
    share_gaps,
    standardised_difference,
    total_variation,
    units,
    whitened,
)
from scoring.metrics import ranking


def sides(n, n_b):
    return np.arange(n) >= n - n_b


def counts(is_b):
    return Counts((~is_b).astype(int), is_b.astype(int))


@pytest.fixture(params=["distinct", "ties"])
def column(request):
    generator = np.random.default_rng(3)
    values = generator.normal(size=60) + sides(60, 25) * 0.7
    return values.round(0 if request.param == "ties" else 9), sides(60, 25)


def test_the_distance_of_distributions_equals_scipy(column):
    values, is_b = column
    tested = kolmogorov_smirnov(units(values, np.arange(60), is_b), repeats=19, seed=0)
    assert tested.value == pytest.approx(ks_2samp(values[~is_b], values[is_b]).statistic)


def test_total_variation_is_half_the_sum_of_differences_of_shares(column):
    values, is_b = column
    slow = sum(abs((values[is_b] == v).mean() - (values[~is_b] == v).mean()) for v in set(values.tolist())) / 2
    of = units(values, np.arange(60), is_b)
    assert total_variation(of, repeats=19, seed=0).value == pytest.approx(slow)
    assert share_gaps(of, repeats=19, seed=0).value.sum() / 2 == pytest.approx(slow)


def test_the_p_value_is_the_share_of_all_arrangements_that_reach_the_distance():
    values, is_b = np.array([0.0, 1, 2, 3, 4, 5, 6, 7]), np.array([0, 0, 1, 0, 1, 1, 1, 0], bool)
    real = ks_2samp(values[~is_b], values[is_b]).statistic
    others = [np.isin(np.arange(8), chosen) for chosen in combinations(range(8), 4)]
    exact = np.mean([ks_2samp(values[~chosen], values[chosen]).statistic >= real - 1e-9 for chosen in others])
    tested = kolmogorov_smirnov(units(values, np.arange(8), is_b), repeats=9_999, seed=1)
    assert tested.p == pytest.approx(exact, abs=0.02)


def test_a_p_value_is_never_zero_and_the_real_order_counts():
    of = units(np.arange(80.0), np.arange(80), sides(80, 40))
    assert kolmogorov_smirnov(of, repeats=99, seed=0).p == 0.01


def test_rows_of_one_content_and_value_are_one_item_and_of_two_values_are_two():
    of = units(np.array([1.0, 1, 2, 1]), np.array([7, 7, 7, 8]), np.array([0, 1, 1, 0], bool))
    assert of.counts.a.tolist() == [1, 1, 0]
    assert of.counts.b.tolist() == [1, 0, 1]
    assert of.starts.tolist() == [0, 2]


def test_pairs_are_won_as_auroc_says_with_ties_counting_half():
    generator = np.random.default_rng(0)
    score = generator.integers(0, 6, (4, 30)).astype(np.float32)
    is_b = generator.random((4, 30)) < 0.4
    won = _pairs_won(score, (~is_b).astype(int), is_b.astype(int))
    slow = [ranking.auroc(s, b) * b.sum() * (~b).sum() for s, b in zip(score, is_b, strict=True)]
    assert won == pytest.approx(slow)


def test_vectors_are_whitened_by_their_shrunk_covariance():
    rows = np.random.default_rng(1).normal(size=(40, 12)) @ np.random.default_rng(2).normal(size=(12, 12)) + 5
    centred = rows - rows.mean(0)
    products = centred @ np.linalg.inv(shrunk_covariance(np.cov(rows.T, ddof=0), SHRUNK)) @ centred.T
    white = whitened(rows)
    assert white @ white.T == pytest.approx(products, rel=2e-3, abs=2e-3)


def test_the_classifier_is_as_good_as_logistic_regression():
    generator = np.random.default_rng(5)
    rows, is_b = generator.normal(size=(400, 10)), sides(400, 150)
    rows[is_b, :3] += 0.5
    tested = classifier_test(rows, counts(is_b), repeats=19, seed=0)
    logits = cross_val_predict(LogisticRegression(), rows, is_b, cv=5, method="decision_function")
    assert tested.auroc.value == pytest.approx(ranking.auroc(logits, is_b), abs=0.03)
    assert tested.auroc.low < tested.auroc.value < tested.auroc.high
    assert tested.p == 0.05
    assert tested.scores[is_b].mean() > tested.scores[~is_b].mean()


def test_a_test_that_is_far_from_anything_stops_early_with_a_p_that_is_as_good():
    of = units(np.random.default_rng(1).normal(size=3000), np.arange(3000), sides(3000, 1500))
    tested = kolmogorov_smirnov(of, repeats=9_999, seed=0)
    assert kolmogorov_smirnov(of, repeats=9_999, seed=0, enough=50).p == pytest.approx(tested.p, abs=0.06)


def test_shares_that_do_not_differ_are_rarely_separated_however_many_there_are():
    generator, alarms = np.random.default_rng(12), 0
    for trial in range(150):
        of = units(generator.integers(0, 30, 300), np.arange(300), sides(300, 100))
        alarms += bool((share_gaps(of, repeats=39, seed=trial).p <= 0.1).any())
    assert 4 <= alarms <= 28


def test_one_share_of_many_that_differs_is_found():
    generator, is_b = np.random.default_rng(13), sides(600, 200)
    values = generator.integers(0, 30, 600)
    values[is_b & (generator.random(600) < 0.2)] = 7
    p = share_gaps(units(values, np.arange(600), is_b), repeats=99, seed=0).p
    assert p[7] == 0.01
    assert (p <= 0.05).sum() <= 2


def test_a_kernel_sees_a_spread_that_no_line_divides():
    generator = np.random.default_rng(6)
    rows, is_b = generator.normal(size=(500, 4)), sides(500, 250)
    rows[is_b] *= 2
    assert mmd_test(rows, counts(is_b), repeats=99, seed=0).p == 0.01
    assert classifier_test(rows, counts(is_b), repeats=99, seed=0).auroc.value < 0.6


def test_samples_that_hold_the_same_items_are_no_different_at_all():
    rows = np.random.default_rng(7).normal(size=(60, 5))
    both = Counts(np.ones(60, int), np.ones(60, int))
    tested = classifier_test(rows, both, repeats=19, seed=0)
    assert (tested.auroc.value, tested.p) == (0.5, 1.0)
    assert mmd_test(rows, both, repeats=19, seed=0).p == 1.0


def test_identical_vectors_have_no_distance():
    alike = np.full((50, 6), 0.3, np.float16)
    tested = classifier_test(alike, counts(sides(50, 20)), repeats=19, seed=0)
    assert (tested.auroc.value, tested.p) == (0.5, 1.0)


def of_overlap(kind, generator, n):
    """Counts of n items that have nothing to do with the items: apart, with copies in both, or a part of the other."""
    draw = generator.random(n)
    if kind == "apart":
        return counts(draw < 0.4)
    if kind == "shared":
        return Counts((draw < 0.7).astype(int), (draw > 0.5).astype(int))
    return Counts(np.ones(n, int), (draw < 0.8).astype(int))


@pytest.mark.parametrize("kind", ["apart", "shared", "part"])
def test_false_alarms_are_as_frequent_as_the_p_value(kind):
    generator = np.random.default_rng([11, len(kind)])
    p = {"classifier": [], "mmd": [], "ks": []}
    for trial in range(150):
        rows = generator.normal(size=(90, 4)).round(1)
        of = of_overlap(kind, generator, 90)
        p["classifier"].append(classifier_test(rows, of, repeats=39, seed=trial).p)
        p["mmd"].append(mmd_test(rows, of, repeats=39, seed=trial).p)
        contrast = of.contrast()[np.argsort(rows[:, 0])]
        distance = exact_test(lambda d, c=contrast: np.abs(c[d].cumsum(1)).max(1), 90, repeats=39, seed=trial)
        p["ks"].append(distance.p)
    for name, p_values in p.items():
        alarms = int((np.array(p_values) <= 0.1).sum())
        assert alarms <= 28, f"{name}: {alarms} of 150 at 0.1"  # more in 1 of 10,000 runs of an exact test
        assert alarms >= 4, f"{name}: {alarms} of 150 at 0.1"


def test_a_part_chosen_by_content_is_separated_from_all_rows():
    rows = np.random.default_rng(8).normal(size=(300, 4))
    kept = rows[:, 0] < 1.2
    tested = classifier_test(rows, Counts(np.ones(300, int), kept.astype(int)), repeats=99, seed=0)
    assert tested.p == 0.01
    assert 0.5 < tested.auroc.value < 0.62  # most rows are in both, and show nothing


def test_a_standardised_difference_is_in_standard_deviations_and_nan_without_spread():
    values = np.array([0.0, 2, 4, 6])
    assert standardised_difference(values, sides(4, 2)) == pytest.approx(4.0)
    assert np.isnan(standardised_difference(np.ones(4), sides(4, 2)))


def test_adjusted_p_values_equal_holm():
    p = np.random.default_rng(9).random(7) ** 3
    order = np.argsort(p)
    slow, worst = np.empty(7), 0.0
    for place, item in enumerate(order):
        worst = max(worst, min(1.0, p[item] * (7 - place)))
        slow[item] = worst
    assert holm(p) == pytest.approx(slow)


def test_counts_need_items_on_both_sides():
    with pytest.raises(ValueError, match="both samples"):
        Counts(np.ones(3, int), np.zeros(3, int))
