"""Finders that filter the pairs of another finder: without flat images, or of equal colours."""

from collections.abc import Sequence
from copy import copy
from typing import Self

import numpy as np

from curate.columns import FRAMES
from curate.policies.dedup.finders.links import Links, joined, mask_of
from curate.policies.dedup.finders.looks import VIEWS
from curate.policies.dedup.finders.searches import Search, Views, not_compared
from curate.policies.dedup.options import Progress
from curate.tables.rows import Rows
from scoring.arrays import Floats, Ints, Mask
from scoring.images.signature import ORIENTATIONS, SignatureView, reorient_chroma, same_colours
from scoring.search.links import Recall

MOST = 512  # rows per repeated query
WIDTH, HEIGHT, COLOURS = "width", "height", "quality_colours"
BRIGHTNESS, ENTROPY = "quality_brightness", "quality_entropy"
DRAWN = (WIDTH, HEIGHT, COLOURS, BRIGHTNESS, ENTROPY)
MOST_COLOURS, PIXELS_A_COLOUR = 64, 2  # of a drawing
LOSSLESS = ("png", "bmp", "tiff", "gif")
EQUAL = {BRIGHTNESS: 1e-4, ENTROPY: 1e-3}  # tolerances of equal pixels
LIGHT = 0.04  # tolerance as a share of white: resizing and JPEG of quality 30 change the mean by at most 0.017


class Passing(Search):
    """A finder that links a subset of the pairs of another finder.

    Args:
        search: the other finder.
    """

    def __init__(self, search: Search) -> None:
        self.search, self.higher = search, search.higher

    @property
    def recall(self) -> Recall | None:
        """Share of the pairs that are found; None for all."""
        return self.search.recall

    @property
    def extent(self) -> str:
        """A text on which pairs are compared."""
        return self.search.extent

    @property
    def notes(self) -> Sequence[str]:
        """Facts for the user."""
        return self.search.notes

    def prepare(self, report: Progress) -> None:
        """Do the work of the other finder before the first query."""
        self.search.prepare(report)

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the similarity of pairs of rows, whether or not they are linked."""
        return self.search.measure(query, row)

    def stricter(self, threshold: float) -> Self | None:
        """Return the same finder for a stricter threshold; None if it has to be built again."""
        search = self.search.stricter(threshold)
        if search is None:
            return None
        other = copy(self)
        other.search = search
        return other


class WithoutFlat(Passing):
    """A search by cosine whose flat rows have no copies.

    Args:
        search: for all other rows.
        rows: of this table, including the flat ones.
        name: of the finder.
    """

    def __init__(self, search: Search, rows: Rows, name: str) -> None:
        super().__init__(search)
        self.flat = np.zeros(len(rows), bool) if rows.flat is None else rows.flat
        n = int((self.flat & rows.ok).sum())
        self._note = (not_compared(name, n, "of one flat colour"),) if n else ()

    @property
    def notes(self) -> Sequence[str]:
        """Facts for the user, the flat rows first."""
        return (*self._note, *super().notes)

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        return self.search.links(rows[~self.flat[rows]], among & ~self.flat)

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        return self.search.first(rows[~self.flat[rows]], among & ~self.flat)

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of this."""
        if rows.flat is not None:
            some = np.flatnonzero(~rows.flat) if some is None else some[~rows.flat[some]]
        return self.search.foreign(rows, among & ~self.flat, some)

    def measure(self, query: Ints, row: Ints) -> Links:
        """Return the cosine of pairs of rows; 0 if one is flat."""
        links = super().measure(query, row)
        similarity = np.where(self.flat[query] | self.flat[row], np.float32(0), links.similarity)
        return Links(links.query, links.row, similarity, links.view)


class OfColour(Passing):
    """A finder by signature whose pairs agree in colour, or whose second image is grey.

    Args:
        search: by signature alone.
        rows: of the search, with chroma.
        views: of an image.
        closely: whether to require agreement as close as for copies of another size or encoding, also in brightness if
            known; and exclude images of files with several images, and pairs of drawings.
    """

    def __init__(self, search: Search, rows: Rows, views: Views, *, closely: bool = False) -> None:
        super().__init__(search)
        self.rows, self.views, self.closely = rows, views, closely

    def links(self, rows: Ints, among: Mask) -> Links:
        """Return the pairs of a row in ``rows`` and a row in the mask ``among``."""
        links = self.search.links(rows, among)
        return links.take(self._agree(links, self.rows))

    def first(self, rows: Ints, among: Mask) -> Links:
        """Return, for each row in the mask ``among``, the pair with the first of ``rows`` that matches it."""
        links = self.search.first(rows, among)
        agree = self._agree(links, self.rows)
        parts, others = [links.take(agree)], links.row[~agree]
        place = np.zeros(len(among), np.int64)
        place[rows] = np.arange(len(rows))
        for start in range(0, len(others), MOST):
            pairs = self.links(rows, mask_of(others[start : start + MOST], len(among)))
            parts.append(pairs.first_of_each(place[pairs.query]))
        return joined(parts)

    def foreign(self, rows: Rows, among: Mask, some: Ints | None = None) -> Links:
        """Return the pairs of a row of another table and one of this."""
        links = self.search.foreign(rows, among, some)
        return links.take(self._agree(links, rows))

    def _agree(self, links: Links, side: Rows) -> Mask:
        """Return a mask of pairs of a side's row and one of this table that agree in colour in the view of the link."""
        agree = np.zeros(len(links), bool)
        for number, view in enumerate(self.views):
            seen = np.flatnonzero(links.view % VIEWS == number)
            if len(seen):
                agree[seen] = self.agree(links.take(seen), side, view)
        return agree

    def agree(self, links: Links, side: Rows, view: SignatureView) -> Mask:
        """Return a mask of the pairs (P,) of a side's row, in a view, and a row of this table that agree in colour."""
        turned = reorient_chroma(side.array("chroma")[links.query], ORIENTATIONS[view.name])
        agree = same_colours(turned, self.rows.array("chroma")[links.row], closely=self.closely)
        light, other = side.exact.get(BRIGHTNESS), self.rows.exact.get(BRIGHTNESS)
        if self.closely and light is not None and other is not None:
            known = light.valid[links.query] & other.valid[links.row]
            apart = np.abs(light.values[links.query] - other.values[links.row])
            agree &= ~known | (apart <= LIGHT)
        if self.closely:
            agree &= ~(_has_siblings(side, links.query) | _has_siblings(self.rows, links.row))
            if ORIENTATIONS[view.name] == 0:
                agree &= ~are_two_drawings(side, links.query, self.rows, links.row)
        return agree


def has_format(rows: Rows, formats: Sequence[str]) -> Mask:
    """Return a mask of the rows with one of the formats, shape (N,); all False if the format was not read."""
    codes = rows.names.get("format")
    if codes is None:
        return np.zeros(len(rows), bool)
    return np.isin(codes.codes, [codes.names.index(name) for name in formats if name in codes.names])


def drawings(rows: Rows, at: Ints) -> Mask:
    """Return which of rows (P,) are drawings stored without loss, shape (P,)."""
    measures = _drawing_measures(rows, at)
    pixels = np.prod([np.ceil(np.minimum(measures[side], 160) / 4) for side in (WIDTH, HEIGHT)], axis=0)  # of colours
    drawn: Mask = (measures[COLOURS] <= MOST_COLOURS) & (PIXELS_A_COLOUR * measures[COLOURS] <= pixels)
    return drawn


def are_two_drawings(side: Rows, query: Ints, rows: Rows, row: Ints) -> Mask:
    """Return which of P pairs are drawings of one size, stored without loss, whose pixels differ, shape (P,).

    Copies of a drawing have equal measures; a figure in another posture or a page with other words has not.
    """
    first, second = _drawing_measures(side, query), _drawing_measures(rows, row)
    same_size = (first[WIDTH] == second[WIDTH]) & (first[HEIGHT] == second[HEIGHT])
    differ = np.any([np.abs(first[name] - second[name]) > least for name, least in EQUAL.items()], axis=0)
    return np.asarray(drawings(side, query) & drawings(rows, row) & same_size & differ)


def _drawing_measures(rows: Rows, at: Ints) -> dict[str, Floats]:
    """Return the measures that identify drawings for rows (P,), shape (P,) each; NaN if absent, or lossy."""
    exact, columns = has_format(rows, LOSSLESS)[at], {name: rows.exact.get(name) for name in DRAWN}
    return {
        name: np.full(len(at), np.nan) if each is None else np.where(each.valid[at] & exact, each.values[at], np.nan)
        for name, each in columns.items()
    }


def _has_siblings(rows: Rows, at: Ints) -> Mask:
    """Return a mask of the rows (P,) from a file of several images.

    A JPEG is not counted, since cameras add previews and other views of the same photograph.
    """
    frames = rows.exact.get(FRAMES)
    if frames is None:
        return np.zeros(len(at), bool)
    several: Mask = frames.valid[at] & (frames.values[at] > 1) & ~has_format(rows, ["jpeg"])[at]
    return several
