"""The best rows, found without sorting, against a sort."""

import numpy as np
import pytest

from curate.policies.filter import ranked
from curate.policies.filter.rules import _ends
from curate.tables import keys


def by_sorting(values, inside, k, ties, *, low_is_best):
    at = np.flatnonzero(inside)
    number = [float(value) for value in values[at]]
    order = sorted(range(len(at)), key=lambda i: (number[i] if low_is_best else -number[i], -int(ties[at[i]])))
    keep = np.zeros(len(values), bool)
    keep[at[order[:k]]] = True
    return keep, (number[order[k - 1]] if k else np.nan)


def made(kind, generator, n):
    if kind == "few":
        return generator.integers(-2, 3, n).astype(np.float32)
    if kind == "extremes":
        extremes = np.array([np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)
        return extremes[generator.integers(0, len(extremes), n)]
    if kind == "bool":
        return generator.integers(0, 2, n).astype(bool)
    dtype = np.dtype(kind)
    if dtype.kind == "f":
        return generator.standard_normal(n).astype(dtype)
    ends = np.iinfo(dtype)
    return generator.integers(ends.min, ends.max, n, dtype=dtype, endpoint=True)


@pytest.mark.parametrize("low_is_best", [True, False])
@pytest.mark.parametrize(
    "kind", ["few", "extremes", "bool", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
)
def test_the_best_equal_a_sort(kind, low_is_best):
    generator = np.random.default_rng(len(kind))
    for n in (1, 6, 7, 40):
        values = made(kind, generator, n)
        if kind in ("i8", "u8"):
            values = values // 2**12 * 2**12  # as floats they are themselves, which the sort compares
        inside = generator.random(n) < 0.8
        ties = generator.integers(0, 2**63, n).astype(np.uint64)
        for k in range(int(inside.sum()) + 1):
            keep, cut = ranked.best(values, inside, lambda _, k=k: k, ties, low_is_best=low_is_best)
            expected, last = by_sorting(values, inside, k, ties, low_is_best=low_is_best)
            assert keep.tolist() == expected.tolist(), (n, k)
            assert cut == last or (np.isnan(cut) and np.isnan(last))  # -0.0 is 0.0


@pytest.mark.parametrize(("least_size", "sample"), [(0, 1000), (32, 1000), (32, 40), (0, 10)])
@pytest.mark.parametrize("at_once", [1, 30, 1000])
@pytest.mark.parametrize("kind", ["few", "extremes", "f4", "i8", "u1", "sorted"])
def test_groups_are_as_if_each_was_ranked_alone(monkeypatch, kind, at_once, least_size, sample):
    monkeypatch.setattr(ranked, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr(ranked, "LEAST_SIZE", least_size)
    monkeypatch.setattr(ranked, "SAMPLE", sample)
    generator, n = np.random.default_rng(0), 120
    values = np.sort(made("f4", generator, n)) if kind == "sorted" else made(kind, generator, n)
    codes = generator.integers(0, 5, n).astype(np.int32)
    ties, inside = generator.integers(0, 2**63, n).astype(np.uint64), generator.random(n) < 0.8
    for low in (True, False):
        stays, cuts = ranked.best_of_groups(values, inside, codes, 6, lambda n: n // 2, ties, low_is_best=low)
        for group in range(6):
            alone, cut = ranked.best(values, inside & (codes == group), lambda n: n // 2, ties, low_is_best=low)
            assert (stays & (codes == group)).tolist() == alone.tolist()
            np.testing.assert_equal(cuts[group], cut)


@pytest.mark.parametrize("n", [0, 1, 5, 9, 16, 17, 200])
def test_ends_of_blocks_match_a_stable_sort(n):
    generator = np.random.default_rng(n)
    values, inside = generator.choice([0, 1, 2, 3, 4, 5, np.inf, np.nan], n), generator.random(n) < 0.8
    ends = np.zeros(0, np.int64), np.zeros(0)
    for start in range(0, n, 10):
        rows = np.arange(start, min(start + 10, n))
        ends = _ends(*ends, rows, values[rows], inside[rows])
    order = np.flatnonzero(inside)[np.argsort(values[inside], kind="stable")]
    assert ends[0].tolist() == (order if len(order) <= 16 else np.concatenate([order[:8], order[-8:]])).tolist()


@pytest.mark.parametrize("at_once", [1, 10, 1000])
def test_repeated_hashes_are_found_a_part_at_a_time(monkeypatch, at_once):
    monkeypatch.setattr(keys, "SORTED_AT_ONCE", at_once)
    generator = np.random.default_rng(0)
    hashes = generator.integers(0, 2**64, 500, dtype=np.uint64)
    hashes[:20] = hashes[100:120]
    values, counts = np.unique(hashes, return_counts=True)
    assert sorted(keys._repeated(hashes).tolist()) == values[counts > 1].tolist()
    assert len(keys._repeated(np.zeros(0, np.uint64))) == 0


def test_a_sample_without_the_worst_rows_finds_them_all_the_same(monkeypatch):
    monkeypatch.setattr(ranked, "SAMPLE", 100)
    values, part = np.zeros(1000), np.zeros(1000, np.uint8)
    values[1::10], values[2::10] = 2, 1  # every tenth row is drawn, and all of these are 0
    ties, amounts = np.arange(1000, dtype=np.uint64), tuple(np.array([n]) for n in (1000, 150, 20))
    worst, following = ranked.worst_of_parts(values, part, amounts, ties, low_is_best=True)
    assert np.flatnonzero(worst).tolist() == sorted([*range(1, 1000, 10), *range(2, 502, 10)])
    assert np.flatnonzero(following).tolist() == [*range(502, 702, 10)]
