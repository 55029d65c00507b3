"""The state after the decisions of a review so far."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.reviewing.queue import Group


@dataclass(frozen=True)
class Standing:
    """The state after the lines so far; masks have shape (N,).

    Attributes:
        answered: question -> mask of rows with an answer.
        dropped: mask of dropped rows.
        kept: mask of rows that a reviewer kept.
        restored: mask of rows that a reviewer judged to be no copies.
        labels: row -> new label.
        pairs: compared pairs of rows with an answer.
        apart: pairs of rows that are no copies, the compared row first.
        audited: mask of the random sample.
        bad: mask of its bad rows.
        groups: all groups, in order.
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
