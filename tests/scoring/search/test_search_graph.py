"""knn_graph against all pairs in float64."""

import numpy as np
import pytest

from scoring.search.graph import NearestSearch, knn_graph
from scoring.search.inverted import InvertedLists
from scoring.search.links import Recall


def table(n, *, width=20, seed=0, dtype=np.float32, groups=50, spread=0.4):
    generator = np.random.default_rng(seed)
    middle = generator.standard_normal((groups, width))
    rows = middle[generator.integers(groups, size=n)] + spread * generator.standard_normal((n, width))
    rows *= generator.uniform(0.5, 2, (n, 1))
    return (np.clip(rows * 20, -127, 127) if dtype == np.int8 else rows).astype(dtype)


def slow_neighbours(rows, k):
    """The definition: by cosine, then by row; no row is its own neighbour, and one without length is nobody's."""
    rows = rows.astype(float)
    length = np.linalg.norm(rows, axis=1)
    index, cosine = np.full((len(rows), k), -1), np.full((len(rows), k), -np.inf)
    for row in range(len(rows)):
        others = [other for other in range(len(rows)) if other != row and length[other] and length[row]]
        with_cosine = [(-round(rows[row] @ rows[o] / (length[row] * length[o]), 9), o) for o in others]
        for place, (negative, other) in enumerate(sorted(with_cosine)[:k]):
            index[row, place], cosine[row, place] = other, -negative
    return index, cosine


def kept(ours, expected):
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(ours.tolist(), expected.tolist(), strict=True)])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize("k", [1, 7, 64])
def test_an_exact_graph_is_the_definition(dtype, k):
    rows = table(150, dtype=dtype)
    graph = knn_graph(rows, k)
    index, cosine = slow_neighbours(rows, k)
    assert np.allclose(graph.cosine, cosine, atol=2e-6)
    same = graph.index == index
    gap = np.abs(cosine[:, :, None] - cosine[:, None, :]) + 2 * np.eye(k)
    assert same[gap.min(2) > 1e-6].all()  # where the definition itself is clear to a float32
    assert same.mean() > 0.98
    assert (graph.index.dtype, graph.cosine.dtype) == (np.int32, np.float32)
    assert graph.recall == Recall.of_everything()


@pytest.mark.parametrize("exact_rows", [10, 50_000])
def test_equal_rows_are_neighbours_by_row_and_a_row_is_never_its_own(exact_rows):
    rows = table(1400)
    rows[[900, 40, 70, 300]] = rows[40]
    graph = knn_graph(rows, 5, exact_rows=exact_rows)
    assert graph.index[40, :3].tolist() == [70, 300, 900]
    assert graph.index[900, :3].tolist() == [40, 70, 300]
    assert not (graph.index == np.arange(1400)[:, None]).any()
    assert (np.diff(graph.cosine, axis=1) <= 0).all()
    assert graph.cosine.max() <= 1


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_clusters_find_the_reported_share_of_neighbours(dtype):
    rows = table(3000, dtype=dtype, width=32, groups=60, spread=0.7)
    exact, near = knn_graph(rows, 10), knn_graph(rows, 10, exact_rows=100)
    share = kept(near.index, exact.index)
    assert not near.recall.exact
    assert near.recall.n_pairs == 256 * 10
    assert near.recall.low - 0.005 <= share <= near.recall.high + 0.005
    assert share > 0.97
    same = near.index == exact.index
    assert np.allclose(near.cosine[same], exact.cosine[same], atol=1e-6)
    assert all(len(set(row)) == 10 for row in near.index.tolist())


def test_a_lower_aim_searches_less():
    rows = np.random.default_rng(0).standard_normal((3000, 24)).astype(np.float32)
    exact = knn_graph(rows, 10).index
    low, high = (knn_graph(rows, 10, exact_rows=100, recall=aim) for aim in (0.5, 0.95))
    assert 0.4 < kept(low.index, exact) < kept(high.index, exact)
    assert low.recall.estimate < high.recall.estimate


@pytest.mark.parametrize("exact_rows", [10, 50_000])
def test_rows_of_length_zero_have_no_neighbour_and_are_no_neighbours(exact_rows):
    rows = table(1200)
    rows[[0, 600, 1199]] = 0
    graph = knn_graph(rows, 4, exact_rows=exact_rows)
    assert (graph.index[[0, 600, 1199]] == -1).all()
    assert np.isneginf(graph.cosine[[0, 600, 1199]]).all()
    assert not np.isin(graph.index, [0, 600, 1199]).any()


def test_fewer_others_than_neighbours_are_padded():
    for n in range(4):
        graph = knn_graph(table(5)[:n], 3)
        assert graph.index.shape == (n, 3)
        assert (np.sort(graph.index, axis=1)[:, : 3 - max(n - 1, 0)] == -1).all()
        assert ((graph.index >= 0).sum(1) == max(n - 1, 0)).all()
        assert np.array_equal(np.isneginf(graph.cosine), graph.index == -1)
    assert (knn_graph(np.zeros((4, 3), np.float16), 2).index == -1).all()
    assert (knn_graph(np.zeros((1200, 3), np.float16), 2, exact_rows=10).index == -1).all()


def test_rows_that_are_all_equal_have_the_lowest_others():
    rows = np.repeat(table(1), 1500, axis=0)
    graph = knn_graph(rows, 6)
    assert graph.index[0].tolist() == [1, 2, 3, 4, 5, 6]
    assert graph.index[1000].tolist() == [0, 1, 2, 3, 4, 5]
    assert np.allclose(knn_graph(rows, 6, exact_rows=10).cosine, 1, atol=1e-6)


def test_equal_seeds_give_equal_graphs_and_blocks_hardly_change_one(monkeypatch):
    rows = table(2000)
    first, second = (knn_graph(rows, 8, exact_rows=10, seed=4) for _ in range(2))
    assert np.array_equal(first.index, second.index)
    assert np.array_equal(first.cosine, second.cosine)
    monkeypatch.setattr("scoring.search.graph.QUERIES", 333)
    monkeypatch.setattr("scoring.search.graph.PRODUCTS", 9000)
    third = knn_graph(rows, 8, exact_rows=10, seed=4)
    assert kept(third.index, first.index) > 0.999


def test_a_row_is_compared_with_all_rows_of_its_lists():
    """With every list looked at, a graph by lists is the exact one."""
    rows = table(1500, groups=3, spread=1.0)
    exact = knn_graph(rows, 20)
    centroids = rows[:9] / np.linalg.norm(rows[:9], axis=1, keepdims=True)
    index, cosine = NearestSearch(rows, InvertedLists.by_centroids(rows, centroids)).neighbours(np.arange(1500), 20, 9)
    assert np.allclose(cosine, exact.cosine, atol=1e-6)
    assert kept(index, exact.index) > 0.9999


def test_arguments_out_of_range_and_values_that_are_no_numbers_are_refused():
    rows = table(1200)
    for k in (0, 65):
        with pytest.raises(ValueError, match="k must be"):
            knn_graph(rows, k)
    rows[1100, 2] = np.nan
    for exact_rows in (10, 50_000):
        with pytest.raises(ValueError, match="row 1100"):
            knn_graph(rows, 3, exact_rows=exact_rows)
