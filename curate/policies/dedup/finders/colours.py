"""A finder that links no images of other colours: the signature it compares is of their grey."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links, joined
from curate.policies.dedup.finders.searches import NearVector
from curate.tables.rows import Rows
from scoring.images.signature import ORIENTATIONS, reorient_chroma, same_colours
from scoring.search.links import Recall

MOST = 512  # rows that are queried again at a time
Marked = NDArray[np.bool_]
Places = NDArray[np.int64]
Chroma = NDArray[np.int8]


@dataclass
class OfColour:
    """A search by signature whose pairs agree in colour, or of which the second is grey.

    Attributes:
        search: by signature alone.
        chroma: of its rows, shape (N, 32).
    """

    search: NearVector
    chroma: Chroma
    higher: bool = field(default=True, init=False)

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

    def links(self, rows: Places, among: Marked) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        links = self.search.links(rows, among)
        return links.take(self._agree(links, self.chroma))

    def first(self, rows: Places, among: Marked) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        links = self.search.first(rows, among)
        agree = self._agree(links, self.chroma)
        parts, others = [links.take(agree)], links.row[~agree]
        place = np.zeros(len(among), np.int64)
        place[rows] = np.arange(len(rows))
        for start in range(0, len(others), MOST):
            some = np.zeros(len(among), bool)
            some[others[start : start + MOST]] = True
            pairs = self.links(rows, some)
            pairs = pairs.take(np.lexsort([place[pairs.query], pairs.row]))
            parts.append(pairs.take(np.unique(pairs.row, return_index=True)[1]))
        return joined(parts)

    def foreign(self, rows: Rows, among: Marked, some: Places | None = None) -> Links:
        """Return every pair of a row of another table and one of this."""
        links = self.search.foreign(rows, among, some)
        return links if rows.chroma is None else links.take(self._agree(links, rows.chroma))

    def measure(self, query: Places, row: Places) -> Links:
        """Return the cosine of pairs of rows, whatever their colours."""
        return self.search.measure(query, row)

    def _agree(self, links: Links, of_query: Chroma) -> Marked:
        agree = np.zeros(len(links), bool)
        for number, view in enumerate(self.search.views):
            seen = np.flatnonzero(links.view == number)
            turned = reorient_chroma(of_query[links.query[seen]], ORIENTATIONS[view.name])
            agree[seen] = same_colours(turned, self.chroma[links.row[seen]])
        return agree
