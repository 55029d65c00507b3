"""A complete table: whether it belongs to this run, and which failed rows could succeed now."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate.columns import OK, STATUS
from curate.counted import counted
from curate.engines.gone import LOOKED_AT, place_of
from curate.engines.job import write_part
from curate.engines.journal import Part, WorkFolder
from curate.engines.out_path import holds_scores
from curate.engines.settings import PASSING, ScoreSettings, difference, refuse_difference
from curate.engines.setup import RunSetup
from curate.engines.shard import score_schema, spans
from curate.engines.source import other_input
from curate.manifest.ahead import ahead
from curate.manifest.contract import Manifest, Reader, ReadError
from curate.manifest.layout import conformed
from curate.manifest.store_path import StorePath
from curate.tables.images import readers_in_order
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.images import Preprocessing, decode
from scoring.images.budget import BODIES


def finished_table(out: Path | StorePath, fingerprint: dict[str, Any], manifest: Manifest) -> Table:
    """Return the table at an output, if its run had the same fingerprint, ignoring files that were absent then.

    Raises:
        InputError: if it is not a table of scores, or another run's.
    """
    table = table_of_scores(out)
    before = table.metadata["settings"]
    if (difference(before, fingerprint) or ("",))[0] == "input" and table.n_rows == manifest.n_rows:
        absent = frozenset(failed_rows(table, {"missing"}).tolist())
        if absent and manifest.digest_without(absent) == before["input"]:
            before = {**before, "input": fingerprint["input"]}
    refuse_difference(str(out), before, fingerprint, input_differs=other_input(table, manifest), may_grow=True)
    return table


def table_of_scores(out: Path | StorePath) -> Table:
    """Return the table at an output; InputError if it is not a table of scores."""
    if isinstance(out, Path) and out.is_dir() and not any(out.iterdir()):
        raise InputError(
            f"{out} is an empty folder; remove it, or choose another --out: curate makes the folder itself"
        )
    if not holds_scores(out):
        raise InputError(f"{out} exists and is not a table of scores; it was not changed: choose another --out")
    return open_table(out)


def clear(work: WorkFolder, is_over: Callable[[dict[str, Any]], bool], *, locked: bool = False) -> bool:
    """Remove leftovers of a run interrupted after the table was renamed; return False if an unfinished run's are kept.

    ``is_over`` returns whether a run of a fingerprint has nothing left to do; ``locked``, whether this process holds
    the folder ``work``.
    """
    run = work.run()
    if run is not None and not is_over(run["fingerprint"]):
        return False
    if locked or work.exists() or work.leftovers():
        with nullcontext() if locked else work:
            work.sweep()
            work.remove()
    return True


def failed_rows(table: Table, statuses: Iterable[str]) -> np.ndarray:
    """Return the numbers of the rows with one of the given statuses, ascending."""
    column = table.read([STATUS]).column(STATUS)
    return np.flatnonzero(np.isin(column.to_numpy(), list(statuses)))


def statuses_of(table: Table, rows: np.ndarray) -> dict[int, str]:
    """Return the status of some rows of a complete table by row."""
    return dict(zip(rows.tolist(), table.take(rows, [STATUS]).column(STATUS).to_pylist(), strict=True))


def perhaps_gone(work: WorkFolder, parts: Mapping[int, Part], shard_rows: int) -> dict[int, str]:
    """Return status by row, for rows of committed parts that may have failed because their source was unavailable.

    They belong to a place, such as a host, of which the part has no readable image. One row per place, and few per
    part, suffice to show whether the place is back.
    """
    doubtful = {shard: part for shard, part in sorted(parts.items()) if not PASSING.isdisjoint(part.statuses)}
    statuses: dict[int, str] = {}
    for shard, path in zip(doubtful, work.files(doubtful), strict=True):
        table = pq.read_table(path, columns=["uri", STATUS], partitioning=None).to_pydict()
        rows = list(enumerate(zip(map(place_of, table["uri"]), table[STATUS], strict=True), shard * shard_rows))
        reachable = {place for _, (place, status) in rows if status == OK}
        failed = ((row, of) for row, of in reversed(rows) if of[1] in PASSING and of[0] not in reachable)
        first = {place: (row, status) for row, (place, status) in failed}
        statuses.update(sorted(first.values())[:LOOKED_AT])
    return statuses


def changed_rows(
    setup: RunSetup, rows: NDArray[np.int64], before: Sequence[str], statuses: Iterable[str]
) -> NDArray[np.bool_]:
    """Return which failed rows of a source, increasing, with statuses ``before``, would not fail in the same way now.

    Shape (N,); ``statuses`` are reported as being read again.
    """
    options, size = setup.request.options, setup.settings.shard_size
    manifest = setup.opened.manifest
    changed = np.zeros(len(rows), bool)
    if not len(rows):
        return changed
    options.announce(f"reading {counted(len(rows), 'row')} again that failed before ({', '.join(sorted(statuses))})")
    preprocessing = setup.opened.runner.model.spec.preprocessing
    look = partial(status_now, preprocessing=preprocessing, settings=setup.settings)
    with ThreadPoolExecutor(options.workers) as pool:
        for first in range(0, len(rows), size):  # a bounded number of futures
            some = slice(first, first + size)
            now = pool.map(look, ahead(readers_in_order(manifest, rows[some]), manifest.connections))
            changed[some] = [was != is_ for was, is_ in zip(before[some], now, strict=True)]
    return changed


def shards_again(setup: RunSetup, failed: Mapping[int, str]) -> set[int]:
    """Return the shards with a failed row that would not fail in the same way now.

    ``failed`` has the status by row, increasing.
    """
    rows = np.fromiter(failed, np.int64, len(failed))
    changed = rows[changed_rows(setup, rows, list(failed.values()), set(failed.values()))]
    shards = set((changed // setup.settings.shard_size).tolist())
    if shards:
        setup.request.options.announce(
            f"{counted(len(changed), 'row')} can be read now: {counted(len(shards), 'shard')} of rows scored again"
        )
    return shards


@BODIES.image()
def status_now(read: Reader, *, preprocessing: Preprocessing, settings: ScoreSettings) -> str:
    """Return the status of reading and decoding an image now."""
    try:
        data = read()
    except ReadError as error:
        return error.status
    return decode(
        data, preprocessing, settings.decode_options(), sha256=hashlib.sha256(data).hexdigest(), supervised=True
    ).status


def commit_rest(
    setup: RunSetup, table: Table, again: set[int], parts: Mapping[int, Part], metadata: dict[str, Any]
) -> dict[int, Part]:
    """Commit the shards of a complete table that need no scoring; return everything committed.

    Args:
        setup: of the run, which holds its folder and has begun.
        table: complete.
        again: shards to score again.
        parts: committed already.
        metadata: of a part.
    """
    opened, settings, done = setup.opened, setup.settings, dict(parts)
    schema = score_schema(opened.manifest.schema, opened.runner, settings, opened.fit)
    for span in spans(table.n_rows, settings.shard_size):
        if span.index not in again and span.index not in done:
            numbers = np.arange(span.start, span.stop)
            rows = conformed(table.take(numbers, schema.names), schema).combine_chunks()
            path = setup.work.part(span.index)
            part = write_part(path, span.index, rows, schema, metadata, opened.batch_size)
            setup.work.commit(part)
            done[span.index] = part
    return done
