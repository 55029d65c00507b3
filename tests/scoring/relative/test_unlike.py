import numpy as np
import pytest
from synthetic import kinds, unit

from scoring.metrics.ranking import auroc
from scoring.relative.clusters import fine_clusters, labels_of
from scoring.relative.unlike import group_of_clusters, separation, unlike_groups


def dataset(n_other, n=600, seed=0):
    """Rows around a few directions, and others around their own direction; what they look like differs too."""
    draw = np.random.default_rng(seed)
    rows, _ = kinds(n=n, seed=seed)
    away = unit(draw.normal(size=(1, 24))) * 1.5
    others = unit(away + 0.4 * draw.normal(size=(n_other, 24)))
    every = np.concatenate([rows.astype(np.float32), others.astype(np.float32)])
    centred = unit(every - every.mean(0)).astype(np.float32)
    looks = draw.normal(size=(len(every), 5))
    looks[n:] += 3
    order = draw.permutation(len(every))
    return centred[order], looks[order], (np.arange(len(every)) >= n)[order]


def groups_of(units, looks):
    centres = fine_clusters(units)
    cluster = labels_of(units, {len(centres): centres})[:, 0]
    groups = unlike_groups(units, cluster, looks)
    return groups, group_of_clusters(groups, len(centres))[cluster], cluster


@pytest.mark.parametrize("n_other", [30, 60, 100])
def test_images_of_another_domain_are_one_listed_group(n_other):
    units, looks, other = dataset(n_other)
    groups, number, _ = groups_of(units, looks)
    assert 1 <= len(groups) <= 3
    first = number == 1
    assert (first & other).sum() >= 0.9 * n_other
    assert (first & other).sum() >= 0.9 * first.sum()
    assert groups[0].rows == first.sum()


def test_what_is_reported_of_a_group_is_what_it_means():
    units, looks, _ = dataset(60)
    groups, number, cluster = groups_of(units, looks)
    inside = number == 1
    far = 1 - (units[inside] @ units[~inside].T).max(1)
    distance = np.array([1 - (units[i] @ units[cluster != cluster[i]].T).max() for i in range(len(units))])
    assert groups[0].apart == pytest.approx(np.median(far) / np.median(distance), rel=1e-4)
    assert groups[0].auroc > 0.95
    assert set(np.unique(cluster[inside])) == set(groups[0].clusters)
    assert groups[0].nearest not in groups[0].clusters
    assert groups[0].to_json()["clusters"] == list(groups[0].clusters)


def test_a_dataset_of_one_kind_has_no_group():
    draw = np.random.default_rng(0)
    units = unit(draw.normal(size=(500, 24))).astype(np.float32)
    assert groups_of(units, draw.normal(size=(500, 5)))[0] == []


def test_groups_do_not_overlap_and_are_at_most_a_fifth_each():
    units, looks, _ = dataset(100, seed=4)
    groups, _, _ = groups_of(units, looks)
    taken = [cluster for group in groups for cluster in group.clusters]
    assert len(taken) == len(set(taken))
    assert all(group.rows <= 0.2 * len(units) for group in groups)


def test_where_nothing_is_known_of_the_looks_no_group_is_listed():
    units, looks, _ = dataset(60)
    assert groups_of(units, looks[:, :0])[0] == []


@pytest.mark.parametrize("n", [0, 1, 9, 12])
def test_a_handful_of_rows_has_no_group(n):
    units, looks, _ = dataset(60)
    assert unlike_groups(units[:n], np.zeros(n, np.int32), looks[:n]) == []


def test_equal_rows_have_no_group():
    units = np.tile(unit(np.ones((1, 8))), (60, 1)).astype(np.float32)
    assert unlike_groups(units, (np.arange(60) % 6).astype(np.int32), np.zeros((60, 2))) == []


def test_rows_without_a_cluster_are_left_out():
    units, looks, _ = dataset(60)
    centres = fine_clusters(units)
    cluster = labels_of(units, {len(centres): centres})[:, 0].astype(np.int32)
    cluster[:40] = -1
    assert all(min(group.clusters) >= 0 for group in unlike_groups(units, cluster, looks))


def test_separation_is_that_of_two_normal_distributions():
    draw = np.random.default_rng(0)
    for apart in (0.5, 1.0, 2.0):
        score = np.concatenate([draw.normal(0, 1, 40_000), draw.normal(apart, 1, 40_000)])
        assert separation(auroc(score, np.arange(80_000) >= 40_000)) == pytest.approx(apart, abs=0.03)
    assert separation(0.2) == 0
