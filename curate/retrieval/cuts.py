"""Cut-offs by certainty: the least certain share of a table, or a value of its column."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from curate.tables.number_texts import exact_number
from curate.tables.signals import Signal
from scoring.errors import InputError


@dataclass(frozen=True)
class QueryCut:
    """The cut-off for queries that are too uncertain.

    Attributes:
        text: as typed.
        share: of the table, its least certain rows, in (0, 1); None where a value is the cut.
        value: of the column.
    """

    text: str
    share: Fraction | None
    value: float = 0.0

    def least(self, certainty: NDArray[np.float64], signal: Signal) -> float:
        """Return the certainty that is sufficient; all lower values are cut off, so equal rows stay together.

        Args:
            certainty: of the table's rows, shape (N,), N >= 1, without NaN.
            signal: the column, for the direction of a value.
        """
        if self.share is None:
            return signal.sign * self.value
        place = int(self.share * len(certainty))
        return float(np.partition(certainty, place)[place])

    def words(self, signal: Signal, least: float) -> str:
        """Return why a row or query is cut off, to follow its own value."""
        than = "above" if signal.sign < 0 else "below"
        of = f", where the least certain {self.text} of the table end" if self.share is not None else ""
        return f"{than} {signal.sign * least:.6g}{of}"


def parse_cut(text: str | float | None) -> QueryCut | None:
    """Parse ``10%`` (a share of the table) or ``0.35`` (a value of the column); None for None.

    Raises:
        InputError: for something else, or a share that is not between 0 and 100 %.
    """
    if text is None:
        return None
    typed = str(text).strip()
    try:
        if typed.endswith("%"):
            share = exact_number(typed[:-1]) / 100
            if not 0 < share < 1:
                raise InputError(f"--reject takes a share above 0% and below 100%, got {typed}")
            return QueryCut(typed, share)
        value = float(typed)
    except (ValueError, ZeroDivisionError):
        value = np.nan
    if not np.isfinite(value):
        raise InputError(f"--reject takes a share of the table such as 10%, or a value of the column, got {typed!r}")
    return QueryCut(typed, None, value)
