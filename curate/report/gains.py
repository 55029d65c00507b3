"""The gain curve of a choice as a picture: what all picks together bring, and what each one adds."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curate.report.chart import Curve, Mark, Panel, draw_chart

HEIGHT = 380  # of a panel
SHARES = (0.5, 0.9)  # of all that the picks bring, marked in the upper panel
STEEP = 20  # largest over smallest gain from which the lower panel has a logarithmic axis


def gain_picture(gains: Sequence[float | None], title: str) -> Image.Image:
    """Draw the sum of the gains above, and the gain of each pick beneath.

    Args:
        gains: of the picks, in order; None or infinity where nothing measures one, which is left out.
        title: stands on top, on one line.
    """
    every = np.array([math.nan if gain is None else gain for gain in gains], np.float64)
    ranks = np.flatnonzero(np.isfinite(every)) + 1
    values = every[ranks - 1]
    if not len(values):
        ranks, values, title = np.array([1]), np.zeros(1), f"{title}: no pick has a gain that can be drawn"
    total = np.cumsum(values)
    grows = (values >= 0).all() and total[-1] > 0
    log = bool(0 < STEEP * values.min() < values.max())
    x = "picks, in order of rank"
    sums = Curve("total", [0, *ranks.tolist()], [0.0, *total.tolist()])
    each = Curve("each", [0, *ranks.tolist()], [math.nan, *values.tolist()])  # both axes begin at 0
    marks = _marks(ranks, total) if grows else []
    panels = [
        Panel([sums], x, "total gain of the first picks", marks=marks, legend=False, height=HEIGHT),
        Panel(
            [each], x, f"gain of each pick{' (logarithmic)' * log}", log=log, zero=not log, legend=False, height=HEIGHT
        ),
    ]
    return draw_chart(panels, title=title)


def _marks(ranks: NDArray[np.int64], total: NDArray[np.float64]) -> list[Mark]:
    """Return where the first picks bring a share of all that the picks bring."""
    places = [int(np.searchsorted(total, share * total[-1])) for share in SHARES]
    return [
        Mark(float(ranks[place]), float(total[place]), f"{share:.0%} after {ranks[place]:,}")
        for share, place in zip(SHARES, places, strict=True)
    ]
