"""A finder that passes over images of one flat colour: to a model they are all alike, whatever they are of."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.facts import NotCompared
from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.passing import Passing
from curate.policies.dedup.finders.searches import Search
from curate.tables.rows import Rows


class WithoutFlat(Passing):
    """A search by cosine whose flat rows are the same as none.

    Args:
        search: that is queried all other rows.
        flat: which rows of this table are flat, shape (N,) bool.
        name: of the finder.
        n: flat rows of images that were scored, for the note.
    """

    def __init__(self, search: Search, flat: NDArray[np.bool_], name: str, n: int) -> None:
        super().__init__(search)
        self.flat = flat
        self._note = (NotCompared(name, n, "of one flat colour"),) if n else ()

    @property
    def notes(self) -> Sequence[object]:
        """Facts for the user, the flat rows first."""
        return (*self._note, *super().notes)

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        return self.search.links(rows[~self.flat[rows]], among & ~self.flat)

    def first(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        return self.search.first(rows[~self.flat[rows]], among & ~self.flat)

    def foreign(self, rows: Rows, among: NDArray[np.bool_], some: NDArray[np.int64] | None = None) -> Links:
        """Return every pair of a row of another table and one of this."""
        if rows.flat is not None:
            some = np.flatnonzero(~rows.flat) if some is None else some[~rows.flat[some]]
        return self.search.foreign(rows, among & ~self.flat, some)

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the cosine of pairs of rows; 0 where one is flat."""
        links = super().measure(query, row)
        similarity = np.where(self.flat[query] | self.flat[row], np.float32(0), links.similarity)
        return Links(links.query, links.row, similarity, links.view)


def without_flat(search: Search, rows: Rows, name: str) -> Search:
    """Return a search that leaves the flat rows of a table out, where it has any."""
    if rows.flat is None or not rows.flat.any():
        return search
    return WithoutFlat(search, rows.flat, name, int((rows.flat & rows.ok).sum()))
