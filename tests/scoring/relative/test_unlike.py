import numpy as np
import pytest
from synthetic import kinds, unit

from scoring.metrics.ranking import auroc
from scoring.relative.unlike import (
    directions_of,
    fine_clusters,
    group_numbers,
    labels_of,
    left_out_auroc,
    separation,
    unlike_groups,
)


def dataset(n_other, n=600, seed=0):
    """Rows around a few directions, and others around their own direction; what they look like differs too."""
    draw = np.random.default_rng(seed)
    rows, _ = kinds(n=n, seed=seed)
    away = unit(draw.normal(size=(1, 24))) * 1.5
    others = unit(away + 0.25 * draw.normal(size=(n_other, 24)))
    every = np.concatenate([rows.astype(np.float32), others.astype(np.float32)])
    centred = unit(every - every.mean(0)).astype(np.float32)
    looks = draw.normal(size=(len(every), 5))
    looks[n:] += 3
    order = draw.permutation(len(every))
    return centred[order], looks[order], (np.arange(len(every)) >= n)[order]


def groups_of(units, looks):
    centres = fine_clusters(units)
    cluster = labels_of(units, {len(centres): centres})[:, 0].astype(np.int32)
    groups = unlike_groups(units, cluster, looks)
    return groups, group_numbers(units, directions_of(groups, units.shape[1])), cluster


@pytest.mark.parametrize("n_other", [30, 60, 100])
def test_images_of_another_domain_are_one_listed_group(n_other):
    units, looks, other = dataset(n_other)
    groups, number, _ = groups_of(units, looks)
    assert 1 <= len(groups) <= 3
    first = number == 1
    assert (first & other).sum() >= 0.9 * n_other
    assert (first & other).sum() >= 0.65 * first.sum()
    assert groups[0].rows == first.sum()


def test_what_is_reported_of_a_group_is_what_it_means():
    units, looks, _ = dataset(60)
    groups, number, cluster = groups_of(units, looks)
    inside = number == 1
    cosine = units[inside] @ units[~inside].T
    far = np.median(1 - cosine.max(1)) / groups[0].apart  # the usual distance between clusters, by other clusters
    distance = np.array([1 - (units[i] @ units[cluster != cluster[i]].T).max() for i in range(len(units))])
    assert np.quantile(distance, 0.1) < far < np.quantile(distance, 0.9)
    assert groups[0].auroc > 0.85
    assert groups[0].nearest == np.bincount(cluster[~inside][cosine.argmax(1)]).argmax()
    assert groups[0].to_json()["nearest_cluster"] == groups[0].nearest


def test_the_content_of_a_row_is_judged_without_that_row():
    draw = np.random.default_rng(0)
    inside = np.arange(40) < 12
    looks = draw.normal(size=(40, 30)) + 0.8 * inside[:, None] * (np.arange(30) < 3)
    wide = np.concatenate([looks, np.ones((40, 1))], axis=1)
    root = np.sqrt(np.where(inside, 0.5 / 12, 0.5 / 28))[:, None]
    said = []
    for left in range(40):
        rows, target = np.delete(wide * root, left, 0), np.delete(np.where(inside, 1.0, -1.0)[:, None] * root, left, 0)
        said.append((wide[left] @ np.linalg.solve(rows.T @ rows + 0.02 * np.eye(31), rows.T @ target)).item())
    assert left_out_auroc(looks, inside) == pytest.approx(auroc(np.array(said), inside))


def test_the_order_of_the_rows_changes_nothing():
    units, looks, _ = dataset(60)
    order = np.random.default_rng(1).permutation(len(units))
    numbers, again = groups_of(units, looks)[1], groups_of(units[order], looks[order])[1]
    assert numbers.any()
    assert np.array_equal(again, numbers[order])


def test_a_domain_of_several_classes_is_one_group():
    draw = np.random.default_rng(2)
    rows, _ = kinds(n=600, seed=2)
    shared = unit(draw.normal(size=(1, 24)))
    classes = np.concatenate([unit(2 * shared + 1.2 * unit(draw.normal(size=(1, 24)))) for _ in range(4)])
    others = unit(np.repeat(classes, 15, axis=0) + 0.15 * draw.normal(size=(60, 24)))
    every = np.concatenate([rows.astype(np.float64), others])
    looks = draw.normal(size=(660, 5))
    looks[600:] += 3
    _, number, _ = groups_of(unit(every - every.mean(0)).astype(np.float32), looks)
    assert (number[600:] == 1).mean() >= 0.9
    assert (number[:600] == 1).mean() <= 0.02


def test_a_dataset_of_one_kind_has_no_group():
    draw = np.random.default_rng(0)
    units = unit(draw.normal(size=(500, 24))).astype(np.float32)
    assert groups_of(units, draw.normal(size=(500, 5)))[0] == []


def test_a_row_is_in_one_group_and_groups_are_at_most_a_fifth_each_and_a_quarter_in_all():
    units, looks, _ = dataset(100, seed=4)
    groups, number, _ = groups_of(units, looks)
    assert [group.rows for group in groups] == [(number == place).sum() for place in range(1, len(groups) + 1)]
    assert all(group.rows <= 0.2 * len(units) for group in groups)
    assert (number > 0).sum() <= 0.25 * len(units)


def test_without_columns_of_content_no_group_is_listed():
    units, looks, _ = dataset(60)
    assert groups_of(units, looks[:, :0])[0] == []


@pytest.mark.parametrize("n", [0, 1, 9, 12])
def test_a_handful_of_rows_has_no_group(n):
    units, looks, _ = dataset(60)
    assert unlike_groups(units[:n], np.zeros(n, np.int32), looks[:n]) == []


def test_equal_rows_have_no_group():
    units = np.tile(unit(np.ones((1, 8))), (60, 1)).astype(np.float32)
    assert unlike_groups(units, (np.arange(60) % 6).astype(np.int32), np.zeros((60, 2))) == []


def groups_without(units, cluster, looks):
    return [(group.rows, group.score) for group in unlike_groups(units, cluster, looks)]


@pytest.mark.parametrize("seed", [1, 4])
def test_equal_rows_apart_from_the_rest_are_all_in_a_group(seed):
    draw = np.random.default_rng(seed)
    rows, looks = draw.normal(size=(300, 32)), draw.normal(size=(300, 5))
    rows[:20], looks[:20] = 2 * draw.normal(size=32), looks[:20] + 6
    rows = unit(rows - rows.mean(0)).astype(np.float32)
    (group,) = unlike_groups(rows, np.zeros(300, np.int32), looks)
    assert group.rows == 20
    assert np.flatnonzero(group_numbers(rows, group.direction[None])).tolist() == list(range(20))


def test_rows_without_a_cluster_are_left_out():
    units, looks, _ = dataset(60)
    centres = fine_clusters(units)
    cluster = labels_of(units, {len(centres): centres})[:, 0].astype(np.int32)
    cluster[:40] = -1
    assert groups_without(units, cluster, looks) == groups_without(units[40:], cluster[40:], looks[40:])


def test_separation_matches_two_normal_distributions():
    draw = np.random.default_rng(0)
    for apart in (0.5, 1.0, 2.0):
        score = np.concatenate([draw.normal(0, 1, 40_000), draw.normal(apart, 1, 40_000)])
        assert separation(auroc(score, np.arange(80_000) >= 40_000)) == pytest.approx(apart, abs=0.03)
    assert separation(0.2) == 0
