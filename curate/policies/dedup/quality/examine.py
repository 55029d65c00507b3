"""Quality of a deduplication: recall on planted copies with its own finders, and pairs for review."""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, STATUS
from curate.policies.dedup.decide import Duplicates
from curate.policies.dedup.finders.links import chunks
from curate.policies.dedup.finders.table import FINDERS, build
from curate.policies.dedup.grouping.stars import Stars
from curate.policies.dedup.quality.audit import Drawn, draw_pairs, pair_of_each_row
from curate.policies.dedup.quality.recall import Hits, RecallReport, count_recalled
from curate.policies.dedup.request import DedupRequest
from curate.tables.images import Images, drawn_rows
from curate.tables.keys import keys_at
from curate.tables.rows import Rows, collect
from curate.tables.table import Table
from scoring.edits import EDITS
from scoring.errors import InputError

# how far beyond the threshold an audit looks
LOOSER = {"hash": 4.0, "signature": -0.05, "crop": -0.02, "embedding": -0.03, "near-duplicate": -0.4}
AUDIT = "audit"  # pairs to judge
AUDIT_FILES = {AUDIT: "audit.csv"}
SPARE = 3  # times as many rows are drawn as wanted, for images that cannot be read
MOST_QUERIED = 20_000  # rows that are kept, of which the pairs just beyond the threshold are looked for


def planted_recall(
    table: Table,
    request: DedupRequest,
    *,
    duplicates: Duplicates,
    group: NDArray[np.int64],
    n: int,
    seed: int,
    model: str | None = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RecallReport:
    """Return the recall of the finders on edited copies of the table's images, by kind of edit.

    Args:
        table: that was deduplicated.
        request: what counts as the same.
        duplicates: as decided; copies are looked for among the rows that are kept, and their originals.
        group: of each row, shape (N,), -1 for none.
        n: images that are edited, >= 1.
        seed: of the images that are drawn, and of what is random in the edits.
        model: that scored the table, if it does not ship.
        report: called with images done, of all.

    Raises:
        InputError: if the images or the model is not available, or no image can be read.
    """
    from curate.policies.dedup.quality.planted import Copier, plant  # runs the model
    from curate.retrieval.scorer import scorer_of

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
    """Yield what each finder links copies with."""
    from curate.policies.dedup.quality.planted import ORIGINAL

    needs, original = request.needs_of_other(), copies.column(ORIGINAL).to_numpy()
    names = [KEY, STATUS, *sorted(needs.representations)]
    copy_rows = collect(copies.to_batches(), copies.schema, copies.num_rows, needs, names, path=table.path)
    among = duplicates.rows.ok & ~duplicates.gone
    among[original] = True
    for name, search in duplicates.searches.items():
        links = search.foreign(copy_rows, among)
        links = links.take(copy_rows.ok[links.query])
        yield Hits(name, links.query, links.row)


def audit_pairs(table: Table, request: DedupRequest, *, duplicates: Duplicates, n: int, seed: int = 0) -> list[Drawn]:
    """Draw pairs for a reviewer to judge: dropped ones, ones kept for review, and near misses.

    What nearly was: rows that are kept and would go for another at a looser threshold; beyond 20,000 that stay, those
    among 20,000 that the hash of their keys draws, and each represents as many more.

    Args:
        table: that was deduplicated.
        request: what counts as the same.
        duplicates: as decided; rows whose owner is a row of another table are not judged.
        n: pairs to draw.
        seed: another seed draws others.

    Raises:
        InputError: if no finder with a threshold linked or nearly linked anything.
    """
    judged = {name: value for name, value in request.thresholds.items() if FINDERS[name].threshold is not None}
    if not judged:
        raise InputError(
            f"--audit needs a finder with a threshold to judge, got {', '.join(request.thresholds)}; "
            "equal bytes are the same"
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
    return draw_pairs(pairs, judged, n, seed=seed, looked_for=len(queried) / len(stay) if len(stay) else 1.0)


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
    place = np.argsort(order)
    for name, threshold in judged.items():
        finder = FINDERS[name]
        looser = float(np.clip(threshold + LOOSER[name], finder.lowest, finder.highest))
        search = build(rows, {name: looser}, request.views())[name]
        for some in chunks(queried):
            links = search.links(some.rows, among)
            some.n_pairs = len(links)
            links = links.take(~finder.holds(links.similarity, threshold))
            links = pair_of_each_row(links, place, higher=finder.higher)
            yield np.full(len(links), name, object), links.query, links.row, links.similarity
