import numpy as np
import pytest
from synthetic import kinds, slow_distance, unit

from scoring.relative.neighbours import Near, near_in
from scoring.relative.signals import SIGNALS, RowPlaces, RowsAmongOthers, contrast, disagreement, distance, unshared
from scoring.relative.space import centred, mean_of
from scoring.relative.unlike import SIZES, cluster_centres, labels_of
from scoring.search.links import Recall


def view_of(rows):
    dataset = centred(rows, mean_of(rows))
    return seen(dataset, cluster_centres(dataset.units)), dataset


def seen(dataset, centres):
    near, place = near_in(dataset), RowPlaces(labels_of(dataset.units, centres))
    return RowsAmongOthers(near, place, place, near.index[:, :10].astype(np.int32))


def products_of(dataset):
    products = dataset.units.astype(np.float64) @ dataset.units.T
    np.fill_diagonal(products, -2)
    return products


def test_distance_is_that_to_the_nearest_other_row():
    rows, _ = kinds()
    assert distance(view_of(rows)[0]) == pytest.approx(slow_distance(rows), abs=1e-4)


def test_disagreement_counts_neighbours_in_other_clusters():
    rows, _ = kinds(n=130)
    view, dataset = view_of(rows)
    products, clusters = products_of(dataset), view.rows.clusters
    expected = [
        np.mean(
            [clusters[j, s] != clusters[i, s] for j in np.argsort(-products[i])[:20] for s in range(clusters.shape[1])]
        )
        for i in range(130)
    ]
    assert disagreement(view) == pytest.approx(np.array(expected), abs=0.011)  # 20th and 21st may be too close to call


def test_rows_between_two_kinds_are_disagreed_about():
    rows, kind = kinds(n=300, spread=0.2)
    first, second = (rows[kind == k].astype(np.float64).mean(0) for k in (0, 1))
    rows[:5] = unit(first[None] + second + np.random.default_rng(3).normal(size=(5, 24)) * 0.05).astype(np.float16)
    between = disagreement(view_of(rows)[0])
    assert between[:5].min() > np.quantile(between[5:], 0.9)


def test_a_row_without_neighbours_is_as_far_as_can_be_and_undecided():
    none = Near(np.full((2, 3), -1), np.zeros((2, 3), np.float32), np.ones(2, bool), Recall.of_everything())
    place = RowPlaces(np.zeros((2, 4), np.int32))
    view = RowsAmongOthers(none, place, place, np.full((2, 10), -1, np.int32))
    assert distance(view).tolist() == [2, 2]
    assert disagreement(view).tolist() == [0.5, 0.5]
    assert contrast(view).tolist() == [1, 1]
    assert unshared(view).tolist() == [1, 1]


def test_contrast_holds_the_nearest_row_against_those_further_off():
    rows, _ = kinds(n=130)
    view, dataset = view_of(rows)
    apart = 1 - np.sort(-products_of(dataset), axis=1)[:, :20] * -1
    assert contrast(view) == pytest.approx(apart[:, 0] / apart[:, 10:].mean(1), abs=1e-4)


def test_unshared_counts_neighbours_that_the_nearest_row_lacks():
    rows, _ = kinds(n=130)
    view, dataset = view_of(rows)
    near = [set(order[:10].tolist()) for order in np.argsort(-products_of(dataset), axis=1)]
    first = products_of(dataset).argmax(1)
    expected = np.array([len(near[i] - near[first[i]]) / 10 for i in range(130)])
    assert unshared(view) == pytest.approx(expected, abs=0.101)  # a 10th and an 11th may be too close to call
    assert np.mean(np.abs(unshared(view) - expected) > 1e-9) < 0.05


@pytest.mark.parametrize("name", SIGNALS)
def test_the_order_of_the_others_changes_no_signal(name):
    rows, _ = kinds(n=160)
    view, dataset = view_of(rows)
    order = np.random.default_rng(0).permutation(160)
    moved = centred(rows[order], mean_of(rows))
    centres = cluster_centres(dataset.units)
    again, before = SIGNALS[name](seen(moved, centres)), SIGNALS[name](view)[order]
    # a centre of clusters is reported to about .01, and a 20th neighbour that ties may be another
    assert np.quantile(np.abs(again - before), 0.98) < 0.02


def test_a_small_dataset_has_few_clusters():
    rows, _ = kinds(n=40)
    centres = cluster_centres(centred(rows, mean_of(rows)).units)
    assert list(centres) == [k for k in SIZES if k <= 10]
    assert all(values.shape == (k, 24) for k, values in centres.items())
