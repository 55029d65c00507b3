"""Numeric columns over all rows, in batches: histograms, quantiles by class, and rank correlations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.reporting.columns import Dataset, Shown, shortened
from curate.tables.needs import Needs
from curate.tables.rows import Numbers, read_rows

BINS = 60
CORE = (0.001, 0.999)  # quantiles that bound the bins if other values are far away
FAR = 20  # ratio of the range to the core from which bins span the core only
SKEWED = 20  # ratio of the 99 % to the 1 % quantile for a log axis
EXACT = 2**53  # whole numbers beyond are not separated
LARGE, SMALL = 1e300, 1e-300
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
MEMORY = 512 << 20  # bytes of columns in memory
BYTES = 9  # bytes per value and validity
MOST_CLASSES = 50
FEWEST_RANKED = 3  # minimal number of common rows


def histogram(values: NDArray[Any]) -> dict[str, Any]:
    """Return bin edges and counts; the counts add up to the number of finite values.

    A value is in bin i if ``edges[i] <= value < edges[i + 1]``, in the last one also at its right edge. Integers with
    few distinct values have a bin each. A single value is in the middle of empty bins. If a few values are far from all
    others, the bins span the others, and the outer bins also count the values beyond; ``clipped`` is their number.

    Args:
        values: shape (N,); NaN and infinities are ignored.
    """
    finite = values[np.isfinite(values)]
    edges, is_log = bin_edges(finite)
    counts = bin_counts(finite, edges)
    clipped = [int((finite < edges[0]).sum()), int((finite > edges[-1]).sum())]
    facts = {"edges": edges.tolist(), "counts": counts.tolist(), "log": is_log}
    return facts | ({"clipped": clipped} if any(clipped) else {})


def bin_counts(finite: NDArray[Any], edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the number of finite values in each bin, shape (B,); the outer bins include all values beyond."""
    place = np.searchsorted(edges, finite.astype(np.float64), side="right") - 1
    return np.bincount(place.clip(0, len(edges) - 2), minlength=len(edges) - 1)


def bin_edges(finite: NDArray[Any]) -> tuple[NDArray[np.float64], bool]:
    """Return ascending bin edges for finite values, and whether they are logarithmic."""
    if not len(finite):
        return np.array([0.0, 1.0]), False
    low, high = float(finite.min()), float(finite.max())
    if np.issubdtype(finite.dtype, np.integer) and high - low < BINS and max(-low, high) < EXACT:
        beyond = int(low == high)  # an empty bin on both sides of a single value
        return np.arange(low - beyond, high + 2 + beyond) - 0.5, False
    if low == high:  # in the middle, with empty bins from 0 to twice the value
        width = min(abs(low), float(np.finfo(np.float64).max) / 2) if abs(low) > SMALL else 1.0
        middle = np.clip(low, -width, width) if abs(low) > SMALL else 0.0
        return _ascending(middle + width * np.linspace(-1, 1, BINS + 2), middle - width, middle + width), False
    if is_steep(finite):
        return _ascending(np.geomspace(low, high, BINS + 1), low, high), True
    core = _quantile(finite, CORE)
    if core[1] > core[0] and (high / 2 - low / 2) / FAR > core[1] / 2 - core[0] / 2:
        low, high = float(core[0]), float(core[1])
    even = low / 2 + (high / 2 - low / 2) * (np.arange(BINS + 1) / BINS)  # halves: their difference is finite
    return _ascending(even.clip(low / 2, high / 2) * 2, low, high), False


def _ascending(edges: NDArray[np.float64], low: float, high: float) -> NDArray[np.float64]:
    """Return edges made ascending with exact ends, after rounding."""
    edges[[0, -1]] = low, high
    return np.maximum.accumulate(edges.clip(low, high))


def is_steep(finite: NDArray[Any]) -> bool:
    """Return whether finite values need a logarithmic axis: positive, with a wide range, and mostly low.

    Uniform values between 0 and 1 have a wide range too, but are not mostly low.
    """
    if not len(finite) or not finite.min() > 0 or float(finite.max()) > LARGE:
        return False
    first, middle, last = _quantile(finite, (0.01, 0.5, 0.99))
    return bool(last > SKEWED * first and last - middle > 2 * (middle - first))


def quantiles(values: NDArray[Any]) -> list[float]:
    """Return the 5, 25, 50, 75 and 95 % quantiles of finite values, at least one, interpolated linearly."""
    result: list[float] = _quantile(values, QUANTILES).tolist()
    return result


def _quantile(values: NDArray[Any], shares: Sequence[float]) -> NDArray[np.float64]:
    """Return quantiles of finite values whose differences may overflow."""
    numbers = values.astype(np.float64)
    large = np.abs(numbers).max() > LARGE
    return np.quantile(numbers / 4, shares) * 4 if large else np.quantile(numbers, shares)


def columns_at_once(dataset: Dataset) -> int:
    """Return how many numeric columns of a table fit in memory."""
    return max(1, MEMORY // max(1, BYTES * dataset.n))


def columns_in_turn(dataset: Dataset, names: Sequence[str]) -> Iterator[tuple[str, Numbers]]:
    """Yield the numeric columns of a table, reading as many per pass as fit in memory."""
    width = columns_at_once(dataset)
    for start in range(0, len(names), width):
        read = read_rows(dataset.table, Needs(exact=tuple(names[start : start + width]), keys=False))
        for name in names[start : start + width]:
            yield name, read.exact.pop(name)


def finite(numbers: Numbers) -> NDArray[np.bool_]:
    """Return a mask of the finite values of a column, shape (N,)."""
    return np.asarray(numbers.valid & np.isfinite(numbers.values))


class ByClass:
    """The rows of the largest classes of a table.

    Attributes:
        shown: code, name and number of rows of each class, largest first.
        n_classes: of the table.
        others: number of rows of the other classes.
    """

    def __init__(self, dataset: Dataset) -> None:
        codes, self.n_classes = dataset.classes.codes, len(dataset.classes.names)
        largest = [each for each in dataset.classes.largest() if each[0] >= 0][:MOST_CLASSES]
        self.shown = [(code, shortened(name), n) for code, name, n in largest]
        self.others = int((codes >= 0).sum()) - sum(n for _, _, n in self.shown)
        place = np.full(self.n_classes + 1, len(self.shown), np.uint8)  # the last is for rows without a class
        place[[code for code, _, _ in largest]] = np.arange(len(largest))
        self._place = place[codes] if len(codes) else np.zeros(0, np.uint8)
        order = np.argsort(self._place, kind="stable")
        self._order = order[: len(codes) - int((self._place == len(self.shown)).sum())]

    def rows(self, keep: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield the name and the kept rows of each class, in table order."""
        start = 0
        for _, name, n in self.shown:
            rows = self._order[start : start + n]
            yield name, rows[keep[rows]]
            start += n

    def of(self, rows: NDArray[np.int64]) -> Iterator[tuple[str, NDArray[np.int64]]]:
        """Yield the name of each class and the given rows that it contains."""
        if len(self._place):
            places = self._place[rows]
            yield from ((name, rows[places == number]) for number, (_, name, _) in enumerate(self.shown))

    def to_json(self) -> dict[str, Any]:
        """Return the classes for the page."""
        return {"shown": [[name, n] for _, name, n in self.shown], "n_classes": self.n_classes, "others": self.others}


def distribution(
    shown: Shown, numbers: Numbers, classes: ByClass, cuts: Mapping[str, list[dict[str, Any]]]
) -> dict[str, Any] | None:
    """Return the distribution of a column, overall and in the largest classes; None without values.

    Args:
        shown: the column.
        numbers: its values.
        classes: of the same table.
        cuts: column -> thresholds of policies.
    """
    is_known = finite(numbers)
    if not is_known.any():
        return None
    by_class = [
        {"name": name, "n": len(rows), "q": quantiles(numbers.values[rows])}
        for name, rows in classes.rows(is_known)
        if len(rows)
    ]
    return {
        "column": shown.name,
        "hist": histogram(numbers.values[is_known]),
        "cuts": cuts.get(shown.column, []),
        "by_class": by_class,
    }


def rank_correlations(columns: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
    """Return Spearman's rank correlation of every pair of columns, over rows that have both.

    Args:
        columns: by name, shape (N,), NaN if missing.

    Returns:
        ``columns``, the symmetric matrix ``rho`` (null for fewer than three rows or a constant column), and ``n``.
    """
    from scoring.metrics.ranking import spearman

    names = list(columns)
    rho: list[list[float | None]] = [[None] * len(names) for _ in names]
    for i, a in enumerate(names):
        for j, b in enumerate(names[: i + 1]):
            both = np.isfinite(columns[a]) & np.isfinite(columns[b])
            value = spearman(columns[a][both], columns[b][both]) if both.sum() >= FEWEST_RANKED else float("nan")
            rho[i][j] = rho[j][i] = None if np.isnan(value) else value
    return {"columns": names, "rho": rho, "n": len(next(iter(columns.values()), ()))}
