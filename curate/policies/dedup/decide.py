"""Decides which rows are copies, and which are kept; nothing is written."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING, SIGNATURE
from curate.policies.decided import DROP, FAILED, KEEP
from curate.policies.dedup.finders.links import in_chunks
from curate.policies.dedup.finders.searches import Search, not_compared
from curate.policies.dedup.finders.table import FINDERS, build
from curate.policies.dedup.grouping.confirmed import Confirmation, different_note, unconfirmed_note
from curate.policies.dedup.grouping.keep import (
    LEAST_LOST,
    Criterion,
    equal_files,
    keep_order,
    links_last,
    preferred_rows,
)
from curate.policies.dedup.grouping.loose import Bounds, Crowds, looser
from curate.policies.dedup.grouping.loss import enlarged, facts_in
from curate.policies.dedup.grouping.stars import NOBODY, Stars, find_stars
from curate.policies.dedup.listed import list_crops, listed_note
from curate.policies.dedup.options import Progress
from curate.policies.dedup.request import CROP, NEAR_DUPLICATE, WITH_EMBEDDINGS, Appearance, DedupRequest
from curate.policies.reviewed import Reviewed, VerdictLines, with_images
from curate.policies.verdicts import COPY, IMAGE, LEAKS
from curate.policies.verdicts import DROP as DROPPED
from curate.policies.verdicts import KEEP as KEPT
from curate.tables.keys import key_ranks
from curate.tables.provenance import same_model, same_signature
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table
from scoring.arrays import Ints, Mask
from scoring.errors import InputError

MOST = 65_536  # rows of the other table per block of queries
ENOUGH = 256  # matches of a row after which no better one is searched


@dataclass
class Duplicates:
    """The decisions of a deduplication.

    Attributes:
        rows: the columns read.
        order: rows in the order of keeping.
        searches: the finders.
        stars: the groups.
        outside: mask of rows whose owner is a row of the other table, shape (N,).
        foreign: for leaks, the matching row of the other table.
        outcome: shape (N,) uint8.
        reviewed: the reviewers' decisions.
        loose: mask of rows just above the threshold in large groups, shape (N,).
        to_review: mask of loose rows and leaks that are kept until reviewed, shape (N,).
        unconfirmed: mask of rows in ``to_review`` whose thumbnails do not confirm the copy, shape (N,).
        listed: mask of rows in ``to_review`` that are listed as crops, shape (N,).
        different: mask of rows with close signatures that are kept since their thumbnails differ in a part, shape (N,).
        large: mask of rows that were enlarged from a copy in their group, shape (N,); None if not used.
        other_rows: columns of the other table, without embeddings and signatures; or None.
        notes: facts for the user, one sentence each.
    """

    rows: Rows
    order: Ints
    searches: dict[str, Search]
    stars: Stars
    outside: Mask
    foreign: Stars
    outcome: NDArray[np.uint8]
    reviewed: Reviewed
    loose: Mask
    to_review: Mask
    unconfirmed: Mask
    listed: Mask
    different: Mask
    large: Mask | None = None
    other_rows: Rows | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def gone(self) -> Mask:
        """Mask of the rows dropped for another row of either table, without those to review, shape (N,)."""
        return (self.stars.finder >= 0) & ~self.to_review

    @cached_property
    def leaks(self) -> Mask:
        """Mask of the rows that are also in the other table, shape (N,); some may be dropped within this table."""
        return self.foreign.finder >= 0

    @cached_property
    def look(self) -> Appearance:
        """The appearance of rows, from the columns of the table."""
        return Appearance.of(self.rows)

    @cached_property
    def other_look(self) -> Appearance | None:
        """The appearance of the other table's rows, from its columns."""
        return None if self.other_rows is None else Appearance.of(self.other_rows)


def decide_duplicates(
    table: Table,
    request: DedupRequest,
    criteria: Sequence[Criterion],
    other: Table | None = None,
    verdicts: VerdictLines | None = None,
    *,
    compared: Callable[[int, int], None] = lambda done, total: None,
) -> Duplicates:
    """Find copies and choose the image to keep; nothing is written.

    Args:
        table: to deduplicate.
        request: with its parameters.
        criteria: criteria for the kept image.
        other: table whose rows take precedence, or None.
        verdicts: decisions of reviewers, applied before the finders: dropped images stay dropped, with their copies if
            the image itself was judged; their crops are listed; kept copies stay kept.
        compared: called with the numbers of decided and all rows.

    Raises:
        InputError: for a column or key that is unusable, or tables with incompatible embeddings or signatures.
    """
    rows, other_rows, reviewed = _read(table, other, request, criteria, verdicts)
    protected, order = _order_of(table, rows, request, criteria, reviewed)
    work = _Work(table, rows, request, order(), build(rows, request.thresholds, request.views()), compared)
    open_rows = rows.ok & (~reviewed.drop | reviewed.answered(IMAGE, DROPPED))
    to_keep = protected | reviewed.answered(LEAKS, KEPT)
    foreign, held, unconfirmed_leaks, different_leaks = work.foreign(other, other_rows, open_rows, to_keep)
    at_home = protected | reviewed.answered(COPY, KEPT) | reviewed.apart
    stars = work.inside(open_rows, at_home)
    work, stars, large = _enlarged_last(work, stars, criteria, order, open_rows, at_home)
    near = stars.finder >= 0
    unconfirmed = work.confirm(stars)
    different = (near & (stars.finder < 0)) | different_leaks
    loose, waiting = work.loose(stars, unconfirmed)
    listed = work.list_crops(stars, open_rows, at_home | reviewed.drop)
    outside = _link_outside(stars, foreign, rows.ok, reviewed.drop)
    linked = stars.finder >= 0
    unconfirmed, unconfirmed_leaks = unconfirmed & linked, unconfirmed_leaks & outside & linked
    different &= (stars.finder < 0) & ~reviewed.drop
    listed &= linked
    notes = [*_notes(rows, work.searches), *different_note(int(different.sum())), *listed_note(listed)]
    notes += [*unconfirmed_note(unconfirmed, table), *unconfirmed_note(unconfirmed_leaks, table, other)]
    unconfirmed |= unconfirmed_leaks
    to_review = ((waiting | (held & outside)) & linked) | unconfirmed | listed
    outcome = np.where(linked & ~to_review & ~(outside & request.report_only) | reviewed.drop, DROP, KEEP)
    return Duplicates(
        *(rows, work.order, work.searches, stars, outside, foreign),
        outcome=np.where(rows.ok, outcome, FAILED).astype(np.uint8),
        other_rows=None if other_rows is None else replace(other_rows, embedding=None, signature=None),
        notes=[*notes, *(verdicts.notes(reviewed) if verdicts else ())],
        reviewed=reviewed,
        loose=loose & linked,
        to_review=to_review,
        unconfirmed=unconfirmed,
        listed=listed,
        different=different,
        large=large,
    )


def _order_of(
    table: Table, rows: Rows, request: DedupRequest, criteria: Sequence[Criterion], reviewed: Reviewed
) -> tuple[Mask, Callable[..., Ints]]:
    """Return a mask of the protected rows, and the function that computes the order of keeping."""
    protected = rows.holds(request.protect)
    if protected is None:
        protected = np.zeros(len(rows), bool)
    preferred = preferred_rows(table, request.prefer)
    files = equal_files(rows)
    ties = links_last(table, key_ranks(table), files)
    ties[reviewed.stays] -= 2 * len(ties)  # ordered before copies without a verdict
    return protected, partial(keep_order, rows, criteria, ties, protected, preferred, apart=reviewed.apart, files=files)


@dataclass(frozen=True)
class _Work:
    """The inputs for finding groups in a table."""

    table: Table
    rows: Rows
    request: DedupRequest
    order: Ints
    searches: dict[str, Search]
    compared: Callable[[int, int], None]

    @cached_property
    def crowds(self) -> Crowds:
        """The search for large groups just above the thresholds."""
        bounds = {name: Bounds.of(name, value) for name, value in self.request.thresholds.items()}
        return Crowds({name: bound for name, bound in bounds.items() if bound is not None}, self._search, self.rows.ok)

    def _search(self, name: str, threshold: float) -> Search:
        search, chosen = self.searches[name], self.request.thresholds[name]
        if threshold == chosen:
            return search
        stricter = search.stricter(threshold) if looser(name, threshold, chosen) == chosen else None
        return build(self.rows, {name: threshold}, self.request.views())[name] if stricter is None else stricter

    @property
    def confirmation(self) -> Confirmation:
        """The confirmation of links by signature."""
        threshold = self.request.thresholds[SIGNATURE]
        place = np.argsort(self.order)
        return Confirmation(self.table, self.rows, self.searches[SIGNATURE], threshold, self.request.views(), place)

    def foreign(
        self, other: Table | None, other_rows: Rows | None, open_rows: Mask, bound: Mask
    ) -> tuple[Stars, Mask, Mask, Mask]:
        """Return the groups with the other table, and masks of rows kept anyway, unconfirmed, and known to differ.

        Linked rows are removed from ``open_rows`` in place.
        """
        held, unconfirmed, different = np.zeros((3, len(self.rows)), bool)
        if other is None or other_rows is None:
            return Stars.empty(len(self.rows), tuple(self.searches)), held, unconfirmed, different
        reported = self.request.report_only
        stars = find_outside(other_rows, self.searches, open_rows if reported else open_rows & ~bound)
        if self.request.confirmed:
            unconfirmed, different = self.confirmation.leaks(stars, other, other_rows)
        if reported:
            return stars, held, held.copy(), different
        held = (self.crowds.loose_leaks(stars, other_rows) & self.held_back(stars)) | unconfirmed
        open_rows &= (stars.finder < 0) | held
        return stars, held, unconfirmed, different

    def confirm(self, stars: Stars) -> Mask:
        """Detach rows that are not copies of their owners; return a mask of those that remain undecided, shape (N,)."""
        return self.confirmation.apply(stars) if self.request.confirmed else np.zeros(len(self.rows), bool)

    def held_back(self, stars: Stars) -> Mask:
        """Return a mask of the rows linked by a finder that holds back rows of large groups, shape (N,)."""
        return np.isin(stars.finder, [at for at, name in enumerate(stars.names) if name in self.request.held_back])

    def inside(self, open_rows: Mask, protected: Mask) -> Stars:
        """Return the groups in the table."""
        if self.request.only_against:
            return Stars.empty(len(self.rows), tuple(self.searches))
        for search in self.searches.values():
            search.prepare(self._half(0))
        compared = self.compared if self.request.listed_crop is None else self._half(0)
        compared = self._half(1) if {CROP, NEAR_DUPLICATE} & set(self.searches) else compared
        return find_stars(self.order, self.searches, open_rows.copy(), protected, compared=compared)

    def _half(self, number: int) -> Progress:
        """Return the report on the first (0) or second (1) half of the work."""
        n = len(self.rows)
        return lambda done, total: self.compared((number * n + n * done // max(total, 1)) // 2, n)

    def list_crops(self, stars: Stars, among: Mask, protected: Mask) -> Mask:
        """Link kept rows that are crops, in place, if requested; return a mask of them, shape (N,)."""
        return list_crops(stars, self.request, self.rows, self.order, among, protected, compared=self._half(1))

    def loose(self, stars: Stars, unconfirmed: Mask) -> tuple[Mask, Mask]:
        """Return masks of rows just above the threshold in large groups, and of those kept, with owners, (N,) each.

        Rows that get another owner may thereby be confirmed, in place.
        """
        owner = stars.owner.copy()
        loose = self.crowds.loose(stars)
        waiting = loose & self.held_back(stars)
        if waiting.any():
            gone = self._assign_certain(stars, waiting)
            loose, waiting = loose & ~gone, waiting & ~gone
        if self.request.confirmed:
            moved = np.flatnonzero(stars.owner != owner)
            unconfirmed[moved] = False
            moved = moved[stars.finder[moved] == stars.names.index(SIGNATURE)]
            unconfirmed[moved] = ~self.confirmation.holds(stars, moved)
        return loose, waiting

    def _assign_certain(self, stars: Stars, waiting: Mask) -> Mask:
        """Assign waiting rows that are certain copies of a kept or waiting row; return a mask of them, shape (N,)."""
        strict = {name: self.crowds.bounds[name].sure for name in self.request.held_back}
        strict_searches = {**self.searches, **{name: self._search(name, least) for name, least in strict.items()}}
        kept, partners = stars.owner == np.arange(len(waiting)), np.zeros(len(waiting), bool)
        for search in strict_searches.values():
            partners[search.first(np.flatnonzero(waiting), kept).row] = True
        order = self.order[np.argsort(~partners[self.order], kind="stable")]
        again = find_stars(order, strict_searches, waiting | partners, partners, compared=self.compared)
        gone = waiting & (again.finder >= 0)
        stars.copy(gone, again)
        return gone


def _enlarged_last(
    work: _Work, stars: Stars, criteria: Sequence[Criterion], order: Callable[..., Ints], open_rows: Mask, at_home: Mask
) -> tuple[_Work, Stars, Mask | None]:
    """Group again if a kept image is only an enlarged one; return also the mask of enlarged rows, None if unknown."""
    if all(each.typed != LEAST_LOST for each in criteria):
        return work, stars, None
    large = enlarged(work.rows, stars.owner)
    if large.any():
        work = replace(work, order=order(large=large))
        stars = work.inside(open_rows, at_home)
    return work, stars, large


def _link_outside(stars: Stars, foreign: Stars, ok: Mask, dropped: Mask) -> Mask:
    """Link rows without an owner to the other table and detach dropped ones, in place; return the former, mask (N,)."""
    # with --report-only a row may be dropped for a better one in its own table
    outside = (foreign.finder >= 0) & (stars.finder < 0)
    stars.copy(outside | ~ok, foreign)
    gone = np.flatnonzero(dropped & (stars.finder >= 0))
    stars.detach(gone, NOBODY)
    outside[gone] = False
    return outside


def _read(
    table: Table,
    other: Table | None,
    request: DedupRequest,
    criteria: Sequence[Criterion],
    verdicts: VerdictLines | None,
) -> tuple[Rows, Rows | None, Reviewed]:
    """Return the rows of both tables, and the reviewers' decisions; InputError for incompatible representations."""
    if other is not None:
        other = other.by(table.embedding_column)
        compared = {column for name in request.thresholds for column in FINDERS[name].needs}
        if EMBEDDING in compared:
            same_model(table, other)
        if SIGNATURE in compared:
            same_signature(table, other)
    needs = request.needs(criteria)
    request.needs_of_other().refuse_unread_embeddings(table, f"--finder {', '.join(WITH_EMBEDDINGS)}")
    rows = read_rows(table, needs if verdicts is None else with_images(needs, table))
    other_rows = None
    if other is not None:
        other_rows = read_rows(other, request.needs_of_other(facts_in(other, request.facts)), unique=False)
        _require_colours_alike(rows, other_rows)
    reviewed = Reviewed.of_none(len(rows)) if verdicts is None else verdicts.reviewed(rows)
    return rows, other_rows, reviewed


def _require_colours_alike(rows: Rows, other: Rows) -> None:
    """Raise InputError if only one of the tables has signatures with colours."""
    held = [each.chroma is not None for each in (rows, other) if each.signature is not None and each.signature.any()]
    if len(set(held)) > 1:
        raise InputError(
            "expected signatures with colours in both tables or in neither, got them in "
            f"{'this table' if held[0] else 'the other'} only; score both with one version, or choose other "
            "finders with --finder"
        )


def _notes(rows: Rows, searches: Mapping[str, Search]) -> list[str]:
    notes = [not_compared("embedding", n, what) for what, n in rows.not_compared().items()]
    if rows.signature is not None:
        blank = int((rows.ok & ~rows.signature.any(1)).sum())
        if blank:
            notes.append(not_compared("signature", blank, "of one flat colour or without a signature"))
    for search in searches.values():
        notes += search.notes
    return notes


def find_outside(other_rows: Rows, searches: Mapping[str, Search], open_rows: Mask) -> Stars:
    """Return which rows also occur in the other table.

    A row is assigned to the most similar row of the other table by the first finder with a match; ties go to the lowest
    key hash. Rows of the other table are queried in the order of that hash. A row found by 256 queries, or by an equal
    one, is not searched further, so that a thousand copies in both tables do not give a million pairs.

    Args:
        other_rows: rows of the other table.
        searches: built on this table.
        open_rows: mask of this table's rows to search, shape (N,); not changed.
    """
    stars = Stars.empty(len(open_rows), tuple(searches))
    ok = np.flatnonzero(other_rows.ok)
    asking = ok[np.argsort(other_rows.hashes[ok], kind="stable")]
    for number, search in enumerate(searches.values()):
        _assign_best(stars, number, search, other_rows, asking, open_rows & (stars.owner == NOBODY))
    return stars


def _assign_best(stars: Stars, number: int, search: Search, other_rows: Rows, asking: Ints, left: Mask) -> None:
    """Assign each remaining row to its most similar query, if there is any."""
    times = np.zeros(len(left), np.int64)
    sign = 1.0 if search.higher else -1.0
    alike = 1.0 if search.higher else 0.0
    queried = asking if left.any() else asking[:0]
    for links in in_chunks(partial(search.foreign, other_rows, left), queried, most=MOST):
        times += np.bincount(links.row, minlength=len(left))
        best = links.first_of_each(-sign * links.similarity, other_rows.hashes[links.query])
        known = stars.similarity[best.row]
        stars.drop(best.take(np.isnan(known) | (sign * best.similarity > sign * known)), number)
        left &= times < ENOUGH
        left[best.row[best.similarity == alike]] = False
        if not left.any():
            return
