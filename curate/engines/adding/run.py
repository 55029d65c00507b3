"""Adding to a table: its source now, compared; what is new or changed, scored; and the new table instead of the old."""

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, MTIME, N_BYTES, STATUS, describe_all
from curate.counted import counted
from curate.engines.adding.compare import UNKNOWN, Comparison, Reading, compare
from curate.engines.adding.fits import fit_path, frozen_fit, is_of_scoring, judged, words_on
from curate.engines.adding.merge import Merged, Order
from curate.engines.adding.settings import refuse_contradiction
from curate.engines.contract import Engine
from curate.engines.dataset_scores import compute_dataset_scores
from curate.engines.finished import clear
from curate.engines.job import THREADS, Job, Opened, Source, corrupter_of, model_threads, open_all
from curate.engines.journal import JOURNAL, RUN, Part, WorkFolder, append_line, part_path, require_local
from curate.engines.log import RunLog, logged_parts
from curate.engines.output import write_joined
from curate.engines.result import ScoreResult
from curate.engines.run import ScoreProgress, ScoreRun
from curate.engines.settings import ScoreSettings
from curate.engines.source import classes_of, notes_on, other_input
from curate.engines.source_rows import ManifestRows, in_shards
from curate.engines.store_work import work_of
from curate.engines.white import white_notes
from curate.manifest import Manifest, SourceOptions
from curate.manifest.store_path import AnyPath
from curate.tables.classes import CLASSES
from curate.tables.fits import JUDGED
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError
from scoring.relative.columns import CLASS, FITTED
from scoring.relative.columns import COLUMNS as DATASET_COLUMNS
from scoring.relative.model import far_from
from scoring.scorers import columns_of

ADDITIONS = "additions"  # in the metadata of a table that has grown
GROWN = "grown.parquet"  # in the folder of the run: the table before its fitted scores


@dataclass(frozen=True)
class Request:
    """What is to be added, to which table.

    Attributes:
        source: as ``open_manifest`` takes it.
        out: the table.
        table: the same, open.
        model: of the table.
        options: by which its source was read.
        workers: decoding threads.
        statuses: of the rows that are read again.
        check: compare every known image by its bytes.
        refit: fit the scores of the dataset again, to all rows.
    """

    source: Source
    out: AnyPath
    table: Table
    model: str | Path
    options: SourceOptions
    workers: int | None
    statuses: frozenset[str]
    check: bool = False
    refit: bool = False


@dataclass
class _State:
    """An addition under way."""

    request: Request
    opened: Opened
    settings: ScoreSettings
    fingerprint: dict[str, Any]
    comparison: Comparison
    work: WorkFolder
    releases: dict[str, str]
    notes: list[str] = field(default_factory=list)


def add_rows(
    request: Request,
    engine: Engine,
    events: RunLog,
    report: Callable[[ScoreProgress], None],
    announce: Callable[[str], None],
) -> ScoreResult:
    """Score what is new or changed in the source of a table, and write the table again with it.

    Args:
        request: what is to be added.
        engine: at the ready.
        events: the log of the run.
        report: called with the progress.
        announce: called with a line on what is about to happen.

    Raises:
        InputError: for a source or an option that is not the table's; the table is as it was then.
    """
    if request.out.suffix != ".parquet" and not isinstance(request.out, Path):
        raise InputError(
            f"--add takes NAME.parquet in a store, or a table of this machine, got the folder {request.out}: score the "
            "new images to another --out"
        )
    opened = open_all(request.source, request.options, request.model, engine.settings, elsewhere=engine.elsewhere)
    for line in [opened.manifest.description, *notes_on(opened.manifest, request.options)]:
        announce(line)
    settings, table = engine.settings, request.table
    fingerprint = opened.fingerprint(settings)
    releases = refuse_contradiction(table, fingerprint)
    _refuse_columns(table, opened.manifest)
    _refuse_refit(request, opened)
    preprocessing = opened.runner.model.spec.preprocessing
    reading = Reading(preprocessing, settings, request.workers, request.statuses, request.check)
    comparison = compare(table, opened.manifest, reading, announce)
    announce(comparison.words())
    state = _State(
        request, opened, settings, fingerprint, comparison, work_of(request.out), releases, list(comparison.notes)
    )
    if not comparison.differs and not request.refit:
        return _nothing(state, announce)
    started = time.monotonic()
    with state.work:
        _refuse_moved(table)
        run = _score(state, engine, events, report, announce)
        statuses = _publish(state, run, announce)
    return _result(state, run, statuses, time.monotonic() - started)


def _refuse_columns(table: Table, manifest: Manifest) -> None:
    """Refuse a source that was read in another way than when the table was scored."""
    lacking = [name for name in manifest.schema.names if name not in table.schema.names]
    if lacking or ("label" in table.schema.names) != ("label" in manifest.schema.names):
        how = other_input(table, manifest) if table.n_rows == manifest.n_rows else ""
        names = ", ".join(map(repr, lacking)) or "'label'"
        raise InputError(
            f"the source has other columns than when {table.path} was scored ({how or names}): give it as it was "
            "then, with --label-from-folder, --key or --path-column, or score to another --out"
        )


def _refuse_refit(request: Request, opened: Opened) -> None:
    if not request.refit:
        return
    table = request.table
    if request.out.suffix != ".parquet" or not (opened.fits or opened.of_table):
        raise InputError(f"{table.path} has no fitted scores that --refit could make again; leave it out")
    if CLASS in table.schema.names or not is_of_scoring(table.metadata.get("fit")):
        raise InputError(
            f"{table.path} was fitted by curate fit: leave out --refit, and run curate fit again on the table that has "
            "grown"
        )


def _refuse_moved(table: Table) -> None:
    """Refuse to add to a table that another process replaced since it was opened."""
    now = open_table(table.path)
    if now.file_metadata != table.file_metadata or now.n_rows != table.n_rows:
        raise InputError(f"{table.path} was written by another process meanwhile; repeat the command")


def _nothing(state: _State, announce: Callable[[str], None]) -> ScoreResult:
    """Return the result where nothing is new; what a run left that was cut off at its very end is removed."""
    out, work, table = state.request.out, state.work, state.request.table
    clear(work, out, lambda of: bool(of.get("add")) or of == table.metadata["settings"])
    announce(f"nothing new: {out} is left as it is")
    statuses = Counter[str]()
    for batch in table.batches([STATUS]):
        statuses.update(batch.column(0).to_pylist())
    device, precision = state.fingerprint["device"], state.fingerprint["precision"]
    model = state.fingerprint["model"]
    return ScoreResult(out, table.n_rows, dict(statuses), table.n_rows, 0.0, device, precision, model, state.notes)


def _score(
    state: _State,
    engine: Engine,
    events: RunLog,
    report: Callable[[ScoreProgress], None],
    announce: Callable[[str], None],
) -> ScoreRun:
    """Score what is to do, but for the shards that an earlier run of the same addition finished."""
    request, opened, work, comparison = state.request, state.opened, state.work, state.comparison
    work.sweep(request.out)
    has_times = bool((comparison.times != UNKNOWN).any())
    fingerprint = {**state.fingerprint, "input": "by row" if has_times else state.fingerprint["input"], "add": True}
    noted = {name: request.table.metadata[name] for name in ("model", THREADS) if name in request.table.metadata}
    parts, metadata = work.begin(fingerprint, {"kind": "scores", **noted, "settings": state.fingerprint})
    work.files(parts)
    kept = _kept_shards(state, parts)
    rows = in_shards(comparison.todo, kept, state.settings.shard_size)
    parts = {shard: parts[shard] for shard in kept}
    step = opened.runner.step = min([opened.runner.step, *(part.step for part in parts.values())])
    job = Job(
        *(request.source, request.options, request.model, state.settings, request.workers, work.folder),
        *(state.fingerprint, metadata, step, opened.of_rows(rows), rows),
    )
    run = ScoreRun(job, work, parts, report, logged_parts(events, len(rows), parts), announce)
    with model_threads(metadata):
        if run.todo():
            engine.score(run)
    run.check_complete()
    return run


def _kept_shards(state: _State, parts: Mapping[int, Part]) -> dict[int, NDArray[np.int64]]:
    """Return the finished shards whose rows are all still to be scored, of files that are as they were: shard -> rows.

    The source may have grown since they were scored: then the other rows are divided among the other shards.
    """
    todo, size = state.comparison.todo, state.settings.shard_size
    if not parts or not len(todo):
        return {}
    keys = ManifestRows(state.opened.manifest, todo).rows(0, len(todo)).column(KEY).combine_chunks()
    kept, used = {}, np.zeros(len(todo), bool)
    for shard, part in sorted(parts.items()):
        if part.rows != min(size, len(todo) - shard * size):
            continue
        rows = open_table(state.work.part(shard)).read([KEY, N_BYTES, MTIME])
        at = pc.fill_null(pc.index_in(rows[KEY], value_set=keys), -1).to_numpy()
        times, sizes = (pc.fill_null(rows[name], UNKNOWN).to_numpy() for name in (MTIME, N_BYTES))
        places = todo[at.clip(0)]
        same = (state.comparison.times[places] == times) & (
            (sizes == UNKNOWN) | (state.comparison.sizes[places] == UNKNOWN)
        )
        same |= (state.comparison.times[places] == times) & (state.comparison.sizes[places] == sizes)
        if (at >= 0).all() and same.all() and not used[at].any():
            kept[shard], used[at] = places, True
    return kept


def _publish(state: _State, run: ScoreRun, announce: Callable[[str], None]) -> Counter[str]:
    """Write the new table instead of the old, and return the statuses of its rows."""
    request, work = state.request, state.work
    rows = run.job.rows if run.job.rows is not None else np.zeros(0, np.int64)
    part = Table(work.folder, work.files(run.parts)) if run.parts else None
    order = Order.of(state.comparison, rows)
    columns: dict[str, pa.Array] = {}
    fitted = [
        name for name in (*DATASET_COLUMNS, *columns_of(state.opened.of_table)) if name in request.table.schema.names
    ]
    if not request.refit:
        columns = _judged(state, part, announce)
    merged = Merged(
        request.table, part, columns, order, state.comparison.times, without=fitted if request.refit else ()
    )
    if part is not None:
        state.notes += words_on(merged.lacking, part, bool(columns), counted(part.n_rows, "row"))
    metadata = _metadata(state, merged.schema, len(columns) and part.n_rows if part is not None else 0)
    statuses = Counter[str]()
    if request.out.suffix != ".parquet":
        _write_folder(state, merged, metadata, statuses)
    else:
        target = work.target(request.out)
        if request.refit:
            _write_refitted(state, merged, metadata, order, statuses, target, announce)
        else:
            _write(target, merged, metadata, statuses)
        work.deliver(target, request.out, overwrite=True)
    work.remove()
    if request.refit and isinstance(request.out, Path):
        require_local(fit_path(request.out)).unlink(missing_ok=True)
    return statuses


def _judged(state: _State, part: Table | None, announce: Callable[[str], None]) -> dict[str, pa.Array]:
    """Return the columns of the fit of the table for what was scored; it is stored before any row is dropped."""
    table = state.request.table
    if FITTED not in table.schema.names or state.opened.fit is not None or not (part or state.comparison.n_gone):
        return {}
    announce("judging new rows by the fit of the table")
    fit = frozen_fit(table)
    if fit is None or part is None:
        return {}
    columns, outside = judged(fit, part)
    if far := far_from(outside, part.n_rows):
        state.notes.append(far)
    return columns


def _metadata(state: _State, schema: pa.Schema, n_judged: int) -> dict[str, Any]:
    """Return the metadata of the new table: as before, with the input as it is now and a note of what was added."""
    before, comparison = state.request.table.metadata, state.comparison
    note = {
        "new": comparison.n_new,
        "changed": comparison.n_changed,
        "again": comparison.n_again,
        "gone": comparison.n_gone,
    }
    if state.releases:
        note["releases"] = state.releases  # type: ignore[assignment]
    additions = before.get(ADDITIONS)
    metadata = {
        **before,
        "settings": {**before["settings"], "input": state.fingerprint["input"]},
        "source": state.opened.manifest.description,
        CLASSES: _all_classes(before.get(CLASSES), state),
        ADDITIONS: [*(additions if isinstance(additions, list) else []), note],
    }
    recorded = before.get("columns")
    described = {**describe_all(schema.names), **(recorded if isinstance(recorded, dict) else {})}
    metadata["columns"] = {name: described[name] for name in schema.names}
    if state.request.refit:
        metadata.pop("fit", None)
    elif n_judged and isinstance(before.get("fit"), dict):
        metadata["fit"] = {**before["fit"], JUDGED: before["fit"].get(JUDGED, 0) + n_judged}
    return metadata


def _all_classes(before: object, state: _State) -> dict[str, list[str]]:
    """Return the classes of a table with those that are new at the end, so that no class gets another number."""
    known = {name: list(names) for name, names in before.items()} if isinstance(before, dict) else {}
    for name, names in classes_of(state.opened.manifest).items():
        before_names = set(known.get(name, ()))
        new = [each for each in names if each not in before_names]
        if new and name in known:
            state.notes.append(
                f"{name}: {counted(len(new), 'new class', 'new classes')} as the last: {', '.join(new[:5])}"
            )
        known[name] = [*known.get(name, []), *new]
    return known


def _write(target: Path, merged: Merged, metadata: dict[str, Any], statuses: Counter[str]) -> None:
    with TableWriter(target, merged.schema, metadata, overwrite=True) as writer:
        for rows in merged.batches():
            statuses.update(rows.column(STATUS).to_pylist())
            writer.write(rows)


def _write_refitted(
    state: _State,
    merged: Merged,
    metadata: dict[str, Any],
    order: Order,
    statuses: Counter[str],
    target: Path,
    announce: Callable[[str], None],
) -> None:
    """Write the table with scores that are fitted to all its rows."""
    grown, opened = state.work.folder / GROWN, state.opened
    _write(grown, merged, metadata, statuses)
    corrupter = corrupter_of(opened, state.settings, state.request.workers, order.source) if opened.fits else None
    of_dataset = compute_dataset_scores(
        [grown], opened.of_table, fit=opened.fits, corrupter=corrupter, announce=announce
    )
    write_joined([grown], target, of_dataset, overwrite=True)
    state.notes += of_dataset.notes


def _write_folder(state: _State, merged: Merged, metadata: dict[str, Any], statuses: Counter[str]) -> None:
    """Write the table as a folder of parts, which takes the name of the old one when it is whole."""
    with AtomicFolder(require_local(state.request.out), overwrite=True) as folder:
        place = folder.temporary
        text = json.dumps({"fingerprint": metadata["settings"], "metadata": metadata}, indent=1)
        (place / RUN).write_text(text)
        for shard, rows in enumerate(merged.batches(state.settings.shard_size)):
            counts = Counter(rows.column(STATUS).to_pylist())
            with TableWriter(part_path(place, shard), merged.schema, metadata) as writer:
                writer.write(rows)
            step = state.opened.batch_size
            append_line(
                place / JOURNAL,
                asdict(Part(shard, rows.num_rows, writer.file.n_bytes, writer.file.sha256, dict(counts), step)),
            )
            statuses.update(counts)


def _result(state: _State, run: ScoreRun, statuses: Counter[str], seconds: float) -> ScoreResult:
    deep = [part for part in run.parts.values() if part.deep]
    white = state.settings.white
    if white is not None:
        state.notes += white_notes(
            sum(part.deep for part in deep), max((part.highest for part in deep), default=0), white
        )
    n, n_scored = statuses.total(), len(state.comparison.todo)
    device, precision, model = str(state.opened.device), state.opened.runner.precision, state.opened.card["digest"]
    return ScoreResult(
        state.request.out, n, dict(statuses), n - n_scored, seconds, device, precision, model, state.notes
    )
