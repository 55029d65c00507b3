"""Confirmation of copies by thumbnails, since images of one template have close signatures but differ in a part."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from curate.columns import SIGNATURE, THUMBNAIL
from curate.counted import counted
from curate.policies.dedup.finders.links import Links, in_chunks, joined, mask_of
from curate.policies.dedup.finders.looks import VIEWS
from curate.policies.dedup.finders.passing import LOSSLESS, OfColour, are_two_drawings, drawings, has_format
from curate.policies.dedup.finders.searches import NearVector, Search
from curate.policies.dedup.grouping.stars import NOBODY, Stars
from curate.tables.copies import first_equal
from curate.tables.rows import Rows
from curate.tables.signatures import Thumbnails
from curate.tables.table import Table
from scoring.arrays import Floats, Ints, Mask
from scoring.images.geometry import orient
from scoring.images.signature import ORIENTATIONS, SignatureView
from scoring.images.thumbnail import COPY, OTHER, SIDE, WIDTH, differences, local_change
from scoring.system import usable_cores

BYTES, SHA256 = "bytes", "sha256"
CLOSE = 0.8  # cosine of ``differences``, from which two images of a template are compared
ROUNDS = 8  # of these, for each row
STRICT = 0.75  # local change of copies among images of one template, of which many pairs are compared
LARGE = 4  # rows of a group of which most differ from the kept one: images of a template
FEW = 2  # the same, where most differ clearly
CHECKED = 8  # rows of a group next to the kept one: smaller groups are mostly versions of one photograph
EVERY = 0.99  # threshold from which groups of any size are checked
MOST_KEPT = 8  # kept images that a row is compared with
AT_ONCE = 1024  # pairs of a thread
MOST_THREADS = 16  # each takes about 30 MB


@dataclass(frozen=True)
class Confirmation:
    """Checks the pairs linked by signature in a table.

    Attributes:
        table: with or without thumbnails.
        rows: of the table.
        search: the finder ``signature``.
        threshold: minimal cosine.
        views: of an image.
        place: rank of each row in the order of keeping, shape (N,).
    """

    table: Table
    rows: Rows
    search: Search
    threshold: float
    views: Sequence[SignatureView]
    place: Ints

    def holds(self, stars: Stars, rows: Ints) -> Mask:
        """Return which rows of large groups are confirmed to be copies of their owners, shape (P,)."""
        mine = Thumbnails.read(self.table, np.union1d(rows, stars.owner[rows]))
        return self._changes_of(_pairs(stars, rows), mine, mine, self.rows, STRICT) <= STRICT

    def leaks(self, stars: Stars, other: Table, side: Rows) -> tuple[Mask, Mask]:
        """Return masks of undecided rows and of rows unlike all of another table, (N,) each; the latter are detached.

        A row known to differ from its most similar image may be a copy of another one, and is then assigned to it.
        """
        rows, n = _linked(stars), len(stars.owner)
        others, mine = Thumbnails.read(other, np.unique(stars.owner[rows])), Thumbnails.read(self.table, rows)
        changes = self._changes_of(_pairs(stars, rows), others, mine, side)
        undecided = mask_of(rows[self._unconfirmed(stars, rows, changes, side)], n)
        different = mask_of(rows[(changes > OTHER) & self._checked(stars, rows, changes, side)], n)
        links = self._most_similar(side, different)
        others = Thumbnails.read(other, np.unique(links.query))
        changes = _changes(others, links.query, mine, links.row, self._turns(links), OTHER)
        different[links.row[~(changes > OTHER)]] = False  # unequal pixels alone may be due to another encoding
        copies = links.take((changes <= COPY) & ~are_two_drawings(side, links.query, self.rows, links.row))
        copies = copies.first_of_each()
        stars.drop(copies, stars.names.index(SIGNATURE))
        stars.detach(np.flatnonzero(different), NOBODY)
        undecided[copies.row] = False
        return undecided & ~different, different

    def _most_similar(self, side: Rows, among: Mask) -> Links:
        """Return the most similar rows of a side for each row in a mask, the best first."""
        links = joined([])
        queried = np.flatnonzero(side.ok) if among.any() else np.zeros(0, np.int64)
        for more in in_chunks(partial(self.search.foreign, side, among), queried):
            links = joined([links, more])
            links = _nearest(links, links.row)
        return links

    def apply(self, stars: Stars) -> Mask:
        """Detach rows that are not copies of their owners, in place; return a mask of the undecided ones, shape (N,).

        A detached row may be a copy of another kept or detached row, and is then assigned to it.
        """
        rows = _linked(stars)
        rows = rows[np.argsort(self.place[rows])]
        mine = Thumbnails.read(self.table, np.union1d(rows, stars.owner[rows]))
        changes = self._changes_of(_pairs(stars, rows), mine, mine, self.rows)
        checked = self._checked(stars, rows, changes, self.rows)
        unconfirmed = self._unconfirmed(stars, rows, changes, self.rows)
        rows, changes, checked = rows[unconfirmed], changes[unconfirmed], checked[unconfirmed]
        equal = np.arange(len(rows))
        if BYTES in stars.names:
            equal = first_equal(self.rows.texts[SHA256].take(pa.array(rows)))
        single = equal == np.arange(len(rows))
        owner = stars.owner[rows]
        known = rows[single & ~np.isnan(changes)]
        known = self._assign(stars, known, [self._kept(stars, known)])
        self._assign(stars, known, self._each_other(stars.owner[known], known, mine))
        moved = stars.owner[rows] != owner
        _assign_equal(stars, rows, equal, moved)
        left = single & ~moved
        is_other = (changes > OTHER) & checked  # in other groups, the majority only suggests it
        other = rows[left & is_other]
        stars.detach(other, other)
        return mask_of(rows[left & ~is_other], len(stars.owner))

    def _unconfirmed(self, stars: Stars, rows: Ints, changes: Floats, side: Rows) -> Mask:
        """Return a mask of the linked rows that their local changes do not confirm as copies, shape (P,).

        Only a small local change confirms rows of ``_checked``, pairs of lossless files, and all rows of a table in
        which most pairs are no copies. The threshold is stricter in groups of 4 or more that are mostly no copies.

        Other rows may differ in a part, as versions of one photograph do. They are unconfirmed only if they differ
        clearly, and either image is a drawing or most rows of the group differ clearly.

        Args:
            stars: the groups.
            rows: linked by signature, shape (P,).
            changes: local change from their owners, NaN without a thumbnail, shape (P,).
            side: the table of the owners.
        """
        owner = stars.owner[rows]
        not_copy, clearly_other = ~(changes <= COPY), changes > OTHER
        size, n_not_copy, n_other = (np.bincount(owner, mask)[owner] for mask in (None, not_copy, clearly_other))
        not_copy |= (size >= LARGE) & (2 * n_not_copy > size) & ~(changes <= STRICT)
        each_must_confirm = has_format(side, LOSSLESS)[owner] & has_format(self.rows, LOSSLESS)[rows]
        each_must_confirm |= 2 * (changes > COPY).sum() > max(len(rows), CHECKED)  # as in slices of a volume
        checked = self._checked(stars, rows, changes, side) | (each_must_confirm & ~np.isnan(changes))
        drawn = drawings(side, owner) | drawings(self.rows, rows)
        mostly_other = (size >= FEW) & (2 * n_other > size)
        return (not_copy & checked) | (clearly_other & (drawn | mostly_other))

    def _checked(self, stars: Stars, rows: Ints, changes: Floats, side: Rows) -> Mask:
        """Return a mask of the linked rows that are no copies if they differ clearly from their owners, shape (P,).

        These are all rows of groups of 9 or more images, all rows at a threshold of 0.99 or more, and pairs of drawings
        with thumbnails. Other rows that differ are only undecided.
        """
        owner = stars.owner[rows]
        drawn = drawings(side, owner) & drawings(self.rows, rows) & ~np.isnan(changes)
        return (np.bincount(owner)[owner] >= CHECKED) | (self.threshold >= EVERY) | drawn

    def _changes_of(
        self, links: Links, owners: Thumbnails, mine: Thumbnails, side: Rows, most: float = OTHER
    ) -> Floats:
        """Return the local change of pairs with rows of a side, shape (P,): infinite for two drawings."""
        turns = self._turns(links)
        changes = _changes(owners, links.query, mine, links.row, turns, most)
        differ = are_two_drawings(side, links.query, self.rows, links.row)
        changes[differ & (turns == 0) & ~np.isnan(changes)] = np.inf
        return changes

    def _turns(self, links: Links) -> Ints:
        """Return the orientation of the first image of each pair, shape (P,)."""
        return np.array([ORIENTATIONS[view.name] for view in self.views])[links.view % VIEWS]

    def _kept(self, stars: Stars, rows: Ints) -> Links:
        """Return the confirmed pairs of kept rows and these rows."""
        is_kept = (stars.owner == np.arange(len(stars.owner))) & (stars.finder < 0)
        parts = []
        for links in in_chunks(partial(self.search.links, among=is_kept), rows, least=1):
            others = links.take(links.row != stars.owner[links.query])
            parts.append(_nearest(others, others.query))
        links = joined(parts)
        mine = Thumbnails.read(self.table, np.union1d(links.query, links.row))
        return self._confirmed(links.row, links.query, mine)

    def _each_other(self, owner: Ints, rows: Ints, mine: Thumbnails) -> Iterator[Links]:
        """Yield the confirmed pairs among rows, in the order of keeping, that differ from their owners.

        Their differences from the owner are compared first, which leaves few pairs to check.
        """
        if not len(rows):
            return
        apart = np.empty((len(rows), WIDTH // 4), np.int8)
        order = np.argsort(owner, kind="stable")
        for start in range(0, len(rows), AT_ONCE):
            part = order[start : start + AT_ONCE]
            owners, at = np.unique(owner[part], return_inverse=True)
            apart[part] = differences(mine.values[mine.at(owners)], mine.values[mine.at(rows[part])], at)
        apart[~apart.any(1), 0] = np.iinfo(apart.dtype).max  # equal to their owners: also equal to each other
        near = NearVector(apart, CLOSE, "difference")
        left = np.ones(len(rows), bool)
        for _ in range(ROUNDS):
            at = np.flatnonzero(left)
            links = near.first(at, left)
            later = mask_of(links.row[links.query < links.row], len(rows))
            heads = at[~later[at]]
            if len(heads) == len(at):
                return
            links = near.first(heads, later & left)
            links = links.take(links.query < links.row)
            confirmed = self._confirmed(rows[links.query], rows[links.row], mine)
            yield confirmed
            left[heads] = False
            left &= ~np.isin(rows, confirmed.row)

    def _confirmed(self, query: Ints, row: Ints, mine: Thumbnails) -> Links:
        """Return the pairs of a kept and a later row that are copies by signature and thumbnail."""
        later = self.place[query] < self.place[row]
        measured = self.search.measure(query[later], row[later])
        links = measured.take((measured.similarity >= np.float32(self.threshold)) & (measured.view == 0))
        if isinstance(self.search, OfColour):
            links = links.take(self.search.agree(links, self.rows, self.views[0]))
        links = links.take(~are_two_drawings(self.rows, links.query, self.rows, links.row))
        changes = _changes(mine, links.query, mine, links.row, np.zeros(len(links), np.int64), STRICT)
        links = links.take(changes <= STRICT)
        return links.first_of_each(self.place[links.query])

    def _assign(self, stars: Stars, rows: Ints, parts: Iterable[Links]) -> Ints:
        """Assign the later rows of pairs to the earlier ones; return the remaining rows."""
        for links in parts:
            stars.drop(links, stars.names.index(SIGNATURE))
            rows = rows[~np.isin(rows, links.row)]
        return rows


def unconfirmed_note(rows: Mask, *tables: Table | None) -> list[str]:
    """Return a note on near copies that are kept until reviewed, from a mask of rows of these tables."""
    count = int(rows.sum())
    if not count:
        return []
    lacking = [str(each.path) for each in tables if each is not None and THUMBNAIL not in each.schema.names]
    why, again = f"{'differs in a part or has' if count == 1 else 'differ in a part or have'} no thumbnail", ""
    if lacking:
        why = f"cannot be confirmed, as {' and '.join(lacking)} {'have' if len(lacking) > 1 else 'has'} no thumbnails"
        again = "score the images again, or "
    return [
        f"{counted(count, 'near copy is', 'near copies are')} kept until reviewed, which {why}: {again}view them with "
        "curate review TABLE SUBSET; --finder with a --threshold of 0.95 or lower drops them"
    ]


def different_note(count: int) -> list[str]:
    """Return a note on rows that are kept although similar, since they differ in a part."""
    if not count:
        return []
    rows = counted(count, "row is kept whose signature is", "rows are kept whose signatures are")
    return [
        f"{rows} close to another's, since a part of the image differs: --finder signature with a --threshold of 0.95 "
        "or lower drops them"
    ]


def _assign_equal(stars: Stars, rows: Ints, equal: Ints, moved: Mask) -> None:
    """Assign rows to the first row with the same bytes, or to its new owner, in place.

    Args:
        stars: changed in place.
        rows: indices, shape (P,).
        equal: index among them of the first row with the same bytes, shape (P,).
        moved: mask of rows with a new owner, shape (P,).
    """
    same = np.flatnonzero(equal != np.arange(len(rows)))
    first, gone = rows[equal[same]], moved[equal[same]]
    for name in ("owner", "finder", "similarity", "view"):
        values = getattr(stars, name)
        values[rows[same[gone]]] = values[first[gone]]
    stay = ~gone
    if stay.any():
        row, kept = rows[same[stay]], first[stay]
        links = Links(kept, row, np.ones(len(row), np.float32), np.zeros(len(row), np.int8))
        stars.drop(links, stars.names.index(BYTES))


def _nearest(links: Links, rows: Ints) -> Links:
    """Return the ``MOST_KEPT`` most similar pairs of each row, the best first.

    Args:
        links: P pairs.
        rows: of each pair, shape (P,).
    """
    order = np.lexsort((-links.similarity, rows))
    rank = np.arange(len(order)) - np.searchsorted(rows[order], rows[order])
    return links.take(order[rank < MOST_KEPT])


def _pairs(stars: Stars, rows: Ints) -> Links:
    """Return the pairs of rows with their owners."""
    return Links(stars.owner[rows], rows, stars.similarity[rows].astype(np.float32), stars.view[rows])


def _linked(stars: Stars) -> Ints:
    """Return the rows that the signature links to an owner."""
    return np.flatnonzero(stars.finder == stars.names.index(SIGNATURE))


def _changes(first: Thumbnails, query: Ints, second: Thumbnails, row: Ints, turns: Ints, most: float = OTHER) -> Floats:
    """Return the local change of pairs of rows, shape (P,), the first turned; NaN where a thumbnail is missing."""
    changes = np.full(len(row), np.nan)
    known = np.flatnonzero(first.known[first.at(query)] & second.known[second.at(row)])
    known = known[np.lexsort((turns[known], query[known]))]  # the pairs of an image share its fit
    parts = [known[start : start + AT_ONCE] for start in range(0, len(known), AT_ONCE)]

    def measured(part: Ints) -> Floats:
        views, at = np.unique(query[part] * len(ORIENTATIONS) + turns[part], return_inverse=True)
        rows, turned = np.divmod(views, len(ORIENTATIONS))
        images = first.values[first.at(rows)]
        for place in np.flatnonzero(turned).tolist():
            images[place] = orient(images[place].reshape(SIDE, SIDE, 1), int(turned[place]) + 1).ravel()
        return local_change(images, second.values[second.at(row[part])], at, most=most)

    with ThreadPoolExecutor(min(usable_cores(), MOST_THREADS)) as pool:
        for part, change in zip(parts, pool.map(measured, parts), strict=True):
            changes[part] = change
    return changes
