"""Whether there is anything to learn from in an image, from the columns of trained heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scoring.heap.rule import junk_level

JUNK = "unc_junk"  # of a head that was trained on junk: a chance
RISES = ("unc_mcinfonce", "unc_losspred")  # of heads that were not, and rise on it
LOWER, NORMAL = 0.1, 1.2816  # the lower tenth of a normal distribution lies so many deviations below its median
ABOVE = 1.8  # deviations above the median where a row of a heap is as likely as not to be junk by that head,
FROM, TO = 3.0, 7.0  # and between which log odds: what is plain in one heap looks blurred beside another
LEAST = 1e-12


@dataclass(frozen=True)
class JunkScale:
    """What is usual in a heap: where a column lies, and a deviation measured below its median.

    Junk lies above, so that even a fifth of it moves neither far.

    Attributes:
        usual: column -> (median, deviation) of its logarithm; for ``unc_junk`` (log odds of as likely as not, 1); empty
            where no column says it.
    """

    usual: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def level(self, columns: Mapping[str, NDArray]) -> NDArray[np.float64] | None:
        """Return the log odds of junk of N rows from their columns, shape (N,); None where no column says it.

        A row without a value is judged as the cleanest, or the usual one, would be: nothing says that it is junk.

        Raises:
            KeyError: for a column that the heap had and that is missing here.
        """
        if JUNK in self.usual:
            return _log_odds(np.nan_to_num(np.asarray(columns[JUNK], np.float64))) - self.usual[JUNK][0]
        if not self.usual:
            return None
        above = [(_log(columns[name]) - middle) / spread for name, (middle, spread) in self.usual.items()]
        return junk_level(np.nan_to_num(np.max(above, axis=0)))  # what either sees is seen


def columns_for_junk(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names of columns that say something of junk."""
    there = tuple(names)
    return (JUNK,) if JUNK in there else tuple(name for name in RISES if name in there)


def junk_scale(columns: Mapping[str, NDArray]) -> JunkScale:
    """Measure what is usual; a column that is the same in most rows says nothing, and is left out."""
    if JUNK in columns:
        odds = _log_odds(columns[JUNK])
        if not len(odds):
            return JunkScale()
        middle = float(np.nanmedian(odds))
        spread = (middle - float(np.nanquantile(odds, LOWER))) / NORMAL
        return JunkScale({JUNK: (float(np.clip(middle + ABOVE * spread, FROM, TO)), 1.0)})
    usual = {}
    for name in columns_for_junk(columns):
        log = _log(columns[name])
        middle = float(np.nanmedian(log))
        spread = (middle - float(np.nanquantile(log, LOWER))) / NORMAL
        if spread > LEAST:
            usual[name] = (middle, spread)
    return JunkScale(usual)


def _log_odds(chances: NDArray) -> NDArray[np.float64]:
    chance = np.clip(np.asarray(chances, np.float64), 1e-6, 1 - 1e-6)
    return np.log(chance / (1 - chance))


def _log(values: NDArray) -> NDArray[np.float64]:
    return np.log(np.clip(np.asarray(values, np.float64), LEAST, 1 / LEAST))
