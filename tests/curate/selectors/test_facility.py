import tracemalloc

import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors import cover
from curate.selectors.cover import SparseCover, greedy
from curate.selectors.facility import FacilityLocation
from curate.selectors.pool import Pool
from scoring.errors import InputError


def locate(similarity, pool, members, budget):
    """The definition on any similarity (row served, server)."""
    covered = similarity[:, pool.labelled].max(1, initial=0)
    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        added = [np.maximum(similarity[:, row] - covered, 0)[members].sum() for row in left]
        picks.append(lowest_best(added, left))
        gains.append(added[left.index(picks[-1])] / len(members))
        covered = np.maximum(covered, similarity[:, picks[-1]])
    return picks, gains


def cosines(rows):
    similarity = np.maximum(rows @ rows.T, 0)
    np.fill_diagonal(similarity, 1)
    return similarity


@pytest.mark.parametrize("labelled", [0, 9])
@pytest.mark.parametrize("seed", range(3))
def test_facility_location_is_its_definition_to_the_last_candidate(seed, labelled):
    pool, rows = small_pool(seed, labelled=labelled)
    members = np.concatenate([pool.candidates, pool.labelled])
    selection = FacilityLocation()(pool, len(pool.candidates))
    picks, gains = locate(cosines(rows), pool, members, len(pool.candidates))
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_the_sparse_form_is_the_definition_on_the_graph(seed):
    pool, rows = small_pool(seed, copies=False)
    members = np.sort(np.concatenate([pool.candidates, pool.labelled]))
    similarity = cosines(rows)
    allowed = np.eye(len(rows), dtype=bool)
    for row in members:
        others = sorted((other for other in members if other != row), key=lambda o: -(rows[row] @ rows[o]))
        allowed[row, others[:6]] = True
    selection = FacilityLocation(neighbours=6, exact_rows=1)(pool, 60)
    picks, gains = locate(np.where(allowed, similarity, 0), pool, members, 60)
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-6)
    assert "served by its 6 nearest only" in selection.notes[0]


def test_the_sparse_form_loses_little_and_says_how_much():
    generator = np.random.default_rng(0)
    rows = generator.standard_normal((10, 32))[generator.integers(0, 10, 800)] + generator.standard_normal((800, 32))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    pool = Pool(np.arange(800), vectors=rows.astype(np.float32))
    similarity = cosines(rows)
    dense = similarity[:, FacilityLocation()(pool, 40).rows].max(1).sum()
    selection = FacilityLocation(exact_rows=1)(pool, 40)
    sparse = similarity[:, selection.rows].max(1).sum()
    assert sparse > 0.97 * dense
    assert f"reaches {sparse / dense:.2%} of what" in selection.notes[-1]


def test_neighbours_beyond_what_a_graph_holds_are_refused():
    with pytest.raises(InputError, match="between 1 and 64, got 65"):
        FacilityLocation(neighbours=65)


def test_gains_of_a_sparse_cover_stay_what_a_fresh_sum_gives():
    generator = np.random.default_rng(0)
    start = np.arange(51) * 8
    server = np.array([generator.choice(50, 8, replace=False) for _ in range(50)]).ravel().astype(np.int32)
    similarity = generator.random(400)
    dense = np.zeros((50, 50))
    dense[np.repeat(np.arange(50), 8), server] = similarity
    cover = SparseCover(start, server, similarity, np.ones(50, bool), np.zeros(0, np.int64))
    picks, gains = greedy(cover, 50)
    covered = np.zeros(50)
    for pick, gain in zip(picks, gains, strict=True):
        assert gain == pytest.approx(np.maximum(dense[:, pick] - covered, 0).sum(), abs=1e-12)
        covered = np.maximum(covered, dense[:, pick])


def ragged(seed, size=40, most=9):
    """Rows that several can serve, some one alone: start, server, similarity, and all of it as a matrix."""
    generator = np.random.default_rng(seed)
    lists = []
    for row in range(size):
        others = np.setdiff1d(generator.choice(size, generator.integers(0, most), replace=False), row)
        lists.append(np.concatenate([[row], others]))
    start = np.concatenate([[0], np.cumsum([len(each) for each in lists])])
    server = np.concatenate(lists).astype(np.int32)
    similarity = (generator.integers(1, 9, len(server)) / 8).astype(np.float32)
    dense = np.zeros((size, size))
    dense[np.repeat(np.arange(size), np.diff(start)), server] = similarity
    return start, server, similarity, dense


@pytest.mark.parametrize("entries", [1, 7, 2_000_000])
@pytest.mark.parametrize("labelled", [0, 11])
@pytest.mark.parametrize("seed", range(3))
def test_a_sparse_cover_of_any_shape_is_the_definition_in_blocks_of_any_size(monkeypatch, seed, labelled, entries):
    monkeypatch.setattr(cover, "ENTRIES", entries)
    start, server, similarity, dense = ragged(seed)
    order = np.random.default_rng(seed).permutation(40)
    taken, candidates = np.sort(order[:labelled]), np.sort(order[labelled:])
    open_rows = np.isin(np.arange(40), candidates)
    picks, gains = greedy(SparseCover(start, server, similarity, open_rows, taken), len(candidates))
    pool = Pool(candidates, taken)
    expected, added = locate(dense, pool, np.arange(40), len(candidates))
    assert picks.tolist() == expected
    assert gains / 40 == pytest.approx(added, abs=1e-12)


def test_building_a_sparse_cover_takes_little_more_than_its_entries(monkeypatch):
    monkeypatch.setattr(cover, "ENTRIES", 65_536)
    size, width = 40_000, 65
    server = np.random.default_rng(0).integers(0, size, (size, width)).astype(np.int32)
    server[:, 0] = np.arange(size)
    similarity = np.ones(size * width, np.float32)
    start = np.arange(size + 1) * width
    tracemalloc.start()
    SparseCover(start, server.ravel(), similarity, np.ones(size, bool), np.arange(0, size, 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * server.size + 100 * size + 50 * 65_536  # 4 bytes an entry; a sort of all takes 20
