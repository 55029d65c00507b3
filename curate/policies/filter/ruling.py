"""What a rule of a filter says about rows."""

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Ruling:
    """What one rule says about M rows in a row; it counts for those that are still in.

    Attributes:
        keep: shape (M,) bool.
        judged: shape (M,) bool, all of ``keep`` among them; a row that was not is undecided.
        cuts: shape (G,) float64, the lowest value that stays (by group, else G = 1; NaN where nothing stays);
            None for a rule without a threshold.
        outcome: what else the rule found out, for its note; None where there is nothing.
    """

    keep: np.ndarray
    judged: np.ndarray
    cuts: np.ndarray | None
    outcome: Any = None
