from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import small_pool

from curate.selectors import clusters as grouping
from curate.selectors.clusters import KMeans, TypiClust, cluster, typicality
from curate.selectors.contract import Pool
from scoring.errors import InputError


def groups(sizes, width=16, spread=0.05, seed=0):
    """Rows around as many directions at right angles, and which each is around."""
    generator = np.random.default_rng(seed)
    label = np.repeat(range(len(sizes)), sizes)
    rows = np.eye(width)[label] + spread * generator.standard_normal((len(label), width))
    order = generator.permutation(len(label))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return rows[order], label[order]


def visited(clusters, pool, budget, score, small):
    """The definition: the cluster with the fewest labelled or picked rows, of these the largest, gives its best."""
    place = {int(row): at for at, row in enumerate(clusters.rows)}
    count, size = clusters.labelled.copy(), clusters.sizes
    picks = []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        numbers = {int(clusters.of_row[place[row]]) for row in left}
        number = min(numbers, key=lambda n: (small[n], count[n], -size[n], n))
        inside = [row for row in left if clusters.of_row[place[row]] == number]
        picks.append(max(inside, key=lambda row: (np.float32(score[row]), -row)))
        count[number] += 1
    return picks


@pytest.mark.parametrize("budget", [1, 12, 101])
@pytest.mark.parametrize("seed", range(3))
def test_k_means_gives_the_nearest_to_each_centroid_of_clusters_without_labels_first(seed, budget):
    pool, rows = small_pool(seed)
    k = min(budget + len(pool.labelled), 30)
    clusters, _ = cluster(pool, k, seed)
    score = {
        int(row): float(rows[row] @ clusters.centroids[number].astype(np.float64))
        for row, number in zip(clusters.rows, clusters.of_row, strict=True)
    }
    expected = visited(clusters, pool, budget, score, np.zeros(k + 1))
    selection = KMeans(most_clusters=30)(pool, budget, seed=seed)
    assert selection.rows.tolist() == expected


@pytest.mark.parametrize("budget", [3, 40, 101])
@pytest.mark.parametrize("seed", range(3))
def test_typiclust_gives_the_densest_of_each_cluster_and_small_clusters_last(seed, budget):
    pool, rows = small_pool(seed)
    clusters, _ = cluster(pool, min(budget + len(pool.labelled), 12), seed)
    score = {}
    for number in np.unique(clusters.of_row):
        inside = [row for row in clusters.rows[clusters.of_row == number] if row in pool.candidates]
        for row in inside:
            gaps = sorted(np.linalg.norm(rows[row] - rows[other]) for other in inside if other != row)
            near = gaps[: min(20, max(1, len(inside) // 2))]
            score[int(row)] = 1 / (np.mean(near) + 1e-5) if near else 1e5
    expected = visited(clusters, pool, budget, score, clusters.sizes <= 5)
    selection = TypiClust(most_clusters=12)(pool, budget, seed=seed)
    assert selection.rows.tolist() == expected
    assert selection.gains == pytest.approx([score[row] for row in expected], rel=1e-3)


@pytest.mark.parametrize("rule", [KMeans(), TypiClust()])
def test_every_group_gets_one_pick_before_any_gets_two(rule):
    rows, label = groups([60, 40, 30, 20, 10])
    labelled = np.flatnonzero(label == 0)[:1]
    pool = Pool(np.setdiff1d(np.arange(len(rows)), labelled), labelled, vectors=rows)
    seeds = [label[rule(pool, 4, seed=seed).rows] for seed in range(8)]
    assert any(sorted(picked.tolist()) == [1, 2, 3, 4] for picked in seeds)  # where k-means finds the five groups
    assert all(len(set(picked.tolist())) >= 3 for picked in seeds)


def test_typicality_is_one_over_the_mean_distance_to_half_the_others():
    rows, _ = groups([11], width=3, spread=0.3)
    exact = rows.astype(np.float64)
    gaps = np.sort(np.linalg.norm(exact[:, None] - exact[None], axis=-1), axis=1)[:, 1:6]
    assert typicality(rows, 0) == pytest.approx(1 / (gaps.mean(1) + 1e-5), rel=1e-6)
    assert typicality(rows[:1], 0).tolist() == [1e5]


def test_neighbours_in_a_large_cluster_are_looked_for_among_rows_drawn(monkeypatch):
    rows, _ = groups([300], width=6, spread=0.3)
    exact = typicality(rows, 0)
    monkeypatch.setattr(grouping, "LARGEST", 150)
    drawn = typicality(rows, 0)
    assert np.corrcoef(exact, drawn)[0, 1] > 0.9
    assert (drawn <= exact * (1 + 1e-6)).all()  # fewer to choose from are no nearer
    selection = TypiClust(most_clusters=1)(Pool(np.arange(300), vectors=rows), 3)
    assert "1 clusters drawn" in str(selection.notes)


def test_copies_of_one_row_fill_the_budget_in_row_order():
    pool = Pool(np.arange(30), vectors=np.ones((30, 4), np.float32) / 2)
    assert sorted(KMeans()(pool, 30).rows.tolist()) == list(range(30))
    assert TypiClust(most_clusters=1)(pool, 5).rows.tolist() == [0, 1, 2, 3, 4]


def test_more_picks_than_clusters_are_noted():
    pool, _ = small_pool(0)
    pool = replace(pool, labelled=pool.labelled[:0])
    assert KMeans(most_clusters=4)(pool, 10).notes[0].endswith("that had a labelled or picked row already")


def test_no_cluster_at_all_is_refused():
    with pytest.raises(InputError, match=r"at least 1.* 0"):
        TypiClust(most_clusters=0)
