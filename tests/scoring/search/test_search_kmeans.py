"""Spherical k-means and the assignment of rows."""

import numpy as np
import pytest

from scoring.search.kmeans import assign, spherical_kmeans


def blobs(n, k, *, width=16, seed=0, dtype=np.float32, spread=0.05):
    generator = np.random.default_rng(seed)
    middle = generator.standard_normal((k, width))
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    label = generator.permutation(np.arange(n) % k)
    rows = middle[label] + spread * generator.standard_normal((n, width))
    rows *= generator.uniform(0.5, 4, (n, 1))
    return (np.clip(rows * 30, -127, 127) if dtype == np.int8 else rows).astype(dtype), label, middle


def unit(rows):
    return rows.astype(float) / np.linalg.norm(rows.astype(float), axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
def test_each_centroid_is_the_mean_direction_of_its_rows(dtype):
    rows, _, _ = blobs(800, 5, dtype=dtype)
    centroids = spherical_kmeans(rows, 5, seed=3, sample=800, iterations=50)
    near = (unit(rows) @ centroids.T).argmax(1)
    for number in np.unique(near):
        mean = unit(rows[near == number]).sum(0)
        assert mean / np.linalg.norm(mean) @ centroids[number] > 0.9999
    assert np.allclose(np.linalg.norm(centroids, axis=1), 1, atol=1e-6)


def test_more_iterations_bring_rows_nearer_to_their_centroids():
    rows = np.random.default_rng(0).standard_normal((3000, 32)).astype(np.float32)
    reach = [assign(rows, spherical_kmeans(rows, 20, seed=1, iterations=n))[1].mean() for n in (1, 3, 12)]
    assert reach[0] < reach[1] < reach[2]


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize("probes", [1, 3, 9])
def test_assign_gives_the_nearest_centroids_within_the_precision_of_its_products(dtype, probes):
    rows, _, _ = blobs(500, 9, dtype=dtype, spread=0.3)
    centroids = spherical_kmeans(rows, 9, seed=0)
    index, cosine = assign(rows, centroids, probes)
    true = unit(rows) @ centroids.T
    assert (index.shape, index.dtype, cosine.dtype) == ((500, probes), np.int32, np.float32)
    estimated = np.take_along_axis(true, index.astype(int), 1)
    best = -np.sort(-true, axis=1)[:, :probes]
    assert np.abs(estimated - cosine).max() < 0.012
    assert np.abs(estimated - best).max() < 0.024
    assert all(len(set(row)) == probes for row in index.tolist())


def test_the_nearest_centroid_is_the_same_however_many_are_requested_where_products_tie():
    rows = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float16)
    centroids = np.repeat(spherical_kmeans(rows, 10, seed=0), 12, axis=0)  # of each twelve, which tie
    nearest, cosine = assign(rows, centroids)
    several, cosines = assign(rows, centroids, 5)
    assert np.array_equal(nearest[:, 0], several[:, 0])
    assert np.array_equal(cosine[:, 0], cosines[:, 0])
    assert (np.diff(cosines, axis=1) <= 0).all()


def test_rows_of_length_zero_are_in_no_cluster_and_move_none():
    rows, _, _ = blobs(300, 3)
    rows[10:200] = 0
    index, cosine = assign(rows, spherical_kmeans(rows, 3, seed=0), 2)
    assert (index[10:200] == -1).all()
    assert np.isneginf(cosine[10:200]).all()
    assert (np.delete(index, np.s_[10:200], 0) >= 0).all()


def test_equal_seeds_give_equal_centroids_and_another_seed_other_ones():
    rows, _, _ = blobs(5000, 40, spread=0.5)
    first, second = (spherical_kmeans(rows, 10, seed=7) for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, spherical_kmeans(rows, 10, seed=8))


def test_a_cluster_that_lost_its_rows_starts_again():
    rows = np.concatenate([np.tile([[1.0, 0, 0]], (400, 1)), blobs(80, 8, width=3, seed=1)[0]]).astype(np.float32)
    centroids = spherical_kmeans(rows, 12, seed=0, iterations=30)  # most start at equal rows
    used = np.unique(assign(rows, centroids)[0])
    assert len(used) >= 6
    assert np.isfinite(centroids).all()


def test_all_rows_equal_or_all_zero_or_fewer_than_their_sample_are_defined():
    same = np.ones((50, 4), np.float32)
    assert np.allclose(spherical_kmeans(same, 7, seed=0), 0.5)
    assert (
        assign(same, spherical_kmeans(same, 7, seed=0))[0] == assign(same[:1], np.full((7, 4), 0.5, np.float32))[0]
    ).all()
    assert not spherical_kmeans(same * 0, 7, seed=0).any()
    centroid = spherical_kmeans(same[:1], 1, seed=0, sample=1000)
    assert np.allclose(centroid, 0.5)
    assert assign(same[:0], centroid)[0].shape == (0, 1)


def test_the_sample_never_exceeds_256_rows_a_cluster(monkeypatch):
    import scoring.search.kmeans as kmeans

    seen = []
    real = kmeans._sampled
    monkeypatch.setattr(kmeans, "_sampled", lambda v, size, *more: seen.append(size) or real(v, size, *more))
    rows, _, _ = blobs(3000, 4)
    for sample, expected in ((None, 2 * 64), (100_000, 2 * 256), (10, 10), (1, 2)):
        spherical_kmeans(rows, 2, seed=0, sample=sample)
        assert seen[-1] == expected
    spherical_kmeans(rows[:5], 2, seed=0)
    assert seen[-1] == 5


def test_blocks_change_no_assignment(monkeypatch):
    rows, _, _ = blobs(333, 6, spread=0.4)
    centroids = spherical_kmeans(rows, 6, seed=0)
    expected = assign(rows, centroids, 2)[0]
    monkeypatch.setattr("scoring.search.kmeans.BLOCK", 50)
    monkeypatch.setattr("scoring.search.kmeans.PRODUCTS", 60)
    assert (assign(rows, centroids, 2)[0] == expected).mean() > 0.99  # where two centroids tie, either may come first


def test_arguments_out_of_range_are_refused():
    rows, _, _ = blobs(10, 2)
    for k in (0, 11):
        with pytest.raises(ValueError, match="k must be"):
            spherical_kmeans(rows, k, seed=0)
    with pytest.raises(ValueError, match="probes"):
        assign(rows, np.eye(2, 16, dtype=np.float32), 3)
    with pytest.raises(ValueError, match="sample and iterations"):
        spherical_kmeans(rows, 2, seed=0, sample=0)
    rows[7, 0] = np.nan
    for act in (lambda: spherical_kmeans(rows, 2, seed=0), lambda: assign(rows, np.eye(2, 16, dtype=np.float32))):
        with pytest.raises(ValueError, match="row 7"):
            act()
