"""The nearest centroids by way of groups, against all of them."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from scoring.search import kmeans as near
from scoring.search.cosine import CosineIndex
from scoring.search.graph import knn_graph
from scoring.search.kmeans import Centroids, _first_largest, in_groups, spherical_kmeans
from scoring.search.rows import unit_table
from scoring.tasks import Held


@pytest.fixture
def grouped(monkeypatch):
    """Eighty centroids of rows around sixty directions, and in groups."""
    monkeypatch.setattr("scoring.search.kmeans.FLAT", 16)
    rows = around(60, 3000)
    centroids = torch.from_numpy(spherical_kmeans(rows, 80, seed=1))
    units = unit_table(rows).units
    return units, Centroids(Held(centroids)), in_groups(centroids, 1)


def around(n_middle, n, width=16, seed=0):
    generator = np.random.default_rng(seed)
    middle = generator.standard_normal((n_middle, width))
    rows = middle[generator.integers(n_middle, size=n)] + 0.5 * generator.standard_normal((n, width))
    return rows.astype(np.float32)


def test_few_centroids_have_no_groups_and_many_have_each_in_one(grouped):
    _, flat, groups = grouped
    assert in_groups(flat.vectors.value[:16], 0).starts == ()
    assert groups.starts[0] == 0
    assert groups.starts[-1] == len(groups) == 80
    assert sorted(groups.numbers.value.tolist()) == list(range(80))
    assert torch.equal(groups.members.value, flat.vectors.value[groups.numbers.value])
    assert len(groups.starts) == 9


@pytest.mark.parametrize("probes", [1, 2, 7, 64])
def test_a_search_of_all_groups_equals_comparing_with_all(grouped, probes):
    units, flat, groups = grouped
    groups = list(groups.wider())[-1]
    assert groups.looked_at >= 8
    value = flat.nearest(units, probes)[1].float()
    index, cosine = groups.nearest(units, probes)
    assert torch.allclose(cosine.float(), value, atol=0.01)  # two products of bfloat16
    assert all(len(set(row)) == probes for row in index.tolist())


def test_few_groups_hold_most_of_the_nearest_and_what_they_lack_is_filled_up_from_all(grouped):
    units, flat, groups = grouped
    groups = replace(groups, looked_at=3)
    first = flat.nearest(units)[0] == groups.nearest(units)[0]
    assert 0.9 < first.float().mean() < 1
    few, many = groups.nearest(units, 4)[0], groups.nearest(units, 60)[0]  # no three groups have so many
    assert (many[:, :4] == few).float().mean() > 0.98  # equal cosines have no order
    cosine = (units @ flat.vectors.value.bfloat16().T).float()
    looked_at = (units @ groups.heads.value.bfloat16().T).topk(3, dim=1).indices
    for row in range(100):
        inside = set()
        for group in looked_at[row].tolist():
            inside |= set(groups.numbers.value[groups.starts[group] : groups.starts[group + 1]].tolist())
        assert set(many[row, : len(inside)].tolist()) == inside
        others = [k for k in cosine[row].argsort(descending=True, stable=True).tolist() if k not in inside]
        rest = cosine[row, others[: 60 - len(inside)]]
        assert torch.allclose(cosine[row, many[row, len(inside) :]], rest, atol=0.01)


def test_the_first_is_the_same_however_many_are_requested_and_in_whatever_company(grouped, monkeypatch):
    units, _, groups = grouped
    groups = replace(groups, looked_at=3)
    first = groups.nearest(units)[0][:, 0]
    assert torch.equal(groups.nearest(units, 5)[0][:, 0], first)
    order = torch.from_numpy(np.random.default_rng(0).permutation(len(units)))
    assert torch.equal(groups.nearest(units[order], 5)[0][:, 0], first[order])
    monkeypatch.setattr(near, "ROWS", 700)
    assert torch.equal(groups.nearest(units, 5)[0][:, 0], first)


def test_searches_by_groups_report_their_true_recall(monkeypatch):
    rows = around(300, 6000)
    exact = CosineIndex(rows, 0.9, exact_rows=10_000).search_rows(np.arange(6000))
    graph = knn_graph(rows, 10, exact_rows=10_000).index
    monkeypatch.setattr("scoring.search.kmeans.FLAT", 4)
    monkeypatch.setattr("scoring.search.inverted.LIST_ROWS", 60)
    monkeypatch.setattr("scoring.search.kmeans.LOOKED_AT", 2)
    index = CosineIndex(rows, 0.9, exact_rows=100, recall=0.9)
    links = index.search_rows(np.arange(6000))
    codes, truth = ((each.query * 6000 + each.row)[each.query != each.row] for each in (links, exact))
    assert np.isin(codes, truth).all()
    assert index.recall.low - 0.01 < len(codes) / len(truth) < index.recall.high + 0.01
    near_rows = knn_graph(rows, 10, exact_rows=100, recall=0.9)
    share = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(near_rows.index.tolist(), graph.tolist(), strict=True)])
    assert near_rows.recall.low - 0.01 < share < near_rows.recall.high + 0.01


@pytest.mark.parametrize("noise", [0.0, 0.005, 0.06])
def test_a_dataset_of_near_copies_is_found_by_way_of_groups_too(monkeypatch, noise):
    monkeypatch.setattr("scoring.search.inverted.LIST_ROWS", 3)
    generator = np.random.default_rng(2)
    rows = generator.standard_normal((900, 24)).astype(np.float32)
    rows[9:] = rows[0] + noise * generator.standard_normal((891, 24)).astype(np.float32)
    flat = CosineIndex(rows, 0.9, exact_rows=10, recall=0.99)
    monkeypatch.setattr("scoring.search.kmeans.FLAT", 16)
    links = CosineIndex(rows, 0.9, exact_rows=10, recall=0.99).search_rows(np.arange(900))
    assert len(links) > 0.98 * len(flat.search_rows(np.arange(900)))
    assert np.isin(np.arange(900), links.row[links.query == links.row]).mean() > 0.95
    units, lists = unit_table(rows).units, in_groups(torch.from_numpy(spherical_kmeans(rows, 120, seed=0)), 0)
    assert torch.equal(lists.nearest(units, 9)[0][:, 0], lists.nearest(units)[0][:, 0])


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32])
def test_the_largest_of_a_row_is_the_first_of_equal_ones_whatever_their_sign(kind):
    rows = torch.from_numpy(np.random.default_rng(0).integers(-8, 9, (200, 12)) / 8).to(kind)  # many are equal
    rows[:60] = -rows[:60].abs()
    rows[60, 3], rows[61, 4], rows[62], rows[63] = torch.nan, -torch.inf, 0, -0.0
    at, best = _first_largest(rows[:, 1:])  # not contiguous, as a part of padded products is
    for row, place, value in zip(rows[:, 1:].double().numpy(), at.flatten().tolist(), best.flatten(), strict=True):
        expected = np.flatnonzero(np.isnan(row) if np.isnan(row).any() else row == row.max())[0]
        assert place == expected
        assert value.item() == row[place] or np.isnan(row[place])
