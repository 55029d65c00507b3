import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors import kcenter
from curate.selectors.contract import Pool
from curate.selectors.kcenter import KCenter


def farthest_first(rows, pool, budget, first):
    """The definition: the candidate whose nearest labelled or picked row is farthest, again and again."""
    gaps = np.sqrt(((rows[:, None] - rows[None]) ** 2).sum(-1))
    picks, gains = ([], []) if len(pool.labelled) else ([first], [np.inf])
    while len(picks) < budget:
        left = [row for row in pool.candidates if row not in picks]
        done = [*pool.labelled, *picks]
        picks.append(lowest_best([gaps[row][done].min() for row in left], left))
        gains.append(gaps[picks[-1]][[*pool.labelled, *picks[:-1]]].min())
    return picks, gains


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("front", [5, 4096])
@pytest.mark.parametrize("labelled", [0, 9])
@pytest.mark.parametrize("seed", range(3))
def test_picks_and_gains_match_the_definition_whatever_is_cached(monkeypatch, precision, front, labelled, seed):
    monkeypatch.setattr(kcenter, "FRONT", front)
    monkeypatch.setattr(kcenter, "ROOTS", 0)
    monkeypatch.setattr(kcenter, "ALIKE", min(front, 3))
    monkeypatch.setattr(kcenter, "CENTRES", min(front, 64))
    monkeypatch.setattr(kcenter, "EXACT_NUMBERS", 10**7 if precision == "float64" else 0)
    pool, rows = small_pool(seed, labelled=labelled)
    selection = KCenter()(pool, len(pool.candidates), seed=seed)
    first = pool.candidates[np.random.default_rng(seed).integers(len(pool.candidates))]
    picks, gains = farthest_first(rows, pool, len(pool.candidates), first)
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-7)


def test_many_rows_on_a_lattice_tie_and_the_lowest_is_picked_even_outside_the_front(monkeypatch):
    monkeypatch.setattr(kcenter, "FRONT", 4)
    monkeypatch.setattr(kcenter, "ROOTS", 0)
    vectors = np.tile(np.eye(8, dtype=np.float32), (20, 1))  # 160 rows, 8 directions
    selection = KCenter()(Pool(np.arange(1, 160), np.array([0]), vectors=vectors), 9)
    assert selection.rows.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9]
    assert selection.gains == pytest.approx([2**0.5] * 7 + [0, 0])
    assert selection.notes == ("the last 2 picks are near-copies of others",)


def test_the_rows_of_a_larger_pool_in_half_precision_match_a_plain_loop():
    generator = np.random.default_rng(0)
    vectors = generator.standard_normal((20_000, 128)).astype(np.float16)
    selection = KCenter(unit=False)(Pool(np.arange(len(vectors)), vectors=vectors), 60)
    rows = vectors.astype(np.float64)
    nearest, picks = np.full(len(rows), np.inf), [int(selection.rows[0])]
    for _ in range(59):
        gap = rows - rows[picks[-1]]
        nearest = np.minimum(nearest, np.einsum("nd,nd->n", gap, gap))
        picks.append(int(nearest.argmax()))
    assert selection.rows.tolist() == picks


def test_an_outlier_comes_first():
    generator = np.random.default_rng(1)
    vectors = np.abs(generator.standard_normal((50, 8))).astype(np.float32)
    vectors[33] = -vectors[33]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    assert KCenter()(Pool(np.arange(1, 50), np.array([0]), vectors=vectors), 1).rows.tolist() == [33]


def test_gains_never_rise():
    pool, _ = small_pool(5, n=200, width=6)
    assert (np.diff(KCenter()(pool, 100).gains) <= 1e-12).all()
