"""Precision and recall of scored pairs, with intervals over images: pairs of one image stand or fall together."""

from dataclasses import dataclass

import numpy as np

from scoring.metrics.resampling import percentiles, resamples

REPEATS = 300
PRECISIONS = (0.999, 0.98, 0.9)  # precisions at which recall is reported
MOST = 200_000  # pairs looked at, the most alike first: no precision worth having lies beyond


@dataclass(frozen=True)
class Pairs:
    """P pairs of images, each once: rows a < b, shape (P,), and a score that is higher for what is more alike."""

    a: np.ndarray
    b: np.ndarray
    score: np.ndarray

    @classmethod
    def of(cls, first: np.ndarray, second: np.ndarray, score: np.ndarray) -> "Pairs":
        """Return pairs in any order and direction, each once with its best score; a row with itself is not one."""
        a, b = np.minimum(first, second), np.maximum(first, second)
        order = np.lexsort((-score, b, a))
        a, b, score = a[order], b[order], score[order]
        new = np.ones(len(a), bool)
        new[1:] = (a[1:] != a[:-1]) | (b[1:] != b[:-1])
        new &= a != b
        return cls(a[new], b[new], np.asarray(score[new], float))

    @classmethod
    def within(cls, groups: np.ndarray) -> "Pairs":
        """Return every pair of rows of the same group, with score 1; -1 is no group."""
        members = [np.flatnonzero(groups == group) for group in np.unique(groups[groups >= 0])]
        pairs = np.array([(x, y) for rows in members for x in rows for y in rows if x < y], np.int64).reshape(-1, 2)
        return cls(pairs[:, 0], pairs[:, 1], np.ones(len(pairs)))


@dataclass(frozen=True)
class Truth:
    """The verdicts on N images: pairs (T, 2) that are the same, and pairs (U, 2) that count neither way; a < b."""

    n: int
    same: np.ndarray
    left_out: np.ndarray

    def codes(self, pairs: np.ndarray) -> np.ndarray:
        """Return one number for each pair."""
        return pairs[:, 0].astype(np.int64) * self.n + pairs[:, 1]


@dataclass(frozen=True)
class Measured:
    """Value, low and high of each number: name -> shape (3,); ``n`` pairs reach the threshold, if one was given."""

    numbers: dict[str, np.ndarray]
    n: int

    def line(self, names: tuple[str, ...]) -> str:
        """Return the numbers as text."""
        return "  ".join("{:.3f} [{:.3f}, {:.3f}]     ".format(*self.numbers[name]) for name in names)


def measure(pairs: Pairs, truth: Truth, threshold: float | None = None) -> Measured:
    """Return recall at each wanted precision, and precision and recall at a threshold.

    Recall at a precision is the recall at the loosest threshold that still has the precision, in each resample again.
    """
    a, b, score, right = _counted(pairs, truth)
    last = np.r_[score[1:] != score[:-1], True] if len(score) else np.zeros(0, bool)
    n_reached = int((score >= threshold).sum()) if threshold is not None else 0

    def numbers(counts: np.ndarray) -> np.ndarray:
        weight = (counts[a] * counts[b]).astype(float)
        total = float((counts[truth.same[:, 0]] * counts[truth.same[:, 1]]).sum())
        hits, reached = np.cumsum(weight * right), np.cumsum(weight)
        precision = np.divide(hits, reached, out=np.full_like(hits, np.nan), where=reached > 0)
        recall = hits / total if total else np.full_like(hits, np.nan)  # a resample without a pair says nothing
        values = [max(recall[last & (precision >= least)], default=0.0) if total else np.nan for least in PRECISIONS]
        if threshold is not None:
            at = n_reached - 1
            values += [precision[at], recall[at]] if n_reached else [np.nan, 0.0 if total else np.nan]
        return np.array(values)

    value = numbers(np.ones(truth.n, np.int64))
    samples = np.stack([numbers(counts) for counts in resamples(truth.n, repeats=REPEATS, seed=0)])
    low, high = percentiles(samples)
    names = [f"recall at {least:g}" for least in PRECISIONS] + ["precision", "recall"] * (threshold is not None)
    return Measured(dict(zip(names, np.stack([value, low, high], 1), strict=True)), n_reached)


def _counted(pairs: Pairs, truth: Truth) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return rows, rows, score and whether they are the same, of the pairs that count, the most alike first."""
    code = truth.codes(np.stack([pairs.a, pairs.b], 1))
    counted = ~np.isin(code, truth.codes(truth.left_out))
    order = np.flatnonzero(counted)[np.argsort(-pairs.score[counted], kind="stable")][:MOST]
    return pairs.a[order], pairs.b[order], pairs.score[order], np.isin(code[order], truth.codes(truth.same))
