"""What can be said of a row from where it lies among the others: one function a signal, higher is less certain."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.heap.neighbours import Near

ALONE = 2.0  # distance of a row that has no neighbour: as far as can be


@dataclass(frozen=True)
class View:
    """How N rows lie among R others, which may be themselves.

    Attributes:
        near: their neighbours among the others.
        clusters: of the rows, in each of S clusterings, shape (N, S).
        others: the clusters of those compared with, shape (R, S).
    """

    near: Near
    clusters: NDArray[np.int32]
    others: NDArray[np.int32]


def distance(view: View) -> NDArray[np.float64]:
    """Return 1 - cosine to the nearest other row that is no copy, centred, in [0, 2]; 2 where all are copies."""
    first = 1 - view.near.cosine[:, 0].astype(np.float64)
    return np.where(view.near.there[:, 0], first, ALONE)


def disagreement(view: View) -> NDArray[np.float64]:
    """Return the share of neighbours that lie in another cluster, a mean over clusterings, in [0, 1].

    1/2 where there is no neighbour, or no clustering.
    """
    there, index = view.near.there, view.near.index.clip(0)
    count = there.sum(1)
    total = np.zeros(len(count))
    for own, other in zip(view.clusters.T, view.others.T, strict=True):
        total += ((other[index] != own[:, None]) & there).sum(1)
    pairs = count * view.clusters.shape[1]
    return np.divide(total, pairs, out=np.full(len(count), 0.5), where=pairs > 0)


SIGNALS: Mapping[str, Callable[[View], NDArray[np.float64]]] = {  # to add a signal, add a line
    "distance": distance,
    "disagreement": disagreement,
}
