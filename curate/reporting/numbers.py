"""Number columns over all rows in batches: histograms, quantiles by class, and rank correlations."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.reporting.columns import Shown
from curate.reporting.dataset import Dataset
from curate.reporting.histograms import histogram, quantiles
from curate.reporting.texts import shortened
from curate.tables.needs import Needs
from curate.tables.rows import Numbers, read_rows

MEMORY = 512 << 20  # bytes of columns that are held together
BYTES = 9  # of a value and whether there is one
MOST_CLASSES = 50
FEWEST_RANKED = 3  # rows that both columns have


def columns_in_turn(dataset: Dataset, names: Sequence[str]) -> Iterator[tuple[str, Numbers]]:
    """Yield number columns of a table, reading as many per pass as fit in memory."""
    width = max(1, MEMORY // max(1, BYTES * dataset.n))
    for start in range(0, len(names), width):
        read = read_rows(dataset.table, Needs(exact=tuple(names[start : start + width]), keys=False))
        for name in names[start : start + width]:
            yield name, read.exact.pop(name)


def finite(numbers: Numbers) -> NDArray[np.bool_]:
    """Return where a column is finite, shape (N,)."""
    return numbers.valid & np.isfinite(numbers.values)


class ByClass:
    """The rows of the largest classes of a table.

    Attributes:
        shown: code, name and rows of each, the largest first.
        n_classes: of the table.
        others: rows of the classes that are not shown.
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
        """Yield the name of each class and which of the given rows it contains."""
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
        cuts: column -> where policies cut it.
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
        columns: by name, shape (N,), NaN where there is no value.

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
