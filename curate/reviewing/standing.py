"""The state after the decisions of a review so far."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.reviewing.queue import Group


@dataclass(frozen=True)
class Standing:
    """The state after the lines so far.

    Attributes:
        answered: question -> rows that have an answer, shape (N,).
        dropped: rows that are dropped, shape (N,).
        kept: rows that a reviewer kept, shape (N,).
        restored: rows of which a reviewer said that they are no copies, shape (N,).
        labels: row -> new label.
        pairs: rows that were compared, of those with an answer.
        apart: rows that are no copies of another, the other one first.
        audited: rows of the random sample, shape (N,).
        bad: which of them are bad, shape (N,).
        groups: open or not, in their order.
    """

    answered: dict[str, NDArray[np.bool_]]
    dropped: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    restored: NDArray[np.bool_]
    labels: dict[int, str]
    pairs: set[tuple[int, int]]
    apart: set[tuple[int, int]]
    audited: NDArray[np.bool_]
    bad: NDArray[np.bool_]
    groups: dict[str, Group]
