"""How good a deduplication is: planted copies, searched for with its own finders, and pairs for a reviewer to judge."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, STATUS
from curate.policies.dedup.decide import Duplicates
from curate.policies.dedup.finders.table import FINDERS, Options, build
from curate.policies.dedup.grouping.stars import Stars
from curate.policies.dedup.quality.audit import Drawn, Limit, draw_pairs, pair_of_each_row
from curate.policies.dedup.quality.recall import Hits, RecallReport, RecallSettings, estimate_recall
from curate.policies.dedup.request import CHAIN, DedupRequest
from curate.tables.keys import keys_at
from curate.tables.rows import Rows, collect
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import pixel_digest

# how far beyond the threshold an audit looks
LOOSER = {"hash": 4.0, "signature": -0.05, "crop": -0.02, "embedding": -0.03, "near-duplicate": -0.4}
FEWEST, QUERIED_AT_ONCE = 64, 4096  # queried rows at a time
MANY = 1_000_000  # pairs, from which fewer are queried at a time
AUDIT = "audit"  # pairs to judge
AUDIT_FILES = {AUDIT: "audit.csv"}
MOST_QUERIED = 20_000  # rows that are kept, of which the pairs just beyond the threshold are looked for


def planted_recall(
    table: Table,
    request: DedupRequest,
    *,
    duplicates: Duplicates,
    group: NDArray[np.int64],
    settings: RecallSettings,
    model: str | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RecallReport:
    """Return how many edited copies of the table's own images its finders find, by kind of edit.

    Args:
        table: that was deduplicated.
        request: what counts as the same.
        duplicates: as decided; copies are looked for among the rows that are kept, and their originals.
        group: of each row, shape (N,), -1 for none.
        settings: how many images, which edits.
        model: that scored the table, if it does not ship.
        report: called with images done, of all.
    """
    from curate.policies.dedup.quality.planted import ORIGINAL, SAME_PIXELS  # runs the model

    needs = request.needs_of_other()
    rows, searches, gone = duplicates.rows, duplicates.searches, duplicates.gone

    def search(copies: pa.Table) -> Iterator[Hits]:
        names = [KEY, STATUS, *sorted(needs.representations), *needs.numbers]
        copy_rows = collect(copies.to_batches(), copies.schema, copies.num_rows, needs, names, path=table.path)
        among = rows.ok & ~gone
        among[copies.column(ORIGINAL).to_numpy()] = True
        for name, each in searches.items():
            if name == "pixels":  # only candidates of the table have a digest, so each copy was compared with its own
                equal = np.flatnonzero(copies.column(SAME_PIXELS).to_numpy(zero_copy_only=False))
                yield Hits(name, equal, copies.column(ORIGINAL).to_numpy()[equal])
                continue
            links = each.foreign(copy_rows, among)
            links = links.take(copy_rows.ok[links.query])
            yield Hits(name, links.query, links.row)

    return estimate_recall(
        table,
        search,
        source=request.source,
        model=model,
        groups=group,
        settings=settings,
        digest=pixel_digest if "pixels" in searches else None,
        report=report,
    )


def audit_pairs(table: Table, request: DedupRequest, *, duplicates: Duplicates, n: int, seed: int = 0) -> list[Drawn]:
    """Draw pairs for a reviewer to judge: of what was dropped or waits for a review, and of what nearly was.

    What nearly was: rows that are kept and would go for another at a looser threshold; beyond 20,000 that stay, those
    among 20,000 that the hash of their keys draws, and each represents as many more.

    Args:
        table: that was deduplicated.
        request: what counts as the same.
        duplicates: as decided; rows whose owner is a row of another table are not judged.
        n: pairs to draw.
        seed: another seed draws others.

    Raises:
        InputError: if no finder with a threshold linked or nearly linked anything, or groups are chains, where a row
            that goes may lie short of the threshold.
    """
    if request.groups == CHAIN:
        raise InputError("--audit judges a threshold, which the ends of chains do not reach; use --groups star")
    judged = {name: value for name, value in request.thresholds.items() if FINDERS[name].threshold is not None}
    if not judged:
        raise InputError(
            f"--audit needs a finder with a threshold to judge, got {', '.join(request.thresholds)}; "
            "equal bytes and pixels are the same"
        )
    rows, stars, outside = duplicates.rows, duplicates.stars, duplicates.outside
    stay = np.flatnonzero(rows.ok & ((stars.finder < 0) | (outside & (duplicates.to_review | request.report_only))))
    queried = stay[np.argsort(rows.hashes[stay], kind="stable")[:MOST_QUERIED]]
    parts = [_dropped(stars, outside, judged), *_nearly(rows, duplicates.order, stay, queried, request, judged)]
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
    limits = {name: Limit(value, FINDERS[name].higher) for name, value in judged.items()}
    return draw_pairs(pairs, limits, n, seed=seed, looked_for=len(queried) / len(stay) if len(stay) else 1.0)


Part = tuple[NDArray[np.object_], NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def _dropped(stars: Stars, outside: NDArray[np.bool_], judged: Mapping[str, float]) -> Part:
    names = np.array([*stars.names, ""], object)[stars.finder]
    gone = np.flatnonzero((stars.finder >= 0) & ~outside & np.isin(names, list(judged)))
    return names[gone], stars.owner[gone], gone, stars.similarity[gone].astype(np.float32)


def _nearly(
    rows: Rows,
    order: NDArray[np.int64],
    stay: NDArray[np.int64],
    queried: NDArray[np.int64],
    request: DedupRequest,
    judged: Mapping[str, float],
) -> Iterator[Part]:
    among = np.zeros(len(rows), bool)
    among[stay] = True
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows))
    for name, threshold in judged.items():
        finder = FINDERS[name]
        looser = float(np.clip(threshold + LOOSER[name], finder.lowest, finder.highest))
        search = build(rows, {name: looser}, Options(request.views(), request.kappa))[name]
        at, size = 0, FEWEST
        while at < len(queried):
            links = search.links(queried[at : at + size], among)
            at += size
            size = max(size // 4, FEWEST) if len(links) > MANY else min(2 * size, QUERIED_AT_ONCE)
            links = links.take(~finder.holds(links.similarity, threshold))
            links = links.take(pair_of_each_row(links.query, links.row, links.similarity, place, higher=finder.higher))
            yield np.full(len(links), name, object), links.query, links.row, links.similarity
