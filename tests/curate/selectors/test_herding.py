import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors import cover, herding
from curate.selectors.contract import Pool
from curate.selectors.herding import Auto, MaxHerding
from scoring.errors import InputError


def herd(rows, pool, budget, weights, bandwidth=0.5):
    """The definition: the candidate that adds most to sum of weight times kernel with the nearest pick."""
    kernel = np.exp(-((rows[:, None] - rows[None]) ** 2).sum(-1) / (2 * bandwidth**2))
    covered = kernel[pool.labelled].max(0, initial=0)
    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        added = [(weights * np.maximum(kernel[row] - covered, 0))[pool.candidates].sum() for row in left]
        picks.append(lowest_best(added, left))
        gains.append(added[left.index(picks[-1])] / len(pool.candidates))
        covered = np.maximum(covered, kernel[picks[-1]])
    return picks, gains


@pytest.mark.parametrize("labelled", [0, 9])
@pytest.mark.parametrize("seed", range(4))
def test_herding_is_its_definition_to_the_last_candidate(seed, labelled):
    pool, rows = small_pool(seed, labelled=labelled)
    selection = MaxHerding()(pool, len(pool.candidates))
    picks, gains = herd(rows, pool, len(pool.candidates), np.ones(len(rows)))
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_auto_weighs_rows_by_their_margin_and_quality(seed):
    pool, rows = small_pool(seed)
    generator = np.random.default_rng(seed)
    chances = generator.dirichlet([0.4] * 5, len(rows)).astype(np.float32)
    quality = generator.random(len(rows)).astype(np.float32)
    top = np.sort(chances, axis=1)
    weights = (1 - (top[:, -1] - top[:, -2])) * quality
    selection = Auto()(replace(pool, probabilities=chances, quality=quality), 60)
    picks, gains = herd(rows, pool, 60, weights.astype(np.float64))
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains, abs=1e-7)
    assert selection.parts["weight"] == pytest.approx(weights[selection.rows])


def test_auto_without_probabilities_is_herding():
    pool, _ = small_pool(0)
    assert np.array_equal(Auto()(pool, 50).rows, MaxHerding()(pool, 50).rows)


def test_auto_covers_the_doubtful_side_first_and_junk_last():
    generator = np.random.default_rng(0)
    middle = np.eye(3)[np.repeat([0, 1, 2], 40)]
    vectors = middle + 0.1 * generator.standard_normal((120, 3))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    chances = np.repeat([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5]], 40, axis=0).astype(np.float32)
    quality = np.repeat([1.0, 1.0, 0.1], 40).astype(np.float32)
    pool = Pool(np.arange(120), vectors=vectors, probabilities=chances, quality=quality)
    assert (Auto()(pool, 3).rows // 40).tolist() == [1, 0, 2]


def test_beyond_the_exact_range_a_smaller_budget_is_a_prefix_also_across_stages(monkeypatch):
    monkeypatch.setattr(herding, "STAGE", 20)
    pool, _ = small_pool(1, n=1500, width=8)
    rule = MaxHerding(exact_rows=100, references=64, shortlist=1000)
    complete = rule(pool, 55)
    assert len(set(complete.rows.tolist())) == 55
    for budget in (1, 20, 21, 40):
        assert np.array_equal(rule(pool, budget).rows, complete.rows[:budget])
    assert "1,000 of 1,481 candidates" in complete.notes[0]


def test_beyond_the_exact_range_what_no_row_next_to_it_covers_is_ranked_by_weight():
    """Where kernels reach no neighbour, a row covers itself alone: the definition is then a ranking by weight."""
    generator = np.random.default_rng(2)
    vectors = generator.standard_normal((900, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    labelled = np.arange(0, 850, 9)
    vectors[850:] = vectors[labelled[:50]]  # copies of labelled rows are worth nothing
    chances = generator.dirichlet([0.4] * 5, 900).astype(np.float32)
    top = np.sort(chances, axis=1)
    weight = 1 - (top[:, -1] - top[:, -2])
    pool = Pool(np.setdiff1d(np.arange(900), labelled), labelled, vectors, chances)
    expected = [row for row in np.argsort(-weight, kind="stable").tolist() if row < 850 and row % 9][:100]
    for references in (64, 4_096):
        selection = Auto(bandwidth=0.02, exact_rows=1, references=references)(pool, 100)
        assert selection.rows.tolist() == expected
        assert selection.gains == pytest.approx(weight[expected] / len(pool.candidates), rel=1e-3)


@pytest.mark.parametrize("seed", range(3))
def test_beyond_the_exact_range_with_all_rows_drawn_the_gains_are_the_definitions(seed):
    pool, rows = small_pool(seed, n=300, width=8, labelled=40)
    selection = MaxHerding(exact_rows=1)(pool, 60)
    kernel = np.exp(-((rows[:, None] - rows[None]) ** 2).sum(-1) / 0.5)
    covered = kernel[pool.labelled].max(0)
    for row, gain in zip(selection.rows, selection.gains, strict=True):
        added = np.maximum(kernel - covered, 0)[:, pool.candidates].mean(1)
        assert gain == pytest.approx(added[row], abs=0.01)  # cosines to 0.004
        assert added[row] > added[pool.candidates].max() - 0.02
        covered = np.maximum(covered, kernel[row])


def test_the_loss_of_drawing_is_measured_and_small_where_rows_are_many():
    generator = np.random.default_rng(0)
    centres = generator.standard_normal((20, 16))
    vectors = centres[generator.integers(0, 20, 3000)] + 0.3 * generator.standard_normal((3000, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    pool = Pool(np.arange(3000), vectors=vectors)
    exact, drawn = MaxHerding()(pool, 40), MaxHerding(exact_rows=1000, references=800)(pool, 40)
    rows = vectors.astype(np.float64)

    def covered(picks):
        return np.exp((rows @ rows[picks].T - 1) / 0.25).max(1).mean()

    assert covered(drawn.rows) > 0.98 * covered(exact.rows)
    assert "less than those that were" in drawn.notes[0]
    assert not exact.notes


def test_parameters_out_of_range_are_one_line():
    with pytest.raises(InputError, match=r"bandwidth.* got 0;"):
        MaxHerding(bandwidth=0)
    for bandwidth in (1e-200, float("inf"), float("nan")):
        with pytest.raises(InputError, match="bandwidth must be between"):
            Auto(bandwidth=bandwidth)
    with pytest.raises(InputError, match="5000, 4096 and 3"):
        Auto(shortlist=3)


@pytest.mark.slow
def test_memory_does_not_grow_from_one_drawing_of_references_to_the_next(monkeypatch):
    monkeypatch.setattr(herding, "LIKELY", 64)
    vectors = np.random.default_rng(0).standard_normal((12_000, 8)).astype(np.float32)
    pool = Pool(np.arange(12_000), vectors=vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
    strategy = MaxHerding(exact_rows=1, references=1024, shortlist=12_000)

    def peak(budget):
        tracemalloc.start()
        strategy(pool, budget)
        reached = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return reached

    peak(2)  # what is loaded and kept at a first call
    small, three = peak(200), peak(2100)
    kernel = 12_000 * 1024 * 2
    assert small > kernel
    assert three < small + 0.5 * kernel


def test_how_many_rows_are_held_against_the_labelled_at_once_changes_no_pick(monkeypatch):
    generator = np.random.default_rng(4)
    vectors = generator.standard_normal((900, 6)).astype(np.float32)
    vectors[::50] = vectors[1]
    vectors[7] = 0
    order = generator.permutation(900)
    pool = Pool(np.sort(order[400:]), np.sort(order[:400]), vectors)
    monkeypatch.setattr(herding, "LIKELY", 8)
    choices = []
    for together in (1, 16, 100_000):
        monkeypatch.setattr(cover, "TOGETHER", together)
        choices.append(MaxHerding(exact_rows=1, references=60)(pool, 200))
    assert np.array_equal(choices[0].rows, choices[1].rows)
    assert np.array_equal(choices[0].rows, choices[2].rows)
    assert choices[0].gains == pytest.approx(choices[2].gains, abs=1e-6)


def test_what_is_covered_by_the_nearest_of_many_is_the_greatest_kernel():
    generator = np.random.default_rng(5)
    vectors = generator.standard_normal((1300, 5))
    vectors[[3, 900]] = 0
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = vectors / np.where(length > 0, length, 1)
    done = np.arange(100, 1300)
    expected = np.exp(-((rows[:100, None] - rows[done][None]) ** 2).sum(-1) / (2 * 0.3**2)).max(1)
    assert cover.covered(rows[:100], vectors, done, 0.3) == pytest.approx(expected, abs=1e-12)
    assert (cover.covered(rows[:100], vectors, done[:0], 0.3) == 0).all()
