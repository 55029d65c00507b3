"""Hierarchical k-means with resampling: spread over what there is, and shared out evenly on every level."""

import numpy as np
import pytest

from curate.selectors.clusters import KMeans
from curate.selectors.contract import Pool
from curate.selectors.hierarchical import Hierarchical, balanced, hierarchy, nearest_of_each
from scoring.errors import InputError


def crowded(n, seed):
    """Points of the unit square, most in two small crowds, and the same on a sphere, as far from one another."""
    generator = np.random.default_rng(seed)
    crowd = generator.choice(3, n, p=[0.7, 0.2, 0.1])
    square = np.array([[0.25, 0.25], [0.7, 0.7], [0.5, 0.5]])[crowd]
    square += np.array([0.05, 0.1, 0.0])[crowd, None] * generator.standard_normal((n, 2))
    square[crowd == 2] = generator.random(((crowd == 2).sum(), 2))
    square = square[((square > 0) & (square < 1)).all(1)]
    turns = np.pi * square[:, :, None] * np.arange(1, 7)
    sphere = np.concatenate([np.cos(turns), np.sin(turns)], axis=2).reshape(len(square), -1)
    return square, (sphere / np.linalg.norm(sphere, axis=1, keepdims=True)).astype(np.float32)


def from_uniform(square):
    """Kullback-Leibler divergence of points from the uniform distribution over the square, in nats."""
    counts = np.histogram2d(square[:, 0], square[:, 1], bins=6, range=[[0, 1], [0, 1]])[0].ravel()
    shares = counts[counts > 0] / counts.sum()
    return float((shares * np.log(shares * 36)).sum())


@pytest.mark.parametrize("seed", [0, 1])
def test_picks_come_the_nearer_to_uniform_the_more_is_resampled_and_the_more_levels_there_are(seed):
    """The claim of Vo et al. 2024, section 3, over a density that is known."""
    square, vectors = crowded(6_000, seed)
    pool = Pool(np.arange(len(vectors)), vectors=vectors)

    def kl(selector):
        return from_uniform(square[selector(pool, 300, seed=seed).rows])

    dataset, clusters = from_uniform(square), kl(KMeans())
    flat, resampled = kl(Hierarchical(levels=1, resamples=0)), kl(Hierarchical(levels=1))
    deep = kl(Hierarchical(levels=3))
    assert dataset > clusters > resampled > deep
    assert flat > resampled
    assert deep < 0.5 * clusters


def shared(counts, taken, budget):
    """One row at a time to the child that had the fewest turns and has rows left, slowly; what each child gives."""
    shares = np.zeros(len(counts), int)
    for _ in range(budget):
        open_children = [at for at in range(len(counts)) if shares[at] < counts[at]]
        fewest = min(shares[at] + taken[at] for at in open_children)
        shares[next(at for at in open_children if shares[at] + taken[at] == fewest)] += 1
    return np.sort(shares + taken)


@pytest.mark.parametrize("budget", [1, 5, 17, 60, 200])
def test_every_level_shares_the_budget_out_as_one_at_a_time_would(budget):
    generator = np.random.default_rng(3)
    home = generator.choice(12, 200, p=generator.dirichlet(np.full(12, 0.5))).astype(np.int32)
    parents = [np.array([0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3], np.int32), np.array([0, 0, 1, 1], np.int32)]
    taken = generator.integers(0, 4, 12)
    picks = balanced(home, parents, taken, seed=0)
    assert np.array_equal(np.sort(picks), np.arange(200))
    cell, had = home, taken
    for parent in [*parents, np.zeros(2, np.int32)]:
        n = len(had)
        sizes, shares = np.bincount(cell, minlength=n), np.bincount(cell[picks[:budget]], minlength=n)
        for above in range(parent.max() + 1):
            inside = parent == above
            share = int(shares[inside].sum())
            assert np.array_equal(np.sort((shares + had)[inside]), shared(sizes[inside], had[inside], share))
        cell, had = parent[cell], np.bincount(parent, had).astype(int)


def test_the_nearest_rows_of_each_cluster_are_found():
    cluster = np.array([1, 0, 1, -1, 1, 0], np.int32)
    nearness = np.array([0.3, 0.9, 0.8, 1.0, 0.5, 0.1], np.float32)
    assert nearest_of_each(cluster, nearness, 2).tolist() == [1, 2, 4, 5]
    assert nearest_of_each(cluster, nearness, 1).tolist() == [1, 2]


def test_the_closest_rows_of_a_cluster_come_first_where_that_is_requested():
    _, vectors = crowded(400, 0)
    pool = Pool(np.arange(len(vectors)), vectors=vectors)
    home, nearness, _ = hierarchy(vectors, [25, 3, 1], resamples=10, seed=7)
    picks = Hierarchical(levels=3, pick="closest")(pool, len(vectors), seed=7).rows
    for number in np.unique(home):
        mine = nearness[picks[home[picks] == number]]
        assert (np.diff(mine) <= 0).all()


def test_labelled_rows_count_as_turns_of_their_clusters():
    """Two far groups; where one has labels already, the other is requested first."""
    generator = np.random.default_rng(0)
    ends = np.zeros((64, 8), np.float32)
    ends[:32, 0], ends[32:, 1] = 1, 1
    ends += 0.05 * generator.standard_normal(ends.shape).astype(np.float32)
    ends /= np.linalg.norm(ends, axis=1, keepdims=True)
    pool = Pool(np.r_[6:64], labelled=np.arange(6), vectors=ends)
    picks = Hierarchical(levels=1, most_clusters=2)(pool, 16).rows
    assert (picks[:6] >= 32).all()
    assert (picks < 32).sum() == 5


def test_levels_of_one_cluster_are_a_random_order():
    _, vectors = crowded(300, 0)
    pool = Pool(np.arange(len(vectors)), vectors=vectors)
    rows = Hierarchical(levels=6, most_clusters=1)(pool, len(vectors)).rows
    assert np.array_equal(np.sort(rows), np.arange(len(vectors)))


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"levels": 0}, "levels .*got 0"), ({"branching": 1}, "at least 2"), ({"pick": "far"}, "closest")],
)
def test_parameters_out_of_range_are_one_line(settings, words):
    with pytest.raises(InputError, match=words) as error:
        Hierarchical(**settings)
    assert "\n" not in str(error.value)
