"""The gains of a batch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from curate.plots.columns import finite, read_columns
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.gains import gain_chart
from curate.sheets.rank import RANK
from curate.sheets.style import WIDTH
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAIN = "gain"


@dataclass
class Gains(Numbers):
    """What each pick adds, in order of rank; NaN where nothing measures it."""

    gain: list[float]


def measure(request: PlotRequest) -> Gains:
    """Read ranks and gains of a batch."""
    table = request.table
    if not {RANK, GAIN} <= set(table.schema.names):
        raise InputError(
            f"gains need a batch with the columns {RANK!r} and {GAIN!r}, as curate select writes it, and {table.path} "
            f"has {', '.join(table.schema.names)}"
        )
    rows = read_columns(request, (RANK, GAIN))
    notes: list[str] = []
    is_finite = finite(rows.numbers[GAIN], GAIN, table, notes)
    rank = rows.numbers[RANK]
    if np.isnan(rank).any():
        raise InputError(f"expected a {RANK} in every row of {table.path}, got null; take what curate select wrote")
    order = np.argsort(rank, kind="stable")
    return Gains(np.where(is_finite, rows.numbers[GAIN], np.nan)[order].tolist(), notes=notes)


def draw(numbers: Gains, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw the sum of the gains above, and each gain beneath."""
    return gain_chart(numbers.gain, title, width)
