"""What finders share that pass on what another search finds, and leave some of it out."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.searches import Search
from scoring.search.links import Recall


class Passing(Search):
    """A search that links some of the pairs of another one, by which it is described and measured.

    Args:
        search: the other one.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.higher = search, search.higher

    @property
    def recall(self) -> Recall | None:
        """What share of the pairs the search finds."""
        return self.search.recall

    @property
    def extent(self) -> str:
        """How much is compared."""
        return self.search.extent

    @property
    def notes(self) -> Sequence[object]:
        """Facts for the user."""
        return self.search.notes

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the similarity of pairs of rows by the search, whether or not they would be linked."""
        return self.search.measure(query, row)

    def stricter(self, threshold: float) -> Self | None:
        """Return the same finder for a stricter threshold, or None where it has to be built again."""
        search = self.search.stricter(threshold)
        if search is None:
            return None
        other = copy(self)
        other.search = search
        return other
