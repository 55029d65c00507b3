import numpy as np
import pytest
from synthetic import kinds

from scoring.relative.model import among_neighbours
from scoring.relative.neighbours import Near, near_in
from scoring.relative.space import centred, mean_of
from scoring.search.links import Recall


def dataset_of(n=200, spread=0.5):
    rows, kind = kinds(n=n, spread=spread)
    return near_in(centred(rows, mean_of(rows))), kind


def test_it_counts_clearer_rows_among_the_ten_nearest():
    near, _ = dataset_of()
    fitted = np.random.default_rng(0).uniform(0, 0.5, 200).astype(np.float32)
    expected = [0.5 * (sum(fitted[j] < fitted[i] for j in near.index[i, :10]) + 2 * fitted[i]) / 11 for i in range(200)]
    assert among_neighbours(fitted, near, fitted) == pytest.approx(expected, abs=1e-6)


def test_a_cut_takes_the_same_share_where_all_is_hard_as_where_all_is_clear():
    near, kind = dataset_of(spread=0.25)
    hard = kind == kind[0]
    fitted = np.random.default_rng(1).uniform(0, 0.2, 200) + np.where(hard, 0.3, 0)
    by_score, by_local = (np.argsort(values)[:100] for values in (fitted, among_neighbours(fitted, near, fitted)))
    assert hard[by_score].mean() < 0.05
    assert hard[by_local].mean() == pytest.approx(hard.mean(), abs=0.08)


def test_junk_stays_above_every_image_in_its_own_order():
    near, _ = dataset_of()
    fitted = np.random.default_rng(2).uniform(0, 0.5, 200)
    fitted[:20] = np.linspace(0.51, 1, 20)
    scores = among_neighbours(fitted, near, fitted)
    assert scores[:20] == pytest.approx(fitted[:20])
    assert scores[20:].max() <= 0.5


def test_rows_without_neighbours_use_their_own_score():
    none = Near(np.full((2, 3), -1), np.zeros((2, 3), np.float32), np.ones(2, bool), Recall.of_everything())
    assert among_neighbours(np.array([0.2, 0.4]), none, np.zeros(1)).tolist() == pytest.approx([0.2, 0.4])
