import numpy as np
import pytest
from heaps import kinds, slow_distance, unit

from scoring.heap.clusters import SIZES, cluster_centres, labels_of
from scoring.heap.neighbours import Near, near_in
from scoring.heap.signals import SIGNALS, View, disagreement, distance
from scoring.heap.space import centred, mean_of
from scoring.search.links import Recall


def view_of(rows):
    heap = centred(rows, mean_of(rows))
    labels = labels_of(heap.units, cluster_centres(heap.units))
    return View(near_in(heap), labels, labels), heap


def test_distance_is_that_to_the_nearest_other_row():
    rows, _ = kinds()
    assert distance(view_of(rows)[0]) == pytest.approx(slow_distance(rows), abs=1e-4)


def test_disagreement_counts_neighbours_in_other_clusters():
    rows, _ = kinds(n=130)
    view, heap = view_of(rows)
    products = heap.units.astype(np.float64) @ heap.units.T
    np.fill_diagonal(products, -2)
    expected = [
        np.mean([view.clusters[j, s] != view.clusters[i, s]
                 for j in np.argsort(-products[i])[:20] for s in range(view.clusters.shape[1])])
        for i in range(130)
    ]  # fmt: skip
    assert disagreement(view) == pytest.approx(np.array(expected), abs=0.011)  # 20th and 21st may be too close to call


def test_rows_between_two_kinds_are_disagreed_about():
    rows, kind = kinds(n=300, spread=0.2)
    first, second = (rows[kind == k].astype(np.float64).mean(0) for k in (0, 1))
    rows[:5] = unit(first[None] + second + np.random.default_rng(3).normal(size=(5, 24)) * 0.05).astype(np.float16)
    between = disagreement(view_of(rows)[0])
    assert between[:5].min() > np.quantile(between[5:], 0.9)


def test_a_row_without_neighbours_is_as_far_as_can_be_and_undecided():
    none = Near(np.full((2, 3), -1), np.zeros((2, 3), np.float32), np.ones(2, bool), Recall.of_everything())
    labels = np.zeros((2, 4), np.int32)
    assert distance(View(none, labels, labels)).tolist() == [2, 2]
    assert disagreement(View(none, labels, labels)).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", SIGNALS)
def test_the_order_of_the_others_changes_no_signal(name):
    rows, _ = kinds(n=160)
    view, heap = view_of(rows)
    order = np.random.default_rng(0).permutation(160)
    moved = centred(rows[order], mean_of(rows))
    centres = cluster_centres(heap.units)
    again = View(near_in(moved), labels_of(moved.units, centres), labels_of(moved.units, centres))
    # a centre of clusters is told to about .01, and a 20th neighbour that ties may be another
    assert SIGNALS[name](again) == pytest.approx(SIGNALS[name](view)[order], abs=0.02)


def test_a_small_heap_has_few_clusters():
    rows, _ = kinds(n=40)
    centres = cluster_centres(centred(rows, mean_of(rows)).units)
    assert list(centres) == [k for k in SIZES if k <= 10]
    assert all(values.shape == (k, 24) for k, values in centres.items())
