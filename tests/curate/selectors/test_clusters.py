from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import small_pool

from curate.selectors import typicality
from curate.selectors.clusters import KMeans, TypiClust, cluster
from curate.selectors.pool import Pool
from curate.selectors.typicality import Typicality
from scoring.errors import InputError
from scoring.search.graph import knn_graph
from scoring.search.links import Graph


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
    assert typicality.typicality(rows) == pytest.approx(1 / (gaps.mean(1) + 1e-5), rel=1e-6)
    assert typicality.typicality(rows[:1]).tolist() == [1e5]


def test_neighbours_in_a_large_cluster_are_looked_for_among_rows_drawn(monkeypatch):
    rows, _ = groups([300], width=6, spread=0.3)
    exact = typicality.typicality(rows)
    monkeypatch.setattr(typicality, "LARGEST", 150)
    drawn = typicality.typicality(rows)
    assert np.corrcoef(exact, drawn)[0, 1] > 0.9
    assert (drawn <= exact * (1 + 1e-6)).all()  # fewer to choose from are no nearer
    selection = TypiClust(most_clusters=1)(Pool(np.arange(300), vectors=rows), 3)
    assert "approximate: neighbours in 1 clusters drawn" in selection.notes


@pytest.mark.parametrize("budget", [3, 40, 101])
@pytest.mark.parametrize("seed", range(3))
def test_typiclust_picks_the_same_with_an_exact_graph(seed, budget):
    pool, _ = small_pool(seed)
    rule = TypiClust(most_clusters=12)
    plain, listed = (
        rule(pool, budget, seed=seed),
        rule(replace(pool, graph=graph_of(pool.vectors, 64)), budget, seed=seed),
    )
    assert listed.rows.tolist() == plain.rows.tolist()
    assert listed.gains == pytest.approx(plain.gains, rel=1e-4)
    assert listed.notes[-1].endswith("measured for the others")


def graph_of(vectors, k):
    return knn_graph(vectors, min(k, len(vectors) - 1))


def typicalities(rows, home, graph):
    """Of every row that has a home, cluster by cluster, and what was reported."""
    measure = Typicality(rows, home, 0, graph)
    measured = np.full(len(rows), np.nan)
    for number in np.unique(home[home >= 0]):
        inside = np.flatnonzero(home == number).astype(np.int32)
        measured[inside] = measure(inside)
    return measured, measure


@pytest.mark.parametrize("k", [1, 5, 21, 64])
def test_typicality_by_the_graph_is_the_measured_one_however_few_neighbours_it_has(k):
    rows, label = groups([200, 60, 7, 2, 1], spread=0.2)
    home = label.astype(np.int32)
    home[np.random.default_rng(1).random(len(home)) < 0.2] = -1  # labelled
    rows[10:13] = rows[9]  # copies
    plain, _ = typicalities(rows, home, None)
    listed, measure = typicalities(rows, home, graph_of(rows, k))
    assert listed == pytest.approx(plain, rel=1e-4, nan_ok=True)
    enough = 0
    cosine = rows.astype(np.float64) @ rows.T.astype(np.float64)
    np.fill_diagonal(cosine, -2)
    for number in np.unique(home[home >= 0]):
        inside = np.flatnonzero(home == number)
        for row in inside if len(inside) > 1 else ():
            near = np.argsort(-cosine[row])[:k]
            enough += np.isin(near, inside).sum() >= min(20, len(inside) // 2)
    assert abs(measure.n_known - enough) <= 3  # among equally near copies either may be the last
    assert measure.n_rows == (home >= 0).sum()


def test_only_rows_that_the_graph_knows_too_little_of_are_measured(monkeypatch):
    rows, label = groups([120, 80], spread=0.05)
    sizes = []
    real = typicality._among
    monkeypatch.setattr(typicality, "_among", lambda v, some, others: sizes.append(len(some)) or real(v, some, others))
    graph = graph_of(rows, 64)
    typicalities(rows, label.astype(np.int32), graph)
    assert sizes == [0, 0]
    index, cosine = graph.index.copy(), graph.cosine.copy()
    index[:30], cosine[:30] = -1, -np.inf
    values, measure = typicalities(rows, label.astype(np.int32), Graph(index, cosine, graph.recall))
    assert sum(sizes) == 30
    assert measure.n_known == 170
    assert values == pytest.approx(typicalities(rows, label.astype(np.int32), None)[0], rel=1e-4)


def test_a_large_cluster_is_measured_whole_where_the_graph_leaves_few_rows(monkeypatch):
    rows, _ = groups([300], width=6, spread=0.3)
    home = np.zeros(300, np.int32)
    exact = typicality.typicality(rows)
    monkeypatch.setattr(typicality, "LARGEST", 100)
    graph = graph_of(rows, 64)
    index, cosine = graph.index.copy(), graph.cosine.copy()
    index[:90], cosine[:90] = -1, -np.inf
    values, measure = typicalities(rows, home, Graph(index, cosine, graph.recall))
    assert values == pytest.approx(exact, rel=1e-4)  # in three parts of at most 100 rows
    assert not measure.drawn
    index[:101], cosine[:101] = -1, -np.inf
    drawn, measure = typicalities(rows, home, Graph(index, cosine, graph.recall))
    assert np.array_equal(drawn, typicality.typicality(rows))
    assert measure.drawn == {0}


def test_copies_of_one_row_fill_the_budget_in_row_order():
    pool = Pool(np.arange(30), vectors=np.ones((30, 4), np.float32) / 2)
    assert sorted(KMeans()(pool, 30).rows.tolist()) == list(range(30))
    assert TypiClust(most_clusters=1)(pool, 5).rows.tolist() == [0, 1, 2, 3, 4]


def test_more_picks_than_clusters_are_noted():
    pool, _ = small_pool(0)
    pool = replace(pool, labelled=pool.labelled[:0])
    assert KMeans(most_clusters=4)(pool, 10).notes[0].endswith("that had a labelled or picked row already")


def test_no_cluster_at_all_is_refused():
    with pytest.raises(InputError, match="at least 1, got 0"):
        TypiClust(most_clusters=0)
