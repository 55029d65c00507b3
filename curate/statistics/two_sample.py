"""Two-sample tests with exact p values, for ties and any number of items.

The unit is a distinct item, with its counts a_i and b_i in the two samples. The hypothesis is that counts are
independent of the items: then counts can be permuted among items, and the share of permutations with a statistic at
least as high as the observed one is an exact p value. Both counts of an item stay together, so copies do no harm, and
one sample may contain the other.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats
from scoring.metrics.proportions import wilson
from scoring.metrics.resampling import Interval

Permutations = NDArray[np.int64]  # shape (R, N): the item whose counts each item gets
ROOM = 4_000_000  # elements of permutations per block
BLOCK = 1_000  # items per block of the kernel
MOST_BLOCKS = 20
SHRUNK = 0.7  # less shrinkage fits noise of few rows, more only detects means (docs/studies/tables.md)
SLACK = 1e-9  # sums in another order differ in their last digits


@dataclass(frozen=True)
class Counts:
    """Counts of each of N items in both samples.

    Attributes:
        a: shape (N,), >= 0.
        b: shape (N,), >= 0; every item is in at least one sample.
    """

    a: NDArray[np.int64]
    b: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.a.shape != self.b.shape or not self.a.sum() or not self.b.sum():
            raise ValueError("expected counts of the same items, and items in both samples")

    def contrast(self) -> Floats:
        """Return the share of each item in b minus its share in a, shape (N,); sums to 0."""
        return np.asarray(self.b / self.b.sum() - self.a / self.a.sum())

    def part(self, items: Array) -> "Counts":
        """Return the counts of the given items."""
        return Counts(self.a[items], self.b[items])


@dataclass(frozen=True)
class TestResult:
    """A statistic and its permutation p value.

    Attributes:
        value: the observed statistic; shape () or (K,).
        p: share of all permutations, including the identity, with a statistic at least as high; same shape.
    """

    value: Floats
    p: Floats


def permutations(n: int, *, repeats: int, seed: int) -> Iterator[Permutations]:
    """Yield 1 + ``repeats`` permutations of n items in blocks, shape (R, n); the first is the identity."""
    generator = np.random.default_rng([seed, 0])
    step = max(1, ROOM // max(n, 1))
    for start in range(0, 1 + repeats, step):
        block = np.tile(np.arange(n), (min(step, 1 + repeats - start), 1))
        generator.permuted(block[start == 0 :], axis=1, out=block[start == 0 :])
        yield block


def exact_test(
    statistic: Callable[[Permutations], Floats], n: int, *, repeats: int, seed: int, enough: int | None = None
) -> TestResult:
    """Return a statistic and its permutation p value.

    Args:
        statistic: permutations, shape (R, n) -> values, shape (R,); higher for larger differences.
        n: number of items.
        repeats: permutations in addition to the identity, >= 1.
        seed: of the permutations.
        enough: stop when this many permutations have reached the observed value.

    Source: Phipson & Smyth 2010, "Permutation p-values should never be zero"; stopping: Besag & Clifford 1991.
    """
    real, reached, done = np.zeros(0), 0, 0
    for block in permutations(n, repeats=repeats, seed=seed):
        values = np.asarray(statistic(block), np.float64)
        real = values[:1] if not done else real
        reached, done = reached + int(_reach(values, real).sum()), done + len(block)
        if enough is not None and reached > enough:
            break
    return TestResult(real[0], np.asarray(reached / done))


def _reach(values: Floats, real: Floats) -> NDArray[np.bool_]:
    return np.asarray(values >= real - SLACK * np.maximum(1e-3, np.abs(real)))


@dataclass(frozen=True)
class Units:
    """The items of one column, sorted by value.

    Attributes:
        counts: of U items; an item is a pair of content and value.
        starts: first item of each of the V values, shape (V,).
        values: the values, ascending, shape (V,).
    """

    counts: Counts
    starts: NDArray[np.int64]
    values: Floats

    def shares(self) -> tuple[Floats, Floats]:
        """Return the share of each value in a and in b, shape (V,) each."""
        a, b = self.counts.a, self.counts.b
        return np.add.reduceat(a, self.starts) / a.sum(), np.add.reduceat(b, self.starts) / b.sum()


def units(values: Array, content: NDArray[np.int64], is_b: NDArray[np.bool_]) -> Units:
    """Return the distinct items of a column.

    Args:
        values: of the rows of both samples, shape (M,), without NaN.
        content: id of each row's content, shape (M,): rows with equal content and value are one item.
        is_b: whether a row belongs to sample b, shape (M,).
    """
    order = np.lexsort((content, values))
    v, c, side = values[order], content[order], is_b[order]
    new_value = np.append(True, v[1:] != v[:-1])
    first = np.flatnonzero(new_value | np.append(True, c[1:] != c[:-1]))
    b = np.add.reduceat(side.astype(np.int64), first)
    a = np.diff(first, append=len(v)) - b
    return Units(Counts(a, b), np.flatnonzero(new_value[first]), np.asarray(v[new_value], np.float64))


def kolmogorov_smirnov(of: Units, *, repeats: int, seed: int, enough: int | None = None) -> TestResult:
    """Test for a difference of distributions: the largest distance between distribution functions, in [0, 1].

    Source: Smirnov 1939; exact for ties by permutation.
    """
    return _distance_test(of, lambda gaps: np.abs(gaps.cumsum(1)).max(1), repeats=repeats, seed=seed, enough=enough)


def total_variation(of: Units, *, repeats: int, seed: int, enough: int | None = None) -> TestResult:
    """Test for a difference of shares: half the sum of their absolute differences, in [0, 1]."""
    return _distance_test(of, lambda gaps: np.abs(gaps).sum(1) / 2, repeats=repeats, seed=seed, enough=enough)


def _distance_test(
    of: Units, distance: Callable[[Floats], Floats], *, repeats: int, seed: int, enough: int | None
) -> TestResult:
    """Test a distance of the differences of shares by value, shape (R, V) -> (R,)."""
    contrast = of.counts.contrast()

    def of_permutations(permuted: Permutations) -> Floats:
        return distance(np.add.reduceat(contrast[permuted], of.starts, axis=1))

    return exact_test(of_permutations, len(contrast), repeats=repeats, seed=seed, enough=enough)


def share_gaps(of: Units, *, repeats: int, seed: int) -> TestResult:
    """Test the share of each value: absolute differences, shape (V,), with p values adjusted for multiple testing.

    A permutation reaches a value's gap if its largest gap over all values does, each standardised over permutations.

    Source: Westfall & Young 1993, "Resampling-based multiple testing", single-step maxT.
    """
    contrast = of.counts.contrast()
    blocks = permutations(len(contrast), repeats=repeats, seed=seed)
    gaps = np.concatenate([np.abs(np.add.reduceat(contrast[permuted], of.starts, axis=1)) for permuted in blocks])
    spread = np.sqrt(np.square(gaps).mean(0))
    scaled = np.divide(gaps, spread, out=np.zeros_like(gaps), where=spread > SLACK)
    return TestResult(gaps[0], _reach(scaled.max(1)[:, None], scaled[:1]).mean(0))


def standardised_difference(values: Array, is_b: NDArray[np.bool_]) -> float:
    """Return the difference of means, b minus a, in standard deviations (root of mean variance); NaN without spread.

    Source: Cohen 1969, "Statistical power analysis"; as in Austin 2009 for balance of covariates.
    """
    a, b = values[~is_b].astype(np.float64), values[is_b].astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no mean
        spread = np.sqrt((a.var() + b.var()) / 2)
        return float((b.mean() - a.mean()) / spread) if spread > 0 else float("nan")


@dataclass(frozen=True)
class Classified:
    """A classifier two-sample test.

    Attributes:
        auroc: probability that a row of b scores higher than a row of a, with an interval.
        p: permutation p value, with a classifier fitted for each permutation.
        scores: out-of-fold scores of the items, in standard deviations; higher is more like b; shape (N,).
    """

    auroc: Interval
    p: float
    scores: Floats


def classifier_test(vectors: Array, counts: Counts, *, repeats: int, seed: int, folds: int = 5) -> Classified:
    """Test whether a linear classifier separates a from b on held-out items.

    The classifier is a linear discriminant on whitened vectors, cross-fitted in folds; whitening uses both samples,
    with a shrunk covariance so that few rows suffice. AUROC is computed within folds, and the classifier is fitted
    again for every permutation, so p is exact. The interval is Wilson's with the items of the smaller sample as trials,
    since AUROC (1 - AUROC) / min(n_a, n_b) bounds the variance.

    Args:
        vectors: of N items in an order independent of the samples, shape (N, D).
        counts: counts of the items in both samples.
        repeats: number of permutations.
        seed: of folds and permutations.
        folds: 2 <= folds <= N.

    Source: Lopez-Paz & Oquab 2017, arXiv:1610.06545; the bound: van Dantzig 1951.
    """
    n = len(vectors)
    white = whitened(vectors)
    parts = np.array_split(np.random.default_rng([seed, 1]).permutation(n), folds)
    a, b, contrast = counts.a, counts.b, counts.contrast().astype(np.float32)

    def aurocs(permuted: Permutations) -> Floats:
        pairs = won = np.zeros(len(permuted))
        for part, score in zip(parts, _held_scores(white, contrast[permuted], parts), strict=True):
            of_a, of_b = a[permuted[:, part]], b[permuted[:, part]]
            won = won + _pairs_won(score, of_a, of_b)
            pairs = pairs + of_a.sum(1) * of_b.sum(1)
        return np.asarray(np.divide(won, pairs, out=np.full(len(permuted), 0.5), where=pairs > 0))

    tested = exact_test(aurocs, n, repeats=repeats, seed=seed)
    scores = np.zeros(n)
    for part, score in zip(parts, _held_scores(white, contrast[None], parts), strict=True):
        scores[part] = score[0]
    value, fewest = float(tested.value), min(int((a > 0).sum()), int((b > 0).sum()))
    return Classified(wilson(value * fewest, fewest), float(tested.p), scores / (scores.std() or 1.0))


def whitened(vectors: Array) -> NDArray[np.float32]:
    """Return centred vectors, whitened by a covariance shrunk towards a multiple of the identity; shape (N, D).

    Source: Friedman 1989, "Regularized discriminant analysis", eq. 18.
    """
    rows = vectors.astype(np.float32)
    rows -= rows.mean(0, dtype=np.float64).astype(np.float32)
    covariance = (rows.T @ rows / len(rows)).astype(np.float64)
    size = np.trace(covariance) / len(covariance)
    if size <= 1e-12:
        return np.zeros_like(rows)
    values, axes = np.linalg.eigh((1 - SHRUNK) * covariance + SHRUNK * size * np.eye(len(covariance)))
    return np.asarray(rows @ (axes / np.sqrt(values)).astype(np.float32))


def _held_scores(
    white: NDArray[np.float32], contrast: NDArray[np.float32], parts: list[NDArray[np.int64]]
) -> Iterator[NDArray[np.float32]]:
    """Yield for each fold the discriminant scores of its items from the other folds, shape (R, M)."""
    sums = [contrast[:, part] @ white[part] for part in parts]
    total = np.sum(sums, axis=0)
    for part, held in zip(parts, sums, strict=True):
        yield (total - held) @ white[part].T


def _pairs_won(score: NDArray[np.float32], a: NDArray[np.int64], b: NDArray[np.int64]) -> Floats:
    """Return the number of pairs of a and b in which b scores higher, ties counting half, shape (R,).

    Scores of M items in R permutations, shape (R, M), with their counts in a and b, shape (R, M) each.
    """
    order = np.argsort(score, axis=1)
    score, a, b = (
        np.take_along_axis(score, order, 1),
        np.take_along_axis(a, order, 1),
        np.take_along_axis(b, order, 1),
    )
    before = a.cumsum(1) - a / 2
    for row in np.flatnonzero((score[:, 1:] == score[:, :-1]).any(1)).tolist():
        starts = np.flatnonzero(np.append(True, score[row, 1:] != score[row, :-1]))
        tied = np.add.reduceat(a[row], starts)
        before[row] = np.repeat(tied.cumsum() - tied / 2, np.diff(starts, append=len(score[row])))
    return np.asarray((before * b).sum(1))


def mmd_test(vectors: Array, counts: Counts, *, repeats: int, seed: int) -> TestResult:
    """Test for any difference of distributions: the squared maximum mean discrepancy, averaged over blocks of items.

    The kernel is exp(-d^2 / (2 s^2)), s^2 the median squared distance in the first block; it also detects non-linear
    differences. At most ``MOST_BLOCKS`` random blocks of ``BLOCK`` items are used, and counts are permuted within a
    block.

    Args:
        vectors: of N items, shape (N, D).
        counts: counts of the items in both samples.
        repeats: number of permutations.
        seed: of blocks and permutations.

    Returns:
        The statistic minus its expected value, about 0 under the hypothesis, and its p value.

    Source: Gretton et al. 2012 (JMLR 13); blocks: Zaremba et al. 2013, arXiv:1307.1954.
    """
    n = len(vectors)
    order = np.random.default_rng([seed, 2]).permutation(n)
    blocks = np.array_split(order, max(1, round(n / BLOCK)))[:MOST_BLOCKS]
    width, total, n_used = 0.0, np.zeros(1 + repeats), 0
    for number, block in enumerate(blocks):
        if not counts.a[block].any() or not counts.b[block].any():
            continue
        rows = vectors[block].astype(np.float32)
        squares = np.einsum("nd,nd->n", rows, rows)
        distance = np.maximum(squares[:, None] + squares[None] - 2 * rows @ rows.T, 0)
        width = width or float(np.median(distance[np.triu_indices(len(rows), 1)])) or 1.0
        kernel = np.exp(distance / (-2 * width))
        contrast = counts.part(block).contrast().astype(np.float32)
        permuted = np.concatenate(
            [contrast[deal] for deal in permutations(len(block), repeats=repeats, seed=seed + 1 + number)]
        )
        total += np.einsum("rn,rn->r", permuted @ kernel, permuted, dtype=np.float64)
        n_used += 1
    total /= max(n_used, 1)
    return TestResult(total[0] - total[1:].mean(), _reach(total, total[:1]).mean())


def holm(p: Array) -> Floats:
    """Return Holm-adjusted p values, shape (K,): rejecting all below alpha has a family-wise error of at most alpha.

    Source: Holm 1979, "A simple sequentially rejective multiple test procedure".

    >>> holm(np.array([0.01, 0.04, 0.5])).round(3).tolist()
    [0.03, 0.08, 0.5]
    """
    p = np.asarray(p, np.float64)
    order = np.argsort(p, kind="stable")
    out = np.empty(len(p))
    out[order] = np.minimum(1, np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)))
    return out
