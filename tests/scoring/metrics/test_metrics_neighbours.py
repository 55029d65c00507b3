import numpy as np
import pytest
import torch

from scoring.metrics import duplicates, neighbours
from scoring.metrics import neighbours as neighbours_metrics


def unit(n, d, seed):
    return torch.nn.functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def slow_nearest(queries, references, k, same):
    """The definition: cosines in float64, the row itself out by index, ties to the lower index."""
    nearest = []
    for i, query in enumerate(queries.double()):
        cosine = (references.double() * query).sum(1)
        order = sorted((j for j in range(len(references)) if not (same and j == i)), key=lambda j: (-cosine[j], j))
        nearest.append(order[:k])
    return nearest


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks so small that every boundary is crossed."""
    for name, value in {"QUERIES": 7, "REFERENCES": 50, "FIRST": 9, "EXACT": 3}.items():
        monkeypatch.setattr(neighbours, name, value)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("k", [1, 2, 5])
def test_nearest_in_blocks_both_ways_is_the_definition(k):
    rows = unit(120, 6, 0)
    assert neighbours_metrics.nearest(rows, rows, k, same=True)[1].tolist() == slow_nearest(rows, rows, k, True)
    queries = unit(33, 6, 1)
    cosine, index = neighbours_metrics.nearest(queries, rows, k)
    assert index.tolist() == slow_nearest(queries, rows, k, False)
    assert torch.allclose(cosine, (queries[:, None] * rows[index]).sum(2), atol=1e-6)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("seed", range(4))
def test_exact_duplicates_tie_and_the_lower_index_comes_first(seed):
    draw = torch.Generator().manual_seed(seed)
    rows = unit(9, 5, seed)[torch.randint(9, (60,), generator=draw)]  # about seven copies of each
    for k in (1, 4, 12, 59):
        assert neighbours_metrics.nearest(rows, rows, k, same=True)[1].tolist() == slow_nearest(rows, rows, k, True)
        queries = unit(5, 5, 10 + seed)
        assert neighbours_metrics.nearest(queries, rows, k)[1].tolist() == slow_nearest(queries, rows, k, False)


def test_rows_that_are_all_equal_are_neighbours_in_order():
    rows = unit(1, 4, 0).expand(4, 4).contiguous()
    assert neighbours_metrics.nearest(rows, rows, 2, same=True)[1].tolist() == [[1, 2], [0, 2], [0, 1], [0, 1]]


def test_duplicates_found_by_hash_are_those_found_by_comparing():
    rows = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    groups = duplicates.group_duplicates(rows)
    assert groups.of_row.tolist() == [0, 1, 0, 1, 2]
    assert groups.first.tolist() == [0, 1, 4]
    assert groups.members.tolist() == [0, 2, 1, 3, 4]
    assert groups.rank.tolist() == [0, 0, 1, 1, 0]
    assert duplicates.group_duplicates(rows[[0, 1, 4]]) is None


def test_another_order_of_rows_gives_the_same_neighbours():
    rows = unit(300, 8, 3)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    _, before = neighbours_metrics.nearest(rows, rows, 3, same=True)
    _, after = neighbours_metrics.nearest(rows[order], rows[order], 3, same=True)
    assert torch.equal(order[after], before[order])


def test_a_vote_is_won_by_weight_and_a_draw_by_the_lower_class():
    cosine = torch.tensor([[0.9, 0.5, 0.5], [0.7, 0.7, 0.1]])
    classes = torch.tensor([[3, 1, 1], [5, 2, 2]])
    assert neighbours_metrics.knn_vote(cosine, classes, temperature=0.07).tolist() == [3, 2]
    assert neighbours_metrics.knn_vote(torch.ones(1, 2), torch.tensor([[5, 2]])).tolist() == [2]


def test_recall_at_1_examines_the_nearest_other_row():
    rows = unit(200, 4, 5)
    labels = torch.randint(3, (200,), generator=torch.Generator().manual_seed(0))
    expected = [labels[i] == labels[j[0]] for i, j in enumerate(slow_nearest(rows, rows, 1, True))]
    assert np.array_equal(neighbours_metrics.recall_at_1(rows, labels), np.array(expected))
