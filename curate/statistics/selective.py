"""Selective prediction: accuracy as the least certain rows are left undecided.

Rows of equal certainty are taken in random order, and the measures are the exact expectation over that order.
"""

import numpy as np
from numpy.typing import NDArray

from curate.statistics.weighted import RankOrder, harmonic_sums


def aurc(certainty: NDArray, right: NDArray) -> float:
    """Return the area under the risk-coverage curve: the mean over k of the error of the k most certain rows.

    Lower is better; the area under the abstained-accuracy curve is one minus it.

    Args:
        certainty: higher is more certain, shape (N,), without NaN.
        right: shape (N,), bool.

    Source: Geifman et al. 2019, arXiv:1805.08206, sec. 2.
    """
    order = RankOrder(certainty)
    wrong = order.sort(~np.asarray(right, bool)[:, None])
    return float(order.aurc(order.ones(), wrong, harmonic_sums(len(order.order)))[0])


def least_aurc(risk: NDArray | float) -> NDArray[np.float64]:
    """Return the AURC of a perfect order for many rows, r + (1 - r) log(1 - r), for an error rate r.

    With N rows the exact value is larger by less than (1 + log N) / N.

    Source: Geifman et al. 2019, arXiv:1805.08206, eq. 4.
    """
    risk = np.asarray(risk, np.float64)
    log = np.log1p(-risk, out=np.zeros_like(risk), where=risk < 1)
    return risk + (1 - risk) * log
