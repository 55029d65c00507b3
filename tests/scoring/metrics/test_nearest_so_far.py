import numpy as np
import pytest
import torch

from scoring.metrics.nearest_so_far import NearestSoFar


def nearest_in_blocks(cosine, width, size, rows):
    found = NearestSoFar(rows, width)
    for start in range(0, cosine.shape[1], size):
        members = np.arange(start, min(start + size, cosine.shape[1]))
        found.update(np.arange(len(cosine)), members, cosine[:, members])
    return found.result()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("order", ["shuffled", "ascending", "descending"])
@pytest.mark.parametrize("shift", [0.0, -2.0])
def test_the_nearest_of_blocks_equal_a_sort(dtype, order, shift):
    """Ascending, every block is nearer than all before it; shifted, all cosines are negative."""
    generator = np.random.default_rng(0)
    values = np.stack([generator.permutation(np.linspace(-1, 1, 130)) for _ in range(20)])  # 130 of 8 bits each
    values = values if order == "shuffled" else np.sort(values, axis=1)[:, :: 1 if order == "ascending" else -1]
    cosine = torch.from_numpy(np.ascontiguousarray(values + shift)).to(dtype)
    rows = np.where(np.arange(20) % 2, np.arange(20), -1)
    expected = cosine.float().numpy().copy()
    expected[rows >= 0, rows[rows >= 0]] = -np.inf
    for size in (3, 40, 200):
        best, index = nearest_in_blocks(cosine, 6, size, rows)
        assert np.array_equal(best.numpy(), -np.sort(-expected, axis=1)[:, :6])
        assert np.array_equal(np.take_along_axis(expected, index.numpy(), 1), best.numpy())
        assert all(len(set(row)) == 6 for row in index.tolist())


def test_of_equal_cosines_those_that_came_first_are_kept():
    _, index = nearest_in_blocks(torch.full((3, 50), 0.5), 4, 4, np.full(3, -1))
    assert [sorted(row) for row in index.tolist()] == [[0, 1, 2, 3]] * 3


def test_where_there_are_fewer_rows_the_rest_is_absent():
    best, index = nearest_in_blocks(torch.full((2, 3), 0.5), 5, 2, np.array([0, -1]))
    assert [sorted(row) for row in index.tolist()] == [[-1, -1, -1, 1, 2], [-1, -1, 0, 1, 2]]
    assert np.isneginf(best.numpy()).sum(1).tolist() == [3, 2]
