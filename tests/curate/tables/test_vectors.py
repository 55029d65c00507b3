"""Embeddings of a table as one array."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from curate.tables.rows import Rows
from curate.tables.vectors import MISSING, ZERO, Embeddings
from scoring.errors import InputError

LISTS = pa.list_(pa.float32())


def taken(*batches, kind=LISTS):
    n = sum(len(batch) for batch in batches)
    made, start = Embeddings(n, Path("t.parquet")), 0
    for batch in batches:
        made.add(pa.array(batch, kind), slice(start, start + len(batch)))
        start += len(batch)
    return made.done()


def test_batches_without_an_embedding_before_and_after_are_zeros_and_counted():
    matrix, problems = taken([None, None], [[1.0, 2.0], None], [None])
    assert matrix.tolist() == [[0, 0], [0, 0], [1, 2], [0, 0], [0, 0]]
    assert problems.tolist() == [MISSING, MISSING, 0, MISSING, MISSING]


def test_no_embedding_at_all_is_a_column_of_zeros():
    matrix, problems = taken([None], [None, None])
    assert matrix.tolist() == [[0], [0], [0]]
    assert problems.tolist() == [MISSING] * 3
    assert taken()[0].shape == (0, 1)


def test_lengths_that_differ_are_refused_within_a_batch_and_between_two():
    with pytest.raises(InputError, match=r"lengths \[1, 2\]"):
        taken([[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="got 2 and 3"):
        taken([[1.0, 2.0]], [[1.0, 2.0, 3.0]])


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32()])
def test_stored_numbers_are_kept_as_they_are(kind):
    rows = np.array([[0.1, -3.0], [7.5, 1e-3]], kind.to_pandas_dtype())
    matrix, problems = taken(rows.tolist(), kind=pa.list_(kind, 2))
    assert matrix.dtype == rows.dtype
    assert np.array_equal(matrix, rows)
    assert not problems.any()


def test_doubles_keep_their_direction_whatever_their_length():
    rows = [[3e300, 4e300], [3e-300, -4e-300], [0.0, 0.0], [float("nan"), 1.0], [float("inf"), 1.0]]
    matrix, problems = taken(rows, kind=pa.list_(pa.float64()))
    assert matrix.dtype == np.float32
    assert matrix[:2].tolist() == [[0.75, 1.0], [0.75, -1.0]]
    assert not matrix[2:].any()
    assert problems.tolist() == [0, 0, ZERO, MISSING, MISSING]


def test_rows_that_failed_are_not_counted():
    matrix, problems = taken([None, [1.0, 0.0], [0.0, 0.0]])
    rows = Rows(np.array([False, True, True]), np.zeros(3, np.uint64), embedding=matrix, embedding_problem=problems)
    assert rows.not_compared() == {"an embedding of zeros": 1}
    assert rows.compared().tolist() == [1]


def test_rows_go_to_the_places_that_are_named():
    made = Embeddings(4, Path("t.parquet"))
    made.add(pa.array([[1.0, 2.0], None], LISTS), np.array([3, 0]))
    made.add(pa.array([[5.0, 6.0], [0.0, 0.0]], LISTS), np.array([1, 2]))
    matrix, problems = made.done()
    assert matrix.tolist() == [[0, 0], [5, 6], [0, 0], [1, 2]]
    assert problems.tolist() == [MISSING, 0, ZERO, 0]
