"""Vendi score against its definition over all pairs, and distances against all distances."""

import numpy as np
import pytest

from curate.statistics import diversity
from curate.statistics.diversity import nearest_distances, vendi_interval, vendi_score


def by_definition(rows):
    """Exp of the Shannon entropy of the eigenvalues of K / N, K the N x N matrix of cosines."""
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    values = np.linalg.eigvalsh(units @ units.T / len(rows))
    return float(np.exp(sum(-v * np.log(v) for v in values if v > 1e-12)))


@pytest.mark.parametrize(("n", "d"), [(1, 5), (3, 8), (8, 8), (200, 6), (9000, 4)])
def test_it_is_the_entropy_of_the_kernels_eigenvalues(n, d):
    rows = np.random.default_rng(n).normal(size=(n, d)) + 0.5
    expected = by_definition(rows if n < 1000 else rows[:500])
    if n < 1000:
        assert vendi_score(rows) == pytest.approx(expected, rel=1e-5)
    else:  # a sum over blocks
        assert vendi_score(rows) == pytest.approx(vendi_score(rows[np.random.default_rng(0).permutation(n)]), rel=1e-5)


def test_copies_change_nothing_and_scale_neither():
    rows = np.random.default_rng(1).normal(size=(40, 6))
    assert vendi_score(np.concatenate([rows, rows])) == pytest.approx(vendi_score(rows), rel=1e-5)
    assert vendi_score(rows * np.arange(1, 41)[:, None]) == pytest.approx(vendi_score(rows), rel=1e-5)


@pytest.mark.parametrize(("n", "d"), [(400, 6), (60, 100)])
def test_the_jackknife_uses_twenty_parts(n, d):
    rows = np.random.default_rng(2).normal(size=(n, d)) + 1
    cuts = np.linspace(0, n, 21).astype(int)
    without = [by_definition(np.delete(rows, np.arange(cuts[g], cuts[g + 1]), 0)) for g in range(20)]
    error = np.sqrt(19 / 20 * np.sum((np.array(without) - np.mean(without)) ** 2))
    interval = vendi_interval(rows)
    assert interval.value == pytest.approx(by_definition(rows), rel=1e-4)
    assert interval.high - interval.value == pytest.approx(2.093 * error, rel=1e-2)


def test_a_few_rows_have_no_interval():
    interval = vendi_interval(np.eye(5))
    assert interval.value == pytest.approx(5)
    assert np.isnan(interval.low)
    assert np.isnan(interval.high)


@pytest.mark.parametrize("block", [7, 8192])
def test_the_nearest_reference_is_the_nearest_of_all(monkeypatch, block):
    monkeypatch.setattr(diversity, "BLOCK", block)
    generator = np.random.default_rng(3)
    rows, references = generator.normal(size=(30, 5)), generator.normal(size=(50, 5))
    units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in (rows, references)]
    every = np.linalg.norm(units[0][:, None] - units[1][None], axis=2)
    assert np.allclose(nearest_distances(rows, references), every.min(1), atol=1e-3)
    same = np.where(np.arange(30) % 2, every.argmin(1), -1)
    without = every.copy()
    without[np.flatnonzero(same >= 0), same[same >= 0]] = np.inf
    assert np.allclose(nearest_distances(rows, references, same=same), without.min(1), atol=1e-3)
