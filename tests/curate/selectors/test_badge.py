import numpy as np
import pytest

from curate.selectors.badge import Badge, _draw, _Gradients
from curate.selectors.pool import Pool


def gradients_of(pool):
    """Every gradient, written out: (M, C * D)."""
    p = pool.probabilities.astype(float).copy()
    p[np.arange(len(p)), pool.probabilities.argmax(1)] -= 1
    quality = np.ones(len(p)) if pool.quality is None else pool.quality
    g = (p[:, :, None] * pool.vectors.astype(float)[:, None, :]).reshape(len(p), -1) * quality[:, None]
    return g[pool.candidates]


def slow_badge(pool, budget, seed):
    """k-means++ on the gradients: the definition, with the same lots."""
    g, generator = gradients_of(pool), np.random.default_rng(seed)
    picks = [int(np.argmax((g**2).sum(1)))]
    while len(picks) < budget:
        nearest = np.array([min(((x - g[pick]) ** 2).sum() for pick in picks) for x in g])
        nearest[picks] = 0
        lot, row, until = generator.random() * nearest.sum(), 0, nearest[0]
        while until <= lot:
            row += 1
            until += nearest[row]
        picks.append(row)
    return pool.candidates[picks]


def pool_of(n=90, c=5, d=7, seed=0, **more):
    generator = np.random.default_rng(seed)
    return Pool(
        np.sort(generator.permutation(n)[: n - 20]),
        vectors=generator.standard_normal((n, d)).astype(np.float32),
        probabilities=generator.dirichlet(np.full(c, 0.3), n).astype(np.float32),
        **more,
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("c", [1, 2, 5])
def test_picks_are_those_of_the_definition_with_every_gradient_built(seed, c):
    pool = pool_of(c=c, seed=seed)
    if c == 1:  # no gradient at all: every pick is by equal probabilities
        assert sorted(Badge()(pool, 70, seed=seed).rows) == sorted(pool.candidates)
        return
    selection = Badge()(pool, 40, seed=seed)
    assert selection.rows.tolist() == slow_badge(pool, 40, seed).tolist()


def test_quality_scales_the_gradients():
    generator = np.random.default_rng(5)
    pool = pool_of(seed=5, quality=generator.random(90).astype(np.float32))
    assert Badge()(pool, 30, seed=5).rows.tolist() == slow_badge(pool, 30, 5).tolist()


def test_gains_are_squared_distances_to_the_nearest_earlier_pick():
    pool = pool_of(seed=3)
    selection = Badge()(pool, 25, seed=3)
    g = gradients_of(pool)[np.searchsorted(pool.candidates, selection.rows)]
    assert selection.gains[0] == pytest.approx((g[0] ** 2).sum(), rel=1e-5)
    for k in range(1, 25):
        assert selection.gains[k] == pytest.approx(((g[:k] - g[k]) ** 2).sum(1).min(), rel=1e-4)
    assert selection.parts["norm"] == pytest.approx(np.linalg.norm(g, axis=1), rel=1e-5)


@pytest.mark.parametrize("blocks", ["one", "many"])
def test_the_bound_changes_no_distance(blocks, monkeypatch):
    if blocks == "many":
        monkeypatch.setattr("curate.selectors.badge.BLOCK", 17)
    pool = pool_of(500, 4, 12, seed=1)
    factored, g = _Gradients(pool), gradients_of(pool)
    nearest, slow = np.full(480, np.inf), np.full(480, np.inf)
    for pick in (4, 99, 300, 7, 301):
        factored.approach(nearest, pick)
        slow = np.minimum(slow, ((g - g[pick]) ** 2).sum(1))
        assert nearest == pytest.approx(slow, rel=1e-4, abs=1e-6)


def test_the_bound_spares_most_products_where_classes_are_clear(monkeypatch):
    generator = np.random.default_rng(0)
    cosine = generator.integers(0, 10, 3000)
    p = generator.dirichlet(np.full(10, 0.02), 3000) * 0.4
    p[np.arange(3000), cosine] += 0.6
    pool = Pool(
        np.arange(3000), vectors=generator.standard_normal((3000, 32)).astype("f4"), probabilities=p.astype("f4")
    )
    sizes = []
    real = _Gradients._products
    monkeypatch.setattr(_Gradients, "_products", lambda self, rows, h: sizes.append(len(rows)) or real(self, rows, h))
    Badge()(pool, 50)
    assert sum(sizes) < 0.5 * 3000 * 50


def test_a_batch_of_six_has_six_rows_even_where_most_are_copies():
    """A known implementation returns five: a row drawn twice."""
    generator = np.random.default_rng(0)
    for seed in range(40):
        few = generator.standard_normal((3, 4)).astype(np.float32)
        p = generator.dirichlet(np.ones(3), 3).astype(np.float32)
        pool = Pool(np.arange(12), vectors=np.tile(few, (4, 1)), probabilities=np.tile(p, (4, 1)))
        rows = Badge()(pool, 6, seed=seed).rows
        assert len(set(rows.tolist())) == 6
        assert len(set((rows[:3] % 3).tolist())) == 3  # while there is anything new, no copy is drawn


def test_of_rows_without_gradient_one_at_most_is_drawn_before_all_that_have_one():
    pool = pool_of(60, 3, 4, seed=2)
    p = pool.probabilities.copy()
    p[10:] = np.eye(3, dtype=np.float32)[0]
    pool = Pool(np.arange(60), vectors=pool.vectors, probabilities=p)
    selection = Badge()(pool, 60, seed=1)
    assert set(selection.rows[:11].tolist()) > set(range(10))
    assert (selection.gains[:11] > 0).all()
    assert (selection.gains[11:] == 0).all()
    assert len({tuple(Badge()(pool, 60, seed=seed).rows[20:]) for seed in range(5)}) == 5


def test_a_lot_at_either_end_draws_a_row_that_is_not_picked_yet():
    class Lots:
        def __init__(self, lot):
            self.lot = lot

        def random(self):
            return self.lot

    nearest, free = np.array([0, 2.0, 0, 3.0, 0]), np.array([False, True, False, True, False])
    assert _draw(nearest, free, Lots(0.0)) == 1
    assert _draw(nearest, free, Lots(np.nextafter(1, 0))) == 3
    assert _draw(np.zeros(5), free, Lots(0.0)) == 1
    assert _draw(np.zeros(5), free, Lots(np.nextafter(1, 0))) == 3


def test_memory_stays_far_below_one_gradient_a_row():
    import tracemalloc

    generator = np.random.default_rng(0)
    n, c, d = 2000, 100, 64
    pool = Pool(
        np.arange(n),
        vectors=generator.standard_normal((n, d)).astype(np.float32),
        probabilities=generator.dirichlet(np.ones(c), n).astype(np.float32),
    )
    Badge()(pool, 2)
    tracemalloc.start()
    Badge()(pool, 20)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * c * d * 4 / 5  # 51 MB would be all gradients in float32
