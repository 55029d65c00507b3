"""The gain curve of a batch: what all picks together bring, and what each one adds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from curate.plots.columns import finite, read_columns
from curate.plots.request import Numbers, PlotRequest
from curate.sheets.chart import Curve, Mark, Panel, draw_chart
from curate.sheets.rank import RANK
from curate.sheets.style import WIDTH
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAIN = "gain"
HEIGHT = 40.0  # mm of a panel
SHARES = (0.5, 0.9)  # of all that the picks bring, marked in the upper panel
STEEP = 20  # largest over smallest gain from which the lower panel has a logarithmic axis


@dataclass
class Gains(Numbers):
    """The gain of each pick, in order of rank; NaN where nothing measures it."""

    gain: list[float]

    @classmethod
    def measure(cls, request: PlotRequest) -> Self:
        """Read ranks and gains of a batch."""
        table = request.table
        if not {RANK, GAIN} <= set(table.schema.names):
            raise InputError(
                f"gains need a batch with the columns {RANK!r} and {GAIN!r}, as curate select writes it, and "
                f"{table.path} has {', '.join(table.schema.names)}"
            )
        rows = read_columns(request, (RANK, GAIN))
        notes: list[str] = []
        is_finite = finite(rows.numbers[GAIN], GAIN, table, notes)
        rank = rows.numbers[RANK]
        if np.isnan(rank).any():
            raise InputError(f"expected a {RANK} in every row of {table.path}, got null; take what curate select wrote")
        order = np.argsort(rank, kind="stable")
        return cls(np.where(is_finite, rows.numbers[GAIN], np.nan)[order].tolist(), notes=notes)

    def draw(self, *, title: str = "", width: float = WIDTH) -> "Figure":
        """Draw the sum of the gains above, marked where half and nine tenths of it are reached, and each beneath."""
        if not any(math.isfinite(gain) for gain in self.gain):
            title = f"{title}: no pick has a gain that can be drawn"
        return draw_chart(gain_panels(self.gain), title=title, width=width)


def gain_panels(gains: Sequence[float]) -> list[Panel]:
    """Return the sum of the gains above, and the gain of each pick beneath.

    Args:
        gains: of the picks, in order; NaN or infinity where nothing measures one, which is left out.
    """
    every = np.array(gains, np.float64)
    ranks = np.flatnonzero(np.isfinite(every)) + 1
    values = every[ranks - 1]
    if not len(values):
        ranks, values = np.array([1]), np.zeros(1)
    total = np.cumsum(values)
    grows = (values >= 0).all() and total[-1] > 0
    log = bool(0 < STEEP * values.min() < values.max())
    x = "picks, in order of rank"
    sums = Curve("total", [0, *ranks.tolist()], [0.0, *total.tolist()])
    each = Curve("each", [0, *ranks.tolist()], [math.nan, *values.tolist()])  # both axes begin at 0
    return [
        Panel([sums], x, "total gain", marks=_marks(ranks, total) if grows else [], legend=False, height=HEIGHT),
        Panel([each], x, "gain of each pick", log=log, zero=not log, legend=False, height=HEIGHT),
    ]


def _marks(ranks: NDArray[np.int64], total: NDArray[np.float64]) -> list[Mark]:
    """Return where the first picks bring a share of all that the picks bring."""
    places = [int(np.searchsorted(total, share * total[-1])) for share in SHARES]
    return [
        Mark(float(ranks[place]), float(total[place]), f"{share:.0%} after {ranks[place]:,}")
        for share, place in zip(SHARES, places, strict=True)
    ]
