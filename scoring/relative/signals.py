"""Signals of a row relative to the others, one function each; higher is less certain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.relative.neighbours import Near

ALONE = 2.0  # distance of a row without neighbours: the maximum
CLOSE = 10  # number of nearest neighbours for sharing; the next ones are the reference for contrast
LEAST = 1e-6


@dataclass(frozen=True)
class RowPlaces:
    """The clusters of N rows in each of S clusterings, shape (N, S)."""

    clusters: NDArray[np.int32]


@dataclass(frozen=True)
class RowsAmongOthers:
    """N rows relative to R others, which may be the same rows.

    Attributes:
        near: neighbours of the rows among the others.
        rows: clusters of the rows.
        others: clusters of the others.
        near_others: nearest of the others among themselves, shape (R, 10); -1 for none.
    """

    near: Near
    rows: "RowPlaces"
    others: "RowPlaces"
    near_others: NDArray[np.int32]


def distance(view: RowsAmongOthers) -> NDArray[np.float64]:
    """Return 1 - cosine to the nearest other row that is not a copy, centred, in [0, 2]; 2 if all are copies."""
    first = 1 - view.near.cosine[:, 0].astype(np.float64)
    return np.where(view.near.exists[:, 0], first, ALONE)


def disagreement(view: RowsAmongOthers) -> NDArray[np.float64]:
    """Return the share of neighbours in another cluster, averaged over clusterings, in [0, 1]; 1/2 if undefined."""
    exists, index = view.near.exists, view.near.index.clip(0)
    count = exists.sum(1)
    total = np.zeros(len(count))
    for cluster, other in zip(view.rows.clusters.T, view.others.clusters.T, strict=True):
        total += ((other[index] != cluster[:, None]) & exists).sum(1)
    pairs = count * view.rows.clusters.shape[1]
    return np.divide(total, pairs, out=np.full(len(count), 0.5), where=pairs > 0)


def contrast(view: RowsAmongOthers) -> NDArray[np.float64]:
    """Return the distance to the nearest row over the mean distance to the 11th to 20th, in [0, 1].

    Near 1 if the nearest row is hardly nearer than many others; 1 with fewer than 11 neighbours.
    """
    apart = np.where(view.near.exists, 1 - view.near.cosine.astype(np.float64), 0)
    count = view.near.exists[:, CLOSE:].sum(1)
    further = np.divide(apart[:, CLOSE:].sum(1), count, out=np.zeros(len(count)), where=count > 0)
    return np.divide(apart[:, 0], further, out=np.ones(len(count)), where=further > LEAST).clip(0, 1)


def unshared(view: RowsAmongOthers) -> NDArray[np.float64]:
    """Return the share of the 10 nearest rows that are not among the 10 nearest of the nearest row, in [0, 1].

    1 without neighbours. Source: shared nearest neighbours, Jarvis & Patrick 1973.
    """
    neighbours = view.near.index[:, :CLOSE]
    of_nearest = np.where(neighbours[:, :1] >= 0, view.near_others[neighbours[:, 0].clip(0)], -1)
    both = np.zeros(neighbours.shape, bool)
    for column in of_nearest.T:
        both |= neighbours == column[:, None]
    count = (neighbours >= 0).sum(1)
    shared = (both & (neighbours >= 0)).sum(1)
    return 1 - np.divide(shared, count, out=np.zeros(len(count)), where=count > 0)


SIGNALS: Mapping[str, Callable[[RowsAmongOthers], NDArray[np.float64]]] = {  # to add a signal, add a line
    "distance": distance,
    "contrast": contrast,
    "unshared": unshared,
    "disagreement": disagreement,
}
