import numpy as np
import pytest
from coverage_pools import lowest_best, small_pool

from curate.selectors.pool import Pool
from curate.selectors.probcover import ProbCover, pure_radius
from scoring.errors import InputError
from scoring.search.kmeans import assign, spherical_kmeans


def cover(rows, pool, radius, budget):
    """The definition: the candidate whose ball holds most rows that no ball holds yet."""
    members = np.concatenate([pool.candidates, pool.labelled])
    inside = np.linalg.norm(rows[:, None] - rows[None], axis=-1) <= radius
    free = np.isin(np.arange(len(rows)), members) & ~inside[pool.labelled].any(0)
    picks, gains = [], []
    for _ in range(budget):
        left = [row for row in pool.candidates if row not in picks]
        held = [(inside[row] & free).sum() for row in left]
        picks.append(lowest_best(held, left))
        gains.append(max(held) / len(members))
        free &= ~inside[picks[-1]]
    return picks, gains


@pytest.mark.parametrize("exact_rows", [1, 5000])
@pytest.mark.parametrize("radius", [0.2, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_it_is_its_definition_in_both_forms(seed, radius, exact_rows):
    pool, rows = small_pool(seed, copies=False)
    selection = ProbCover(radius=radius, exact_rows=exact_rows)(pool, len(pool.candidates))
    picks, gains = cover(rows, pool, radius, len(pool.candidates))
    assert selection.rows.tolist() == picks
    assert selection.gains == pytest.approx(gains)


def test_copies_lie_in_one_ball_and_labelled_balls_are_full():
    pool, rows = small_pool(0)
    selection = ProbCover(radius=0.05)(pool, 30)
    assert selection.rows.tolist() == cover(rows, pool, 0.05, 30)[0]
    copies = [row for row in (3, 10, 40, 41) if row in pool.candidates]
    assert selection.rows[0] == copies[0]
    labelled = Pool(pool.candidates[pool.candidates != 40], np.array([40]), vectors=pool.vectors)
    assert not {3, 10, 41} & set(ProbCover(radius=0.05)(labelled, 30).rows.tolist())


def test_the_radius_is_the_largest_at_which_balls_are_pure():
    generator = np.random.default_rng(0)
    rows = np.eye(4)[np.repeat(range(4), 50)] + 0.05 * generator.standard_normal((200, 4))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    label = assign(rows, spherical_kmeans(rows, 4, seed=1, iterations=25))[0][:, 0]
    gaps = np.linalg.norm(rows[:, None] - rows[None], axis=-1)
    other = np.where(label[:, None] != label, gaps, np.inf).min(1)
    radius = pure_radius(rows, 4, 0.95, seed=1)
    assert (other > radius).mean() >= 0.95
    assert (other > radius * (1 + 1e-5)).mean() < 0.95


def test_rows_that_are_all_alike_have_pure_balls_of_radius_one():
    assert pure_radius(np.ones((30, 1), np.float32), 4, 0.95, seed=0) == 1


def test_the_radius_found_and_an_exhausted_cover_are_noted():
    pool, _ = small_pool(0)
    assert ProbCover()(pool, 5).notes[0].startswith("radius 0.")
    assert "every row is in a ball before the last 10 picks" in ProbCover(radius=1.99)(pool, 10).notes[-1]


def test_a_radius_that_no_two_directions_have_is_refused():
    with pytest.raises(InputError, match=r"above 0 and below 2.* got 2"):
        ProbCover(radius=2)
