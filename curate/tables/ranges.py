"""The range of a score that a calibration was fitted on, and rows outside of it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from curate.tables.table import Table
from scoring.errors import InputError

CALIBRATION = "calibration"  # in the metadata of a table: what its columns of probabilities were fitted on
ALARM = 0.01  # of as many rows outside, where all are drawn alike


@dataclass(frozen=True)
class FittedRange:
    """The range of a column among the judged rows.

    Attributes:
        column: the score.
        low: lowest value.
        high: highest value.
        rows: number of judged rows.
    """

    column: str
    low: float
    high: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        """Return the range as plain JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Return the range of ``to_json``; KeyError, TypeError or ValueError if invalid."""
        fitted = cls(str(record["column"]), float(record["low"]), float(record["high"]), int(record["rows"]))
        if not (np.isfinite([fitted.low, fitted.high]).all() and fitted.low < fitted.high and fitted.rows >= 2):
            raise ValueError(f"a range from {fitted.low} to {fitted.high} of {fitted.rows} rows")
        return fitted

    def outside(self, values: NDArray) -> "Outside":
        """Return the number of finite values outside of the range."""
        finite = values[np.isfinite(values)]
        return Outside(len(finite), int((finite < self.low).sum()), int((finite > self.high).sum()))


@dataclass(frozen=True)
class Outside:
    """Number of rows with a score, and numbers of rows below and above a range."""

    rows: int = 0
    below: int = 0
    above: int = 0

    def __add__(self, other: "Outside") -> "Outside":
        return Outside(self.rows + other.rows, self.below + other.below, self.above + other.above)

    def probability(self, fitted: FittedRange) -> float:
        """Return the probability of at least as many rows outside, if these and the judged rows are drawn alike."""
        from curate.statistics.calibrators import outside_by_chance  # loads torch

        return outside_by_chance(fitted.rows, self.rows, self.below + self.above)

    def words(self, fitted: FittedRange) -> str:
        """Return the numbers as a sentence, with a warning if significant."""
        n = self.below + self.above
        where = f"the range that was judged ({fitted.column} from {fitted.low:.4g} to {fitted.high:.4g})"
        if not n:
            return f"none of {self.rows:,} rows lies outside {where}"
        outside = f"{n:,} of {self.rows:,} rows ({n / self.rows:.1%}; {self.below:,} below, {self.above:,} above)"
        p = self.probability(fitted)
        verdict = "no more than chance" if p > ALARM else f"more than chance (p {p:.1g}): judge some of these too"
        return f"{outside} lie outside {where}, {verdict}"


def fitted_range(table: Table) -> FittedRange | None:
    """Return the range that a table's probabilities were fitted on; None without any; InputError if malformed."""
    record = table.metadata.get(CALIBRATION)
    if record is None:
        return None
    try:
        return FittedRange.from_json(record["range"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{table.path} has metadata of a calibration that is invalid ({error}); apply it again"
        ) from None
