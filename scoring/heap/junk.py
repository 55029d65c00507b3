"""Whether there is anything to learn from in an image, from the columns of trained heads."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scoring.heap.rule import junk_chance

JUNK = "unc_junk"  # of a head that was trained on junk: a chance, taken as it is
RISES = ("unc_mcinfonce", "unc_losspred")  # of heads that were not, and rise on it
LOWER, NORMAL = 0.1, 1.2816  # the lower tenth of a normal distribution lies so many deviations below its median
LEAST = 1e-12


@dataclass(frozen=True)
class JunkScale:
    """What is usual in a heap: the median of the logarithm of a column, and a deviation measured below it.

    Junk lies above, so that even a fifth of it moves neither far.

    Attributes:
        usual: column -> (median, deviation) of its logarithm; empty where ``unc_junk`` says it, or nothing does.
    """

    usual: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def chance(self, columns: Mapping[str, NDArray]) -> NDArray[np.float64] | None:
        """Return the chance of junk of N rows from their columns, shape (N,); None where no column says it.

        Raises:
            KeyError: for a column that the heap had and that is missing here.
        """
        if JUNK in columns:
            return np.clip(np.nan_to_num(np.asarray(columns[JUNK], np.float64)), 0, 1)
        if not self.usual:
            return None
        above = [(_log(columns[name]) - middle) / spread for name, (middle, spread) in self.usual.items()]
        return junk_chance(np.nan_to_num(np.mean(above, axis=0)))


def columns_for_junk(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names of columns that say something of junk."""
    there = tuple(names)
    return (JUNK,) if JUNK in there else tuple(name for name in RISES if name in there)


def junk_scale(columns: Mapping[str, NDArray]) -> JunkScale:
    """Measure what is usual; a column that is the same in most rows says nothing, and is left out."""
    if JUNK in columns:
        return JunkScale()
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
