"""Rows nearest to queries that are no rows, and all rows within a bound, against NumPy."""

import numpy as np
import pytest

from scoring.search.graph import NearestSearch
from scoring.search.inverted import InvertedLists


@pytest.fixture(scope="module")
def made():
    generator = np.random.default_rng(0)
    vectors = generator.normal(size=(300, 8)).astype(np.float16)
    vectors[40] = vectors[10]  # a tie
    queries = np.concatenate([vectors[:5].astype(np.float32) * 3, generator.normal(size=(4, 8)).astype(np.float32)])
    row_of_query = np.array([0, 1, 2, 3, 4, -1, -1, -1, -1])
    wide, exact_queries = vectors.astype(np.float64), queries.astype(np.float64)
    cosine = exact_queries @ wide.T / np.linalg.norm(exact_queries, axis=1)[:, None] / np.linalg.norm(wide, axis=1)
    cosine[np.arange(5), row_of_query[:5]] = -np.inf
    return vectors, queries, row_of_query, cosine


def search(vectors, left_out=()):
    home = np.zeros(len(vectors), np.int32)
    home[list(left_out)] = -1
    return NearestSearch(vectors, InvertedLists(home, 1))


def test_the_nearest_rows_equal_numpy_and_a_row_is_not_its_own(made):
    vectors, queries, row_of_query, cosine = made
    index, near = search(vectors).neighbours_of(queries, row_of_query, 7, None)
    np.testing.assert_array_equal(index, np.argsort(-cosine, axis=1, kind="stable")[:, :7])
    np.testing.assert_allclose(near, -np.sort(-cosine, axis=1)[:, :7], atol=1e-6)


def test_rows_without_a_list_are_never_found(made):
    vectors, queries, row_of_query, _ = made
    gone = list(range(0, 300, 2))
    index, _ = search(vectors, gone).neighbours_of(queries, row_of_query, 5, None)
    assert (index % 2 == 1).all()
    links = search(vectors, gone).within(queries, row_of_query, np.full(9, -1.0), 10_000)
    assert (links.row % 2 == 1).all()
    assert len(links) == 9 * 150 - 2  # all, without the two queries' own rows


def test_more_neighbours_than_rows_leave_places_empty(made):
    vectors, queries, row_of_query, _ = made
    index, near = search(vectors[:5]).neighbours_of(queries, row_of_query, 8, None)
    assert (index[:5, 4:] == -1).all()
    assert np.isneginf(near[5:, 5:]).all()


def test_all_rows_within_each_bound_are_there_in_order(made):
    vectors, queries, row_of_query, cosine = made
    bounds = np.linspace(-0.2, 0.6, 9)
    links = search(vectors).within(queries, row_of_query, bounds, 10_000)
    for at in range(9):
        rows = np.flatnonzero(cosine[at] >= bounds[at])
        expected = rows[np.lexsort((rows, -cosine[at][rows]))]
        np.testing.assert_array_equal(links.row[links.query == at], expected)


def test_too_many_are_no_links_and_none_are_an_empty_one(made):
    vectors, queries, row_of_query, _ = made
    assert search(vectors).within(queries, row_of_query, np.full(9, -1.0), 100) is None
    assert len(search(vectors).within(queries, row_of_query, np.full(9, 1.1), 100)) == 0
