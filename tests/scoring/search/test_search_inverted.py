"""Inverted lists, and that both searches find just what is in the lists that a query looks at."""

import numpy as np
import pytest
import torch

from scoring.search.cosine import UNKNOWN, CosineIndex, ProbeCounts, choose_probes
from scoring.search.graph import knn_graph
from scoring.search.inverted import InvertedLists, list_centroids


@pytest.fixture(scope="module")
def rows():
    """Rows of whole numbers, so that every product of two is exact; one has no length."""
    generator = np.random.default_rng(3)
    middle = generator.integers(-60, 60, (40, 16))
    rows = np.clip(middle[generator.integers(40, size=2600)] + generator.integers(-25, 25, (2600, 16)), -127, 127)
    rows[77] = 0
    return rows.astype(np.int8)


@pytest.fixture(scope="module")
def cosines(rows):
    wide = rows.astype(np.float64)
    length = np.linalg.norm(wide, axis=1)
    length[length == 0] = np.inf
    return wide @ wide.T / np.outer(length, length)


def looked_at(lists, rows, probes):
    """Which rows (N, N) each row looks at: slowly, list by list."""
    unit = rows / np.maximum(np.linalg.norm(rows.astype(float), axis=1, keepdims=True), 1)
    probed = lists.probed(torch.from_numpy(unit).to(torch.bfloat16), probes)
    seen = np.zeros((len(rows), len(rows)), bool)
    for row, numbers in enumerate(probed):
        for number in numbers:
            seen[row, lists.home == number] = True
    return seen


def test_rows_are_by_list_and_then_by_number_and_one_without_length_in_none(rows):
    centroids = list_centroids(rows, exact_rows=100, seed=0)
    assert centroids.shape == (5, 16)  # 500 rows a list
    lists = InvertedLists.by_centroids(rows, centroids)
    assert sorted(lists.order.tolist()) == list(range(2600))
    assert lists.order[0] == 77
    assert (lists.n_lists, lists.starts[0], lists.starts[-1], len(lists.rows)) == (5, 1, 2600, 2599)
    for number in range(5):
        members = lists.order[lists.starts[number] : lists.starts[number + 1]]
        assert members.tolist() == np.flatnonzero(lists.home == number).tolist()


def test_few_rows_have_no_lists_and_many_have_four_times_their_root():
    assert list_centroids(np.ones((2600, 2), np.float32), exact_rows=2600, seed=0) is None
    assert list_centroids(np.ones((999, 2), np.float32), exact_rows=1, seed=0) is None
    assert len(list_centroids(np.ones((1000, 2), np.float32), exact_rows=1, seed=0)) == 2


def test_queries_are_listed_list_by_list():
    lists = InvertedLists(np.array([1, 0, -1, 1, 2], np.int32), 3)
    assert lists.order.tolist() == [2, 1, 0, 3, 4]
    spans = lists.spans(np.array([4, 7]), np.array([[2, 1], [1, 0]]))
    assert [(start, stop, looking.tolist()) for start, stop, looking in spans] == [
        (1, 2, [7]),
        (2, 4, [4, 7]),
        (4, 5, [4]),
    ]
    assert [(start, stop) for start, stop, _ in lists.everything(np.arange(2))] == [(1, 5)]
    assert lists.spans(np.zeros(0, np.int64), np.zeros((0, 2), np.int64)) == []
    assert lists.spans(np.arange(2), np.zeros((2, 0), np.int64)) == []


@pytest.mark.parametrize("threshold", [0.8, 0.95])
def test_the_cosine_index_finds_the_pairs_of_the_lists_that_are_examined_and_no_other(rows, cosines, threshold):
    index = CosineIndex(rows, threshold, exact_rows=100, recall=0.6, seed=1)
    lists = InvertedLists.by_centroids(rows, list_centroids(rows, exact_rows=100, seed=1))
    expected = looked_at(lists, rows, index.probes) & (cosines >= threshold - 1e-12)
    expected[77] = expected[:, 77] = False
    links = index.search(rows)
    assert np.array_equal(np.stack([links.query, links.row]), np.nonzero(expected))
    assert np.allclose(links.similarity, cosines[expected], atol=1e-6)
    assert index.probes < lists.n_lists or threshold == 0.8


def test_the_share_of_pairs_counts_the_rows_that_report():
    """Of rows 0, 2 and 4, which decide, every pair is in the nearest list; of 1 and 3 a half and a quarter."""
    probed = np.array([[0, 1]] * 5)
    counts = ProbeCounts(probed, 3)
    counts.add(np.array([0, 0, 1, 1, 2, 3]), np.array([0, 0, 0, 1, 0, 0], np.int32))
    counts.add(np.array([3, 3, 3, 4]), np.array([1, 1, 2, 0], np.int32))
    assert counts.counts.tolist() == [[2, 0, 0], [1, 1, 0], [1, 0, 0], [1, 2, 1], [1, 0, 0]]
    probes, recall = choose_probes(counts.counts, 0.9)
    assert (probes, recall.estimate, recall.n_pairs) == (1, 2 / 6, 6)
    assert choose_probes(counts.counts, 0.9, least=2)[1].estimate == 5 / 6


def test_a_large_group_does_not_decide_alone_and_without_pairs_some_lists_are_examined():
    counts = np.array([[98, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0]])
    assert choose_probes(counts, 0.9)[0] == 1
    assert choose_probes(counts, 0.9, of_each=True)[0] == 2
    assert choose_probes(np.zeros((4, 30), np.int64), 0.9)[0] == UNKNOWN
    assert choose_probes(counts, 0.9999)[0] == 2  # as many as there are


def test_the_graph_has_the_nearest_of_the_lists_that_are_examined(rows, cosines):
    """Neighbours that a row has are the nearest in its lists: each list's rows that are nearer are among them."""
    graph = knn_graph(rows, 5, exact_rows=100, recall=0.5, seed=2)
    exact = knn_graph(rows, 5)
    some = np.setdiff1d(np.arange(0, 2600, 13), [77])
    assert np.allclose(graph.cosine[some], np.take_along_axis(cosines[some], graph.index[some], 1), atol=1e-6)
    assert (graph.cosine[:, 0] <= exact.cosine[:, 0] + 1e-6).all()
    share = np.mean([len(set(a) & set(b)) / 5 for a, b in zip(graph.index[some], exact.index[some], strict=True)])
    assert 0.4 < share < 1
