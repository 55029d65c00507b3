"""Crops that a deduplication lists for review by default, since some are other images; ``--cropped`` drops them."""

from dataclasses import replace

import numpy as np

from curate.counted import counted
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import FINDERS, threshold_of
from curate.policies.dedup.grouping.stars import Stars, find_stars
from curate.policies.dedup.options import Progress
from curate.policies.dedup.request import CROP, DedupRequest
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Ints, Mask

MOST_ROWS = 50_000  # of a table of which crops are listed: up to it, all pairs of embeddings are compared
PAIR_SECONDS, ROW_SECONDS = 4.5e-9, 1.2e-4  # of one core: for two embeddings, and for a row and a view
LONG = 5.0  # seconds that are announced


def with_listed(request: DedupRequest, table: Table) -> tuple[DedupRequest, list[str]]:
    """Return a request with the default finders that also lists crops, and a note if crops are not searched."""
    if CROP in request.thresholds or request.only_against or table.embedding_column is not None:
        return request, []
    missing = [column for column in FINDERS[CROP].needs if column not in table.schema.names]
    if missing:
        return request, [f"crops are not searched, as {table.path} has no column {' and '.join(missing)}"]
    if table.n_rows > MOST_ROWS:
        return request, [f"crops are not searched in more than {MOST_ROWS:,} rows: add --cropped"]
    return replace(request, listed_crop=threshold_of(CROP, None)), []


def cost_notes(request: DedupRequest, n: int) -> list[str]:
    """Return a note on the processor time that the search for crops among n rows takes; empty for a few seconds."""
    if CROP not in request.bounds:
        return []
    seconds = PAIR_SECONDS * n * min(n, MOST_ROWS) + ROW_SECONDS * n * len(request.views())
    without = ": --finder bytes --finder signature leaves it out" if request.listed_crop else ""
    return [] if seconds < LONG else [f"the search for crops takes about {seconds:,.0f} s of one core{without}"]


def list_crops(
    stars: Stars, request: DedupRequest, rows: Rows, order: Ints, among: Mask, protected: Mask, *, compared: Progress
) -> Mask:
    """Link kept rows that are crops of each other, in place; return a mask of the linked rows, shape (N,).

    Args:
        stars: the groups; linked rows get the preferred image as their owner.
        request: with the threshold.
        rows: of the table, with embeddings and signatures.
        order: rows in the order of keeping, shape (N,).
        among: mask of the rows to compare, shape (N,); dropped ones are ignored.
        protected: mask of rows that are not listed, shape (N,).
        compared: called with the numbers of done and all steps.
    """
    kept = among & (stars.finder < 0)
    if request.listed_crop is None or not kept.any():
        return np.zeros(len(kept), bool)
    search = listed_search(request.listed_crop, request, rows, kept)
    search.prepare(compared)
    crops = find_stars(order, {CROP: search}, kept.copy(), protected)
    listed = crops.finder >= 0
    crops.finder[listed] = len(stars.names)
    stars.names = (*stars.names, CROP)
    stars.copy(listed, crops)
    return listed


def listed_search(threshold: float, request: DedupRequest, rows: Rows, among: Mask) -> Search:
    """Return the search for crops to list among some rows, mask (N,), with the views of the request."""
    from curate.policies.dedup.finders.crops import NearParts, OnlyParts

    views, compared_rows = request.views(), replace(rows, ok=rows.ok & among)
    return OnlyParts(NearParts(compared_rows, threshold, views), compared_rows, views)


def listed_note(rows: Mask) -> list[str]:
    """Return a note on the crops listed, from a mask of rows; empty for none."""
    count = int(rows.sum())
    if not count:
        return []
    images = counted(count, "image is", "images are")
    return [
        f"{images} a part of another one, or contain one (crops, borders), and kept until reviewed: view them with "
        "curate review TABLE SUBSET; --cropped drops them"
    ]


def note_on_other(request: DedupRequest, against: Table | None) -> list[str]:
    """Return a note that crops of another table's images are not searched; empty if they are, or there is none."""
    if against is None or request.listed_crop is None:
        return []
    return [f"crops of images in {against.path} are not searched: add --cropped"]
