"""The gain curve of a choice: what all picks together bring, and what each one adds."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.sheets.chart import Curve, Mark, Panel, draw_chart
from curate.sheets.style import WIDTH

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEIGHT = 40.0  # mm of a panel
SHARES = (0.5, 0.9)  # of all that the picks bring, marked in the upper panel
STEEP = 20  # largest over smallest gain from which the lower panel has a logarithmic axis


def gain_panels(gains: Sequence[float | None]) -> list[Panel]:
    """Return the sum of the gains above, and the gain of each pick beneath.

    Args:
        gains: of the picks, in order; None or infinity where nothing measures one, which is left out.
    """
    every = np.array([math.nan if gain is None else gain for gain in gains], np.float64)
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


def gain_chart(gains: Sequence[float | None], title: str = "", width: float = WIDTH) -> "Figure":
    """Draw the gain curve, with the marks where half and nine tenths of all are reached."""
    if not any(gain is not None and math.isfinite(gain) for gain in gains):
        title = f"{title}: no pick has a gain that can be drawn"
    return draw_chart(gain_panels(gains), title=title, width=width)


def _marks(ranks: NDArray[np.int64], total: NDArray[np.float64]) -> list[Mark]:
    """Return where the first picks bring a share of all that the picks bring."""
    places = [int(np.searchsorted(total, share * total[-1])) for share in SHARES]
    return [
        Mark(float(ranks[place]), float(total[place]), f"{share:.0%} after {ranks[place]:,}")
        for share, place in zip(SHARES, places, strict=True)
    ]
