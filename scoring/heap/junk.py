"""Whether there is anything to learn from in an image, from the columns of trained heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scoring.heap.rule import junk_chance

JUNK = "unc_junk"  # of a head that was trained on junk: a chance, if junk and pictures were as common
RISES = ("unc_mcinfonce", "unc_losspred")  # of heads that were not, and rise on it
LOWER, NORMAL = 0.1, 1.2816  # the lower tenth of a normal distribution lies so many deviations below its median
LEAST = 1e-12
LEAST_CHANCE = 1e-7  # what float32 tells from 0 and from 1
# Where a row is as likely junk as not, in log-odds of that chance: three above the heap's median, since all pictures of
# a domain that the head was not trained on look odd to it; at least what it would be if a tenth were junk; at most 5.
ABOVE_MEDIAN, LEVEL_LEAST, LEVEL_MOST = 3.0, 2.2, 5.0


@dataclass(frozen=True)
class JunkScale:
    """What is usual in a heap: the median of the logarithm of a column, and a deviation measured below it.

    Junk lies above, so that even a fifth of it moves neither far.

    Attributes:
        usual: column -> (median, deviation) of its logarithm; for ``unc_junk``, which then is alone, the log-odds at
            which a row is as likely junk as not, and 1; empty where nothing tells.
    """

    usual: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def chance(self, columns: Mapping[str, NDArray]) -> NDArray[np.float64] | None:
        """Return the chance of junk of N rows from their columns, shape (N,); None where no column says it.

        Raises:
            KeyError: for a column that the heap had and that is missing here.
        """
        if not self.usual:
            return None
        if JUNK in self.usual:
            level, spread = self.usual[JUNK]
            return 1 / (1 + np.exp((level - _log_odds(columns[JUNK])) / spread))
        above = [(_log(columns[name]) - middle) / spread for name, (middle, spread) in self.usual.items()]
        return junk_chance(np.nan_to_num(np.mean(above, axis=0)))


def columns_for_junk(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names of columns that say something of junk."""
    there = tuple(names)
    return (JUNK,) if JUNK in there else tuple(name for name in RISES if name in there)


def junk_scale(columns: Mapping[str, NDArray]) -> JunkScale:
    """Measure what is usual; a column that is the same in most rows says nothing, and is left out."""
    if JUNK in columns:
        middle = float(np.median(_log_odds(columns[JUNK]))) if len(columns[JUNK]) else 0.0
        return JunkScale({JUNK: (float(np.clip(middle + ABOVE_MEDIAN, LEVEL_LEAST, LEVEL_MOST)), 1.0)})
    usual = {}
    for name in columns_for_junk(columns):
        log = _log(columns[name])
        middle = float(np.nanmedian(log))
        spread = (middle - float(np.nanquantile(log, LOWER))) / NORMAL
        if spread > LEAST:
            usual[name] = (middle, spread)
    return JunkScale(usual)


def _log(values: NDArray) -> NDArray[np.float64]:
    return np.log(np.clip(np.asarray(values, np.float64), LEAST, 1 / LEAST))


def _log_odds(chances: NDArray) -> NDArray[np.float64]:
    """Return ln(p / (1 - p)); a missing chance is 0."""
    p = np.clip(np.nan_to_num(np.asarray(chances, np.float64)), LEAST_CHANCE, 1 - LEAST_CHANCE)
    return np.log(p / (1 - p))
