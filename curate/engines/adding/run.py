"""Adding to a table: compare it with its source, score new and changed images, and replace the table."""

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import CUSTOM, KEY, MTIME, N_BYTES, OK, STATUS, URI, describe, describe_all
from curate.counted import counted
from curate.engines.adding.compare import UNKNOWN, Comparison, compare, differ
from curate.engines.adding.fits import fit_path, frozen_fit, is_of_scoring, judged, words_on
from curate.engines.adding.merge import Merged, Order
from curate.engines.adding.settings import LABELLING, is_labelled_first, refuse_contradiction
from curate.engines.contract import Engine
from curate.engines.finished import clear
from curate.engines.job import THREADS, open_all, write_part
from curate.engines.journal import JOURNAL, RUN, Part, append_line, part_path, require_local
from curate.engines.log import RunLog
from curate.engines.output import compute_dataset_scores, write_joined
from curate.engines.result import ScoreRequest, ScoreResult
from curate.engines.run import ScoreRun
from curate.engines.setup import RunSetup
from curate.engines.source import ManifestRows, classes_of, in_shards, notes_on
from curate.engines.store_work import work_of
from curate.engines.white import white_notes
from curate.tables.classes import CLASSES
from curate.tables.provenance import JUDGED, REQUEST
from curate.tables.table import Table, open_table
from curate.tables.writer import TableWriter
from curate.version import __version__
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError
from scoring.images.deep import WHITE
from scoring.relative.columns import CLASS, FITTED
from scoring.relative.columns import COLUMNS as DATASET_COLUMNS
from scoring.relative.model import far_from
from scoring.scorers import columns_of

ADDITIONS = "additions"  # metadata key of an extended table
GROWN = "grown.parquet"  # in the folder of the run: the table without fitted scores


@dataclass(frozen=True)
class _State(RunSetup):
    """The state of an addition."""

    table: Table
    comparison: Comparison
    releases: dict[str, str]
    notes: list[str]


def add_rows(request: ScoreRequest, table: Table, engine: Engine, events: RunLog) -> ScoreResult:
    """Score new and changed images of a table's source, and write the table again with them.

    Raises:
        InputError: for a source or an option that does not match the table's, which is then unchanged.
    """
    if request.out.suffix != ".parquet" and not isinstance(request.out, Path):
        raise InputError(
            f"--add takes NAME.parquet in a store, or a table on this machine, got the folder {request.out}: score the "
            "new images to another --out"
        )
    options, settings = request.options, engine.settings
    opened = open_all(options.source, request.reading, request.model, settings, elsewhere=engine.elsewhere)
    for line in [opened.manifest.description, *notes_on(opened.manifest, request.reading)]:
        options.announce(line)
    setup = RunSetup(request, opened, settings, opened.fingerprint(settings), work_of(request.out))
    releases = refuse_contradiction(table, setup.fingerprint)
    for line in _other_columns(table, opened.manifest.schema.names):
        options.announce(line)
    _refuse_refit(table, setup)
    comparison = compare(table, setup)
    options.announce(comparison.words())
    never_fitted = _was_never_fitted(table, setup)
    if comparison.score.any() and never_fitted:
        options = replace(options, refit=True)
        setup = replace(setup, request=replace(request, options=options))
    state = _State(**vars(setup), table=table, comparison=comparison, releases=releases, notes=[*comparison.notes])
    if not comparison.differs and (not options.refit or never_fitted or _is_fitted_to_all(table)):
        # leftovers of a run interrupted at its very end are removed
        clear(state.work, lambda of: bool(of.get("add")) or of == table.metadata["settings"])
        options.announce(f"nothing new: {request.out} is unchanged")
        return state.nothing_done(table, state.notes)
    started = time.monotonic()
    with state.work:
        now = open_table(table.path)
        if now.file_metadata != table.file_metadata or now.n_rows != table.n_rows:
            raise InputError(f"{table.path} was written by another process in the meantime; repeat the command")
        run = _score(state, engine, events)
        statuses = _publish(state, run)
    state.notes.extend(white_notes(run.parts.values(), settings.white or WHITE))
    resumed = statuses.total() - len(comparison.todo)
    return state.result(statuses, resumed, time.monotonic() - started, state.notes)


def _other_columns(table: Table, now: Sequence[str]) -> list[str]:
    """Return a line on user columns that are new in the source of a table, and on missing ones."""
    new = [name for name in now if name not in table.schema.names]
    lacking = [name for name in table.stored.schema.names if describe(name) is CUSTOM and name not in now]
    lines = [f"new in the source, so the table gets them: {', '.join(new)}"] if new else []
    if lacking:
        lines.append(f"not in the source, so known rows keep them and new rows have none: {', '.join(lacking)}")
    return lines


def _was_never_fitted(table: Table, setup: RunSetup) -> bool:
    """Return whether a table lacks fitted scores because it had too few images; decisions then ignore them."""
    return (
        setup.opened.fits
        and setup.request.out.suffix == ".parquet"
        and not {FITTED, CLASS} & {*table.schema.names}
        and is_of_scoring(table.metadata.get("fit"))
    )


def _is_fitted_to_all(table: Table) -> bool:
    """Return whether this version fitted the scores of a table to exactly its present rows."""
    fit = table.metadata.get("fit")
    if not isinstance(fit, dict) or JUDGED in fit or table.metadata.get("curate") != __version__:
        return False
    columns = table.read([STATUS, FITTED])
    n_fitted = len(columns) - columns[FITTED].null_count
    return bool(n_fitted == fit.get("rows") == pc.sum(pc.equal(columns[STATUS], OK)).as_py())


def _refuse_refit(table: Table, setup: RunSetup) -> None:
    if not setup.request.options.refit:
        return
    if setup.request.out.suffix != ".parquet" or not (setup.opened.fits or setup.opened.of_table):
        raise InputError(f"{table.path} has no fitted scores for --refit to fit again; leave it out")
    if CLASS in table.schema.names or not is_of_scoring(table.metadata.get("fit")):
        raise InputError(
            f"{table.path} was fitted by curate fit: leave out --refit, and run curate fit again on the table that has "
            "grown"
        )


def _score(state: _State, engine: Engine, events: RunLog) -> ScoreRun:
    """Score new and changed rows, except shards that an earlier run of the same addition finished."""
    work, comparison = state.work, state.comparison
    work.sweep()
    has_times = bool((comparison.times != UNKNOWN).any())
    fingerprint = {**state.fingerprint, "input": "by row" if has_times else state.fingerprint["input"], "add": True}
    noted = {name: state.table.metadata[name] for name in ("model", THREADS) if name in state.table.metadata}
    parts, metadata = work.begin(fingerprint, {"kind": "scores", **noted, "settings": state.fingerprint})
    work.files(parts)
    kept = _kept_shards(state, parts)
    rows = in_shards(comparison.todo, kept, state.settings.shard_size)
    return state.score(engine, events, {shard: parts[shard] for shard in kept}, metadata, rows)


def _kept_shards(state: _State, parts: Mapping[int, Part]) -> dict[int, NDArray[np.int64]]:
    """Return the rows of finished shards that all still need scoring, from the same files and values, by shard.

    If the source grew since they were scored, the other rows are divided among the other shards.
    """
    todo, size, manifest = state.comparison.todo, state.settings.shard_size, state.opened.manifest
    fields = [field for field in manifest.schema if field.name not in (KEY, URI)]
    if not parts or not len(todo):
        return {}
    keys = ManifestRows(manifest, todo).rows(0, len(todo)).column(KEY).combine_chunks()
    kept, used = {}, np.zeros(len(todo), bool)
    for shard, part in sorted(parts.items()):
        if part.rows != min(size, len(todo) - shard * size):
            continue
        scored = open_table(state.work.part(shard))
        if not {(field.name, field.type) for field in fields} <= {(each.name, each.type) for each in scored.schema}:
            continue  # the user columns changed their types
        rows = scored.read([KEY, N_BYTES, MTIME, *(field.name for field in fields)])
        rows_of_keys = pc.fill_null(pc.index_in(rows[KEY], value_set=keys), -1).to_numpy()
        times, sizes = (pc.fill_null(rows[name], UNKNOWN).to_numpy() for name in (MTIME, N_BYTES))
        places = todo[rows_of_keys.clip(0)]
        now = state.comparison.sizes[places]
        same = state.comparison.times[places] == times
        same &= (sizes == UNKNOWN) | (now == UNKNOWN) | (now == sizes)
        if not ((rows_of_keys >= 0).all() and same.all()) or used[rows_of_keys].any():
            continue
        values = ManifestRows(manifest, places).rows(0, len(places))
        if not any(differ(values[field.name], rows[field.name]).any() for field in fields):
            kept[shard], used[rows_of_keys] = places, True
    return kept


def _publish(state: _State, run: ScoreRun) -> Counter[str]:
    """Replace the table by the new one, and return the statuses of its rows."""
    out, work, table, refit = state.request.out, state.work, state.table, state.request.options.refit
    rows = run.job.rows if run.job.rows is not None else np.zeros(0, np.int64)
    part = Table(work.folder, work.files(run.parts)) if run.parts else None
    order = Order.of(state.comparison, rows)
    columns: dict[str, pa.Array] = {}
    fitted = [name for name in (*DATASET_COLUMNS, *columns_of(state.opened.of_table)) if name in table.schema.names]
    if not refit:
        columns = _judged(state, part)
    without, comparison = fitted if refit else (), state.comparison
    merged = Merged(table, part, columns, order, comparison, state.opened.manifest, without)
    if part is not None:
        state.notes.extend(words_on(merged.lacking, bool(columns), counted(part.n_rows, "row")))
    metadata = _metadata(state, merged.schema, len(columns) and part.n_rows if part is not None else 0)
    statuses = Counter[str]()
    if out.suffix != ".parquet":
        _write_folder(state, merged, metadata, statuses)
    else:
        if refit:  # with scores that are fitted to all its rows
            grown = work.folder / GROWN
            _write(grown, merged, metadata, statuses)
            of_dataset = compute_dataset_scores([grown], state, order.source)
            write_joined([grown], work.target, of_dataset, overwrite=True)
            state.notes.extend(of_dataset.notes)
        else:
            _write(work.target, merged, metadata, statuses)
        work.deliver(overwrite=True)
    work.remove()
    if refit and isinstance(out, Path):
        require_local(fit_path(out)).unlink(missing_ok=True)
    return statuses


def _judged(state: _State, part: Table | None) -> dict[str, pa.Array]:
    """Return the columns of the table's fit for the scored rows; stores the fit before any row is dropped."""
    table = state.table
    if FITTED not in table.schema.names or state.opened.fit is not None or not (part or state.comparison.n_gone):
        return {}
    state.request.options.announce("scoring new rows by the fit of the table")
    fit = frozen_fit(table)
    if fit is None or part is None:
        return {}
    columns, outside = judged(fit, part)
    if warning := far_from(outside, part.n_rows):
        state.notes.append(warning)
    return columns


def _metadata(state: _State, schema: pa.Schema, n_judged: int) -> dict[str, Any]:
    """Return the metadata of the new table: with the current input and a record of the addition."""
    before, comparison = state.table.metadata, state.comparison
    note = {
        "new": comparison.n_new,
        "changed": comparison.n_changed,
        "again": comparison.n_again,
        "gone": comparison.n_gone,
    }
    if comparison.renamed.any():
        note["renamed"] = int(comparison.renamed.sum())
    if state.releases:
        note["releases"] = state.releases  # type: ignore[assignment]
    additions = before.get(ADDITIONS)
    metadata = {
        **before,
        "settings": {**before["settings"], "input": state.fingerprint["input"]},
        "source": state.opened.manifest.description,
        CLASSES: _all_classes(before.get(CLASSES), state),
    }
    if comparison.differs:
        metadata[ADDITIONS] = [*(additions if isinstance(additions, list) else []), note]
    if is_labelled_first(state.table, state.request.reading):
        metadata[REQUEST] = {**before.get(REQUEST, {}), LABELLING: True}
    recorded = before.get("columns")
    described = {**describe_all(schema.names), **(recorded if isinstance(recorded, dict) else {})}
    metadata["columns"] = {name: described[name] for name in schema.names}
    if state.request.options.refit:
        metadata.pop("fit", None)
    elif n_judged and isinstance(before.get("fit"), dict):
        metadata["fit"] = {**before["fit"], JUDGED: before["fit"].get(JUDGED, 0) + n_judged}
    return metadata


def _all_classes(before: object, state: _State) -> dict[str, list[str]]:
    """Return a table's classes followed by new ones, so that class numbers do not change."""
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


def _write_folder(state: _State, merged: Merged, metadata: dict[str, Any], statuses: Counter[str]) -> None:
    """Write the table as a folder of parts, which replaces the old one when it is complete."""
    with AtomicFolder(require_local(state.request.out), overwrite=True) as folder:
        place = folder.temporary
        text = json.dumps({"fingerprint": metadata["settings"], "metadata": metadata}, indent=1)
        (place / RUN).write_text(text)
        for shard, rows in enumerate(merged.batches(state.settings.shard_size)):
            part = write_part(part_path(place, shard), shard, rows, merged.schema, metadata, state.opened.batch_size)
            append_line(place / JOURNAL, asdict(part))
            statuses.update(part.statuses)
