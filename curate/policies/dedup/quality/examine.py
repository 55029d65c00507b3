"""Quality of a deduplication: recall on planted copies, and sampled pairs for review."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, STATUS
from curate.policies.dedup.decide import Duplicates
from curate.policies.dedup.finders.links import in_chunks, mask_of
from curate.policies.dedup.finders.table import FINDERS, build
from curate.policies.dedup.grouping.stars import Stars
from curate.policies.dedup.listed import listed_search
from curate.policies.dedup.quality.audit import Drawn, draw_pairs, pair_of_each_row
from curate.policies.dedup.request import DedupRequest
from curate.tables.images import Images, drawn_rows
from curate.tables.keys import keys_at
from curate.tables.rows import Rows, collect
from curate.tables.table import Table
from scoring.arrays import Ints, Mask
from scoring.edits import EDITS
from scoring.errors import InputError
from scoring.metrics.proportions import wilson

if TYPE_CHECKING:
    from curate.policies.dedup.quality.planted import Planted

LEVEL = 0.95
# thresholds for near misses in an audit
LOOSER = {"hash": 4.0, "signature": -0.05, "crop": -0.02, "embedding": -0.03, "near-duplicate": -0.4}
AUDIT = "audit"  # pairs to judge
AUDIT_FILES = {AUDIT: "audit.csv"}
SPARE = 3  # oversampling, for unreadable images
LISTED = "listed"  # instead of a finder: copies found, or listed for review as crops
MOST_QUERIED = 20_000  # kept rows searched for near misses


class Hits(NamedTuple):
    """The copies that one finder detected.

    Attributes:
        finder: its name.
        copy: index of a copy, shape (L,), int64.
        row: matching row of the table, shape (L,), int64.
    """

    finder: str
    copy: Ints
    row: Ints


@dataclass(frozen=True)
class KindRecall:
    """The recall on one kind of edit.

    Attributes:
        name: of the edit.
        strength: description of the edit.
        n: number of copies.
        detected: number of copies found by any finder.
        low: Wilson's lower 95 % bound of the share found.
        high: the upper bound.
        by_finder: finder -> number of copies found; ``listed``: found or listed for review, if crops are listed.
    """

    name: str
    strength: str
    n: int
    detected: int
    low: float
    high: float
    by_finder: dict[str, int]


@dataclass(frozen=True)
class RecallReport:
    """The recall on planted copies.

    Attributes:
        kinds: one for each edit, in the order of ``EDITS``.
        overall: over all kinds; the interval accounts for the dependence of copies of one image.
        images: number of edited images.
        elsewhere: number of copies linked only with images outside of their original's group.
        failed: number of copies that could not be scored, which count as missed.
        unread: key -> why a sampled image could not be used.
        shrunk: number of images that were reduced before editing.
        seed: of the sample.
    """

    kinds: list[KindRecall]
    overall: KindRecall
    images: int
    elsewhere: int
    failed: int
    unread: dict[str, str]
    shrunk: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def count_recalled(
    planted: "Planted", hits: Sequence[Hits], kinds: Sequence[str], *, groups: Ints | None = None, seed: int = 0
) -> RecallReport:
    """Count which planted copies were found, by kind of edit and by finder.

    A copy is found if it is linked with a row of its original's group, so the search may exclude dropped rows.

    Args:
        planted: copies of I images, each edited in the same K ways: ``kinds``.
        hits: of each finder; a finder may occur several times; ``listed`` finds no copy.
        kinds: names of edits, in the order of each image's copies.
        groups: of each row of the table, shape (N,), int64; -1 for none.
        seed: for the report.
    """
    from curate.policies.dedup.quality.planted import EDIT, ORIGINAL

    original = planted.copies.column(ORIGINAL).to_numpy()
    shape = (len(planted.rows), len(kinds))
    if len(original) != shape[0] * shape[1] or planted.copies.column(EDIT).to_pylist() != list(kinds) * shape[0]:
        raise ValueError(f"expected {shape[1]} copies of each of {shape[0]} images in the order of the edits")
    by_finder: dict[str, Mask] = {}
    linked = np.zeros(len(original), bool)
    for finder, copy, row in hits:
        linked[copy] |= finder != LISTED
        right = row == original[copy]
        if groups is not None:
            right |= (groups[row] == groups[original[copy]]) & (groups[row] >= 0)
        mine = by_finder.setdefault(finder, np.zeros(len(original), bool))
        mine[copy[right]] = True
    listed = by_finder.pop(LISTED, None)
    is_linked = np.any(list(by_finder.values()), axis=0) if by_finder else np.zeros(len(original), bool)
    by_finder |= {} if listed is None else {LISTED: is_linked | listed}
    grid = is_linked.reshape(shape)
    finders = {name: mine.reshape(shape) for name, mine in by_finder.items()}
    each = [
        _kind(name, EDITS[name].strength, grid[:, [at]], {f: mine[:, [at]] for f, mine in finders.items()})
        for at, name in enumerate(kinds)
    ]
    statuses = Counter(planted.copies.column(STATUS).to_pylist())
    return RecallReport(
        kinds=each,
        overall=_kind("all", "every edit alike", grid, finders),
        images=shape[0],
        elsewhere=int((linked & ~is_linked).sum()),
        failed=sum(n for status, n in statuses.items() if status != "ok"),
        unread=planted.unread,
        shrunk=planted.shrunk,
        seed=seed,
    )


def _kind(name: str, strength: str, grid: Mask, finders: dict[str, Mask]) -> KindRecall:
    n, n_linked = grid.size, int(grid.sum())
    effective = effective_size(grid)
    interval = wilson(n_linked / n * effective, effective, LEVEL)
    by_finder = {finder: int(mine.sum()) for finder, mine in finders.items()}
    return KindRecall(name, strength, n, n_linked, interval.low, interval.high, by_finder)


def effective_size(grid: Mask) -> float:
    """Return the effective sample size of dependent copies.

    Results for copies of one image are dependent, so I x K copies count as fewer: as many as give the mean the observed
    variance between images, in [I, I x K].

    Args:
        grid: whether found, shape (I, K): images by kinds of edit.

    Source: the design effect of Kish 1965, "Survey Sampling", with images as clusters.

    >>> effective_size(np.array([[True, True], [False, False], [True, True]]))
    3.0
    """
    n_images, n_kinds = grid.shape
    share = float(grid.mean())
    spread = float(grid.mean(1).var(ddof=1)) / n_images if n_images > 1 else 0.0
    if n_kinds == 1 or share in (0.0, 1.0):
        return float(n_images)
    if spread == 0.0:
        return float(n_images * n_kinds) if n_images > 1 else 1.0
    return float(np.clip(share * (1 - share) / spread, n_images, n_images * n_kinds))


def planted_recall(
    table: Table,
    request: DedupRequest,
    *,
    duplicates: Duplicates,
    group: Ints,
    n: int,
    seed: int,
    model: str | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RecallReport:
    """Return the recall of the finders on edited copies of the table's images, by kind of edit.

    Args:
        table: the deduplicated table.
        request: with the finders.
        duplicates: the decisions; copies are searched among the kept rows and their originals.
        group: of each row, shape (N,), -1 for none.
        n: number of images to edit, >= 1.
        seed: of the sampled images and random edits.
        model: the model of the table, if it is not shipped.
        report: called with the numbers of finished and all images.

    Raises:
        InputError: if the images or the model are not available.
    """
    from curate.policies.dedup.quality.planted import Copier, plant  # runs the model
    from curate.retrieval.images import scorer_of

    runner, scoring = scorer_of(table, model=model)
    drawn = drawn_rows(table, SPARE * n, seed=seed)
    if not len(drawn):
        raise InputError(f"expected rows in {table.path} whose image was scored, got none; score the images first")
    originals = Images.of(table, drawn, source=request.source)
    copier = Copier(runner, scoring, seed)
    planted = plant(originals, drawn.tolist(), copier, n=n, kinds=list(EDITS), report=report)
    hits = list(_hits(table, request, duplicates, planted.copies))
    return count_recalled(planted, hits, list(EDITS), groups=group, seed=seed)


def _hits(table: Table, request: DedupRequest, duplicates: Duplicates, copies: pa.Table) -> Iterator[Hits]:
    """Yield the links of each finder with the copies."""
    from curate.policies.dedup.quality.planted import ORIGINAL

    crop, original = request.listed_crop, copies.column(ORIGINAL).to_numpy()
    facts = [name for name in request.facts if name in copies.schema.names]
    needs = replace(request, thresholds=request.bounds).needs_of_other(facts)
    names = [KEY, STATUS, *sorted(needs.representations), *needs.exact, *needs.names]
    copy_rows = collect(copies.to_batches(), copies.schema, copies.num_rows, needs, names, path=table.path)
    among = duplicates.rows.ok & ~duplicates.gone
    among[original] = True
    listing = {} if crop is None else {LISTED: listed_search(crop, request, duplicates.rows, among)}
    for name, search in {**duplicates.searches, **listing}.items():
        links = search.foreign(copy_rows if name == LISTED else replace(copy_rows, exact={}, names={}), among)
        links = links.take(copy_rows.ok[links.query])
        yield Hits(name, links.query, links.row)


def audit_pairs(table: Table, request: DedupRequest, *, duplicates: Duplicates, n: int, seed: int = 0) -> list[Drawn]:
    """Sample pairs for review: dropped ones, ones kept for review, and near misses.

    Near misses are kept rows that a looser threshold would drop; of more than 20,000 kept rows, a random 20,000 are
    searched, and their pairs weighted accordingly.

    Args:
        table: the deduplicated table.
        request: with the finders.
        duplicates: the decisions; rows with an owner in another table are excluded.
        n: sample size.
        seed: of the sample.

    Raises:
        InputError: if no finder with a threshold has a link or a near miss.
    """
    judged = {name: value for name, value in request.thresholds.items() if FINDERS[name].threshold is not None}
    if not judged:
        raise InputError(
            f"--audit needs a finder with a threshold to judge, got {', '.join(request.thresholds)}; "
            "equal bytes are the same"
        )
    rows, stars, outside = duplicates.rows, duplicates.stars, duplicates.outside
    kept_anyway = duplicates.listed | (outside & (duplicates.to_review | request.report_only))
    stay = np.flatnonzero(rows.ok & ((stars.finder < 0) | kept_anyway))
    queried = stay[np.argsort(rows.hashes[stay], kind="stable")[:MOST_QUERIED]]
    parts = [_dropped(stars, outside, judged), *_near_misses(rows, duplicates.order, stay, queried, request, judged)]
    finder = np.concatenate([part[0] for part in parts])
    a, b, similarity = (np.concatenate([part[i] for part in parts]) for i in (1, 2, 3))
    low, high = np.minimum(a, b), np.maximum(a, b)
    _, first = np.unique(np.stack([low, high], 1), axis=0, return_index=True)  # a pair counts for its first finder
    first = np.sort(first)
    pairs = pa.table(
        {
            "key_a": pa.array(keys_at(table, a[first]), pa.string()),
            "key_b": pa.array(keys_at(table, b[first]), pa.string()),
            "similarity": pa.array(similarity[first]),
            "finder": pa.array(finder[first], pa.string()),
        }
    )
    return draw_pairs(pairs, judged, n, seed=seed, looked_for=len(queried) / len(stay) if len(stay) else 1.0)


Part = tuple[NDArray[np.object_], Ints, Ints, NDArray[np.float32]]


def _dropped(stars: Stars, outside: Mask, judged: Mapping[str, float]) -> Part:
    names = np.array([*stars.names, ""], object)[stars.finder]
    gone = np.flatnonzero((stars.finder >= 0) & ~outside & np.isin(names, list(judged)))
    return names[gone], stars.owner[gone], gone, stars.similarity[gone].astype(np.float32)


def _near_misses(
    rows: Rows, order: Ints, stay: Ints, queried: Ints, request: DedupRequest, judged: Mapping[str, float]
) -> Iterator[Part]:
    among = mask_of(stay, len(rows))
    place = np.argsort(order)
    for name, threshold in judged.items():
        finder = FINDERS[name]
        looser = float(np.clip(threshold + LOOSER[name], finder.lowest, finder.highest))
        search = build(rows, {name: looser}, request.views())[name]
        for links in in_chunks(partial(search.links, among=among), queried):
            short = links.take(~finder.holds(links.similarity, threshold))
            pairs = pair_of_each_row(short, place, higher=finder.higher)
            yield np.full(len(pairs), name, object), pairs.query, pairs.row, pairs.similarity
