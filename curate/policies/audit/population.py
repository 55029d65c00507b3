"""Rows ordered by a score, as counts: ranks of some rows without sorting the table."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import is_less_certain
from curate.tables.rows import Rows
from scoring.errors import InputError


@dataclass(frozen=True)
class Population:
    """Rows with a score, most certain first; ties are never split.

    Attributes:
        column: of the score.
        ordered: the scores, ascending in doubt, shape (N,): negated where high is certain.
    """

    column: str
    ordered: NDArray

    @classmethod
    def of(cls, table_rows: Rows, column: str, inside: NDArray[np.bool_] | None = None) -> "Population":
        """Return the scored rows of a table, restricted to ``inside``, shape (N,), if given."""
        numbers = table_rows.exact[column]
        is_known = table_rows.ok & numbers.valid if inside is None else table_rows.ok & numbers.valid & inside
        return cls(column, np.sort(in_doubt(numbers.values[is_known], column)))

    def __len__(self) -> int:
        return len(self.ordered)

    def first(self, n: int) -> int:
        """Return how many rows are at least as certain as the n-th, n in [1, N]."""
        return int(np.searchsorted(self.ordered, self.ordered[n - 1], side="right"))

    def ranks(self, values: NDArray) -> NDArray[np.int64]:
        """Return how many rows are at least as certain as each of these values, shape (M,)."""
        return np.searchsorted(self.ordered, in_doubt(values, self.column), side="right").astype(np.int64)

    def value_at(self, rank: int) -> float:
        """Return the score at a rank from 1."""
        value = self.ordered[rank - 1]
        return float(value if is_less_certain(self.column) else -value)

    def snap(self, ranks: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the next higher ranks that split no ties."""
        return np.searchsorted(self.ordered, self.ordered[ranks - 1], side="right").astype(np.int64)


def in_doubt(values: NDArray, column: str) -> NDArray:
    """Return scores turned so that low is certain, in a type that can be negated."""
    if is_less_certain(column):
        return values
    if np.issubdtype(values.dtype, np.integer):
        raise InputError(
            f"--column {column} holds whole numbers; an audit uses a score, a column of floating-point numbers"
        )
    return -values
