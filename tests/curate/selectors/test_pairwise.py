import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors import cover, pairwise
from curate.selectors.pairwise import Pairwise, edges
from curate.selectors.pool import Pool
from scoring.errors import InputError
from scoring.search.links import Graph, Recall


def paired(rows, pool, budget, values, k, alpha):
    """The definition: alpha times the worth of picks less (1 - alpha) times the cosines of neighbours both chosen."""
    members = np.sort(np.concatenate([pool.candidates, pool.labelled]))
    cosine = np.maximum(rows @ rows.T, 0)
    pair = np.zeros((len(rows), len(rows)), bool)
    for row in members:
        others = sorted((other for other in members if other != row), key=lambda o: (-(rows[row] @ rows[o]), o))
        pair[row, others[:k]] = True
    pair |= pair.T

    def value(chosen):
        both = np.ix_([*pool.labelled, *chosen], [*pool.labelled, *chosen])
        return alpha * sum(values[row] for row in chosen) - (1 - alpha) * (cosine * pair)[both].sum() / 2

    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        added = [value([*picks, row]) - value(picks) for row in left]
        picks.append(lowest_best(added, left))
        gains.append(max(added))
    return picks, gains


@pytest.mark.parametrize("labelled", [0, 9])
@pytest.mark.parametrize("alpha", [0.3, 0.9])
@pytest.mark.parametrize("seed", range(2))
def test_it_is_its_definition(seed, alpha, labelled):
    pool, rows = small_pool(seed, copies=False, labelled=labelled)
    uncertainty = np.random.default_rng(seed).integers(0, 20, len(rows)).astype(np.float32)
    inside = uncertainty[pool.candidates]
    rank = {
        row: ((inside < value).sum() + ((inside == value).sum() + 1) / 2) / len(inside)
        for row, value in zip(pool.candidates, inside, strict=True)
    }
    picks, gains = paired(rows, pool, 60, rank, 5, alpha)
    selection = Pairwise(alpha=alpha, neighbours=5)(replace(pool, uncertainty=uncertainty), 60)
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-6)
    assert selection.parts["utility"] - selection.parts["similarity"] == pytest.approx(selection.gains)


def test_without_a_score_it_avoids_copies_of_what_is_picked():
    vectors = np.repeat(np.eye(4, dtype=np.float32), 2, axis=0)
    selection = Pairwise(neighbours=1)(Pool(np.arange(8), vectors=vectors), 8)
    assert selection.rows.tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert selection.gains == pytest.approx([0.9] * 4 + [0.8] * 4)


def test_one_row_alone_and_a_zero_row_have_no_neighbours():
    assert Pairwise()(Pool(np.array([0]), vectors=np.ones((1, 1), np.float32)), 1).rows.tolist() == [0]
    assert Pairwise()(Pool(np.arange(3), vectors=np.zeros((3, 2), np.float32)), 3).rows.tolist() == [0, 1, 2]


def test_a_share_beyond_one_is_refused():
    with pytest.raises(InputError, match=r"alpha must be in \[0, 1\].* got 1.5"):
        Pairwise(alpha=1.5)


def pool_with_graph(seed, size, width, lost=0.2):
    """A pool that brings a graph along in which some rows have fewer neighbours than others."""
    generator = np.random.default_rng(seed)
    index = np.stack([np.delete(np.arange(size), row)[generator.permutation(size - 1)[:width]] for row in range(size)])
    index = np.where(generator.random(index.shape) < lost, -1, index).astype(np.int32)
    cosine = np.where(index < 0, -np.inf, generator.uniform(-1, 1, index.shape)).astype(np.float32)
    graph = Graph(index, cosine, Recall.of_everything())
    return Pool(np.arange(size), vectors=np.ones((size, 1), np.float32), graph=graph), graph


@pytest.mark.parametrize("block", [1, 5, 65_536])
@pytest.mark.parametrize("seed", range(3))
def test_edges_are_the_pairs_of_which_one_names_the_other_from_both_sides(monkeypatch, seed, block):
    monkeypatch.setattr(pairwise, "BLOCK", block)
    pool, graph = pool_with_graph(seed, size=30, width=7)
    expected = {}
    for row in range(30):
        for other, cosine in zip(graph.index[row].tolist(), graph.cosine[row].tolist(), strict=True):
            if other >= 0:
                expected[row, other] = max(cosine, 0)
                expected.setdefault((other, row), max(cosine, 0))
    for row in range(30):  # what a row itself says of a pair counts for it
        for other, cosine in zip(graph.index[row].tolist(), graph.cosine[row].tolist(), strict=True):
            if other >= 0:
                expected[row, other] = max(cosine, 0)
    start, other, cosine, _ = edges(pool, 7, 0)
    weights = {}
    for row in range(30):
        for at in range(start[row], start[row + 1]):
            assert (row, int(other[at])) not in weights
            weights[row, int(other[at])] = float(cosine[at])
    assert weights == expected


def test_edges_take_little_more_memory_than_they_are(monkeypatch):
    monkeypatch.setattr(pairwise, "BLOCK", 4_096)
    monkeypatch.setattr(cover, "ENTRIES", 65_536)
    pool, graph = pool_with_graph(0, size=3_000, width=10, lost=0.0)
    many = np.concatenate([graph.index + 3_000 * block for block in range(20)])  # 60,000 rows
    cosine = np.tile(graph.cosine, (20, 1))
    rows = np.arange(len(many))
    pool = Pool(rows, vectors=np.ones((len(many), 1), np.float32), graph=Graph(many, cosine, graph.recall))
    edges(pool, 10, 0)
    tracemalloc.start()
    _, other, weights, _ = edges(pool, 10, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(other) == 2 * many.size - sum((graph.index[graph.index[row]] == row).sum() for row in range(3_000)) * 20
    assert peak < 3 * (other.nbytes + weights.nbytes) + 50 * 65_536  # a sort of all pairs takes 8 times
