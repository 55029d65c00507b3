"""FewCosines against CosineIndex, few_neighbours against knn_graph, and rows that are like nothing."""

import numpy as np
import pytest
from test_search_cosine import DTYPES, table

from scoring.search.cosine import CosineIndex
from scoring.search.few import FewCosines, few_neighbours
from scoring.search.graph import knn_graph


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("first", [False, True])
def test_few_rows_have_the_links_that_an_exact_index_reports(dtype, first, monkeypatch):
    monkeypatch.setattr("scoring.search.few.AT_ONCE", 50)
    rows, queries = table(400, dtype=dtype), table(130, dtype=dtype)
    rows[[3, 9]] = 0
    queries[7] = 0
    among = np.random.default_rng(0).random(400) < 0.7
    few, many = FewCosines(rows, 0.8), CosineIndex(rows, 0.8)
    for some in (None, among):
        for ours, theirs in (
            [index.search(queries, some, first=first) for index in (few, many)],
            [index.search_rows(np.arange(5, 300), some, first=first) for index in (few, many)],
        ):
            assert len(ours) > 50
            assert np.array_equal(ours.query, theirs.query)
            assert np.array_equal(ours.row, theirs.row)
            assert np.array_equal(ours.similarity, theirs.similarity)
    assert few.recall == many.recall


def test_a_cosine_at_the_threshold_counts_and_nothing_is_like_zero():
    rows = np.array([[1, 0], [3, 4], [4, 3], [0, 7], [0, 0]], np.int8)  # 0.6 and 0.8 to the first
    links = FewCosines(rows, 0.6).search(rows[[0, 4]])
    assert links.query.tolist() == [0, 0, 0]
    assert links.row.tolist() == [0, 1, 2]
    assert (links.similarity.astype(float) >= 0.6).all()
    assert not len(FewCosines(rows[:0], 0.6).search(rows))
    with pytest.raises(ValueError, match="row 1"):
        FewCosines(np.array([[1, 0], [np.inf, 0]], np.float32), 0.6)


@pytest.mark.parametrize(("n", "k"), [(400, 16), (400, 1), (9, 16), (1, 4), (0, 2)])
def test_few_rows_have_the_neighbours_of_an_exact_graph(n, k):
    rows = table(400, dtype=np.float16)[:n]
    rows[3:4], rows[5:8] = 0, rows[4:5]  # without a neighbour, and equal
    few, many = few_neighbours(rows, k), knn_graph(rows, k)
    assert np.array_equal(few.index, many.index)
    assert (few.index[3:4] == -1).all()
    assert np.allclose(few.cosine, many.cosine, atol=1e-6)
    assert few.recall == many.recall
    with pytest.raises(ValueError, match="row 1"):
        few_neighbours(np.array([[1, 0], [np.nan, 0]], np.float32), 1)
