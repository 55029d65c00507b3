"""`curate score`: what is opened and checked, an engine at work on what is to do, and the table instead."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypedDict, Unpack

import torch

from curate.counted import counted
from curate.engines.adding.run import ADDITIONS, Request, add_rows
from curate.engines.adding.settings import (
    REQUEST,
    given_fields,
    model_as_scored,
    options_as_scored,
    request_of,
    settings_as_scored,
)
from curate.engines.contract import Cluster, Engine
from curate.engines.finished import (
    TEMPORARY,
    commit_rest,
    failed_rows,
    finished_table,
    retried,
    shards_again,
    table_of_scores,
)
from curate.engines.job import Job, Opened, corrupter_of, model_threads, open_all, threads_here
from curate.engines.journal import WorkFolder
from curate.engines.log import RunLog, logged_parts
from curate.engines.output import check_out, holds_scores, publish
from curate.engines.result import ScoreResult
from curate.engines.run import ScoreProgress, ScoreRun
from curate.engines.settings import ScoreSettings
from curate.engines.shard import score_schema
from curate.engines.source import classes_of, notes_on
from curate.engines.store_work import work_of
from curate.engines.table import ENGINES
from curate.engines.white import find_white, white_notes
from curate.manifest import SourceOptions
from curate.manifest.store_path import StorePath, path_or_store
from curate.tables.classes import CLASSES
from curate.tables.table import Table, open_table
from curate.version import __version__
from scoring.backends import TORCH
from scoring.checkpoint import DEFAULT
from scoring.errors import InputError
from scoring.intervals import coverage
from scoring.lookup import lookup
from scoring.relative.columns import NEIGHBOUR
from scoring.relative.model import DatasetFit, far_from


class ScoreKeywords(TypedDict, total=False):
    """The fields of ``SourceOptions``, ``ScoreSettings`` and ``Cluster``, as keywords of ``score``."""

    key: str | None
    path_column: str | None
    image_column: str | None
    label_from_folder: bool
    follow_symlinks: bool
    hidden: bool
    root: str | None
    limit: int | None
    reserved: tuple[str, ...]
    max_bytes: int
    connections: int
    allow_private_hosts: bool
    device: str
    precision: str
    backend: str
    batch_size: int | None
    shard_rows: int
    dtype: str | None
    decode: str
    max_pixels: int
    decode_timeout: float
    allow_truncated: bool
    scorers: tuple[str, ...]
    fit: bool
    quality: bool
    views: int
    white: int | None
    address: str | None
    actors: int | None
    num_gpus: float | None


def score(
    source: Any,
    out: str | Path | StorePath,
    *,
    model: str | Path | None = None,
    options: SourceOptions | None = None,
    settings: ScoreSettings | None = None,
    workers: int | None = None,
    engine: str = "local",
    cluster: Cluster | None = None,
    overwrite: bool = False,
    add: bool = False,
    check: bool = False,
    refit: bool = False,
    retry: Iterable[str] = (),
    log: str | Path | None = None,
    report: Callable[[ScoreProgress], None] = lambda progress: None,
    announce: Callable[[str], None] = lambda text: None,
    **keywords: Unpack[ScoreKeywords],
) -> ScoreResult:
    """Score every image of a source and write one row for each.

    A run that was killed goes on where it stopped when it is started again, and writes the same bytes that it would
    have written undisturbed. With ``add`` a table grows with its source: see docs/grow.md.

    Args:
        source: folder, list, CSV, JSONL, Parquet, tar or URL; see ``open_manifest``.
        out: ``NAME.parquet`` for one file, any other name for a folder with a file a shard; also in a store, by a URL
            such as ``s3://bucket/scores.parquet``.
        model: a shipped model's name, or a checkpoint; by default `world`, with ``add`` the table's.
        options: how to read the source.
        settings: how to score.
        workers: decoding threads of each process that scores; by default one a core.
        engine: what the shards are scored by, a key of ``ENGINES``; the table is the same by any.
        cluster: what to take of a cluster, for an engine that has one.
        overwrite: start again where another run's output is.
        add: score only what is new or changed since the table was scored, by its own model, settings and options; where
            there is no table, all is new.
        check: with ``add``, compare every known image by its sha256.
        refit: with ``add``, fit the scores of the dataset again, to all rows; else known rows keep theirs.
        retry: more statuses whose rows are read again where the table is complete; those of the temporary statuses
            `missing`, `io_error` and `timeout` always are.
        log: a file that events are appended to as JSON lines: the start, every shard, and the end; see ``RunLog``.
        report: called with the progress after every image batch or so.
        announce: called with a line on what is about to happen.
        keywords: any field of ``SourceOptions``, ``ScoreSettings`` or ``Cluster``, such as ``limit=100`` or
            ``device="cpu"``.

    Raises:
        TypeError: for a keyword that is neither's.
        InputError: for whatever of the above cannot be used; nothing that was written before is lost.
    """
    options, settings, cluster = _with_keywords(
        (options or SourceOptions(), settings or ScoreSettings(), cluster or Cluster()), dict(keywords)
    )
    out = path_or_store(out)
    _refuse_without_add(add, {"--check": check, "--refit": refit})
    if workers is not None and workers < 1:
        raise InputError(f"--workers must be at least 1, got {workers}")
    again = retried(retry)
    ready = lookup(ENGINES, engine, kind="engine")
    check_out(out, source, overwrite=overwrite)
    if log is not None and isinstance(out, Path) and Path(log).resolve() == out.resolve():
        raise InputError(f"--log and --out are the same, {out}; name another file for the log")
    request = None
    if add and out.exists() and not overwrite:
        given = {*given_fields(options), *given_fields(settings), *keywords}
        table = table_of_scores(out)
        model, options = model_as_scored(table, model), options_as_scored(table, options, given)
        settings = settings_as_scored(table, settings, given & {each.name for each in fields(settings)})
        request = Request(source, out, table, model, options, workers, again, check, refit)
    elif add:
        announce(f"no table at {out} to add to: all is new" if not overwrite else "--overwrite: all is scored again")
    with (
        RunLog(log, command="score", out=str(out), engine=engine, curate=__version__) as events,
        ready(cluster, settings) as at_work,
    ):
        if request is not None:
            result = add_rows(request, at_work, events, report, announce)
        else:
            run = (at_work, workers, overwrite, again, events, report, announce)
            result = _score(source, out, DEFAULT if model is None else model, options, *run)
        events.ends_with(rows=result.rows, statuses=result.statuses, resumed=result.resumed)
    return result


def _refuse_without_add(add: bool, given: Mapping[str, bool]) -> None:
    for flag, is_given in given.items():
        if is_given and not add:
            raise InputError(f"{flag} is for --add, which scores what is new in the source of a table; add that too")


def _score(
    source: Any,
    out: Path | StorePath,
    model: str | Path,
    options: SourceOptions,
    engine: Engine,
    workers: int | None,
    overwrite: bool,
    retry: frozenset[str],
    events: RunLog,
    report: Callable[[ScoreProgress], None],
    announce: Callable[[str], None],
) -> ScoreResult:
    """Score with an engine that is at the ready, arguments checked as far as can be without opening anything."""
    opened = open_all(source, options, model, engine.settings, elsewhere=engine.elsewhere)
    _announce(opened, options, announce)
    if opened.of_table and out.suffix != ".parquet":
        raise InputError(
            f"{next(iter(opened.of_table))} needs all rows at once; expected --out NAME.parquet, got {out}"
        )
    work = work_of(out)
    white = engine.settings.white or (None if overwrite else _white_before(out, work))
    if white is None:
        found = find_white(opened.manifest, workers)
        white = found.white
        for line in found.words():
            announce(line)
    # what is settled here holds everywhere
    settings = replace(engine.settings, precision=opened.runner.precision, white=white)
    wanted = opened.fingerprint(settings)
    again: set[int] = set()  # shards of a complete table with rows that can be read now
    if out.exists() and not overwrite:
        table = finished_table(out, wanted, opened.manifest)
        preprocessing = opened.runner.model.spec.preprocessing
        if (
            ADDITIONS not in table.metadata
        ):  # rows of a table that has grown are not shards of one run: --add reads them
            again = shards_again(table, opened.manifest, preprocessing, settings, retry, workers, announce)
        if not again:
            return _finished(out, table, wanted, work, announce)
    metadata = _metadata(opened, settings, request_of(model, options))
    if opened.device.type == "cpu" and not engine.elsewhere:
        by = "" if opened.runner.backend == TORCH else f", by {opened.runner.backend}"
        announce(
            f"running on the CPU ({torch.get_num_threads()} threads, {opened.runner.precision}{by}): no GPU is used"
        )
    started = time.monotonic()
    with work:
        if out.exists() and not overwrite:  # perhaps finished by another process while we waited for the lock
            table = finished_table(out, wanted, opened.manifest)
            again &= set((failed_rows(table, retry) // settings.shard_rows).tolist())
            if not again:
                return _finished(out, table, wanted, work, announce, locked=True)
            metadata = {name: table.metadata.get(name, value) for name, value in metadata.items()}
            metadata["settings"] = wanted
        work.sweep(out)
        parts, metadata = work.begin(wanted, metadata, overwrite=overwrite)
        if again:
            schema = score_schema(opened.manifest.schema, opened.runner, settings, opened.fit)
            parts = commit_rest(
                work, table, again, parts, schema, metadata, shard_rows=settings.shard_rows, step=opened.batch_size
            )
        step = opened.runner.step = min([opened.runner.step, *(part.step for part in parts.values())])
        job = Job(source, options, model, settings, workers, work.folder, wanted, metadata, step, opened)
        run = ScoreRun(job, work, parts, report, logged_parts(events, opened.manifest.n_rows, parts), announce)
        with model_threads(metadata):
            if run.todo():
                engine.score(run)
            run.check_whole()
            notes = publish(
                work,
                run.parts,
                out,
                scorers=opened.of_table,
                fit=opened.fits,
                corrupter=corrupter_of(opened, settings, workers) if opened.fits else None,
                overwrite=overwrite or bool(again),
                announce=announce,
            )
        notes += _outside(out, opened.fit)
        deep = [part for part in run.parts.values() if part.deep]
        notes += white_notes(sum(part.deep for part in deep), max((part.highest for part in deep), default=0), white)
    return _result(out, opened, run, time.monotonic() - started, notes)


def _announce(opened: Opened, options: SourceOptions, announce: Callable[[str], None]) -> None:
    announce(opened.manifest.description)
    for note in [*notes_on(opened.manifest, options), *opened.about_views()]:
        announce(note)


def _metadata(opened: Opened, settings: ScoreSettings, request: dict[str, Any]) -> dict[str, Any]:
    about = {name: opened.card[name] for name in ("method", "backbone", "preprocessing", "digest", "data_licence")}
    about["digest"] = opened.card.get("base", about["digest"])  # a fitted model's embeddings are its base model's
    if opened.runner.model.spec.embedding:
        about["embedding"] = opened.runner.model.spec.embedding
    return {
        "kind": "scores",
        "model": about,
        "settings": opened.fingerprint(settings),
        REQUEST: request,
        "source": opened.manifest.description,
        CLASSES: classes_of(opened.manifest),
        **({"intervals": {"views": settings.views, "coverage": coverage(settings.views)}} if settings.views else {}),
        **threads_here(opened.device),
    }


def _white_before(out: Path | StorePath, work: WorkFolder) -> int | None:
    """Return the white of the run that is finished, or begun, at an output; None if absent."""
    run = work.run()
    before = open_table(out).metadata.get("settings") if holds_scores(out) else run["fingerprint"] if run else {}
    white = before.get("white") if isinstance(before, dict) else None
    return white if type(white) is int else None


def _outside(out: Path | StorePath, fit: DatasetFit | None) -> list[str]:
    """Return a warning where many of the rows lie outside of the dataset that the model was fitted to."""
    if fit is None:
        return []
    rows = far = 0
    for batch in open_table(out).batches([NEIGHBOUR]):
        values = batch.column(0).drop_null().to_numpy(zero_copy_only=False)
        rows, far = rows + len(values), far + int((values > fit.far).sum())
    note = far_from(far, rows)
    return [note] if note else []


def _result(out: Path | StorePath, opened: Opened, run: ScoreRun, seconds: float, notes: list[str]) -> ScoreResult:
    statuses = Counter[str]()
    for part in run.parts.values():
        statuses.update(part.statuses)
    step = min(part.step for part in run.parts.values())
    shrunk = f"memory ran out, and batches went through the device {step} images at a time"
    passing = sum(statuses[status] for status in TEMPORARY)
    again = f"{counted(passing, 'row')} failed by what may pass ({', '.join(sorted(TEMPORARY))}): repeat the command"
    return ScoreResult(
        out,
        opened.manifest.n_rows,
        dict(statuses),
        run.resumed,
        seconds,
        str(opened.device),
        opened.runner.precision,
        opened.card["digest"],
        [*([shrunk] if step < opened.batch_size else []), *notes, *([again] if passing else [])],
    )


def _with_keywords(
    asked: tuple[SourceOptions, ScoreSettings, Cluster], keywords: dict[str, Any]
) -> tuple[SourceOptions, ScoreSettings, Cluster]:
    """Return each with the fields that the keywords name."""
    known = {f.name for one in asked for f in fields(one)}
    unknown = sorted(keywords.keys() - known)
    if unknown:
        raise TypeError(f"score() has no keyword {unknown[0]!r} (known: {', '.join(sorted(known))})")
    options, settings, cluster = asked
    of = [{f.name: keywords[f.name] for f in fields(one) if f.name in keywords} for one in asked]
    return replace(options, **of[0]), replace(settings, **of[1]), replace(cluster, **of[2])


def _finished(
    out: Path | StorePath,
    table: Table,
    wanted: dict[str, Any],
    work: WorkFolder,
    announce: Callable[[str], None],
    *,
    locked: bool = False,
) -> ScoreResult:
    """Return the result of a run that is complete already."""
    run = work.run()
    if run is not None and run["fingerprint"] != wanted:
        announce(f"another run towards {out} is unfinished in {work.place}; repeat its command to go on with it")
    elif locked:
        work.sweep(out)
        work.remove()
    elif work.exists() or work.leftovers(out):  # cut off when the table had its name already
        with work:
            work.sweep(out)
            work.remove()
    announce(f"{out} is complete already: same input, same model, same settings; nothing to do")
    statuses = Counter[str]()
    for batch in table.batches(["status"]):
        statuses.update(batch.column(0).to_pylist())
    return ScoreResult(
        out,
        table.n_rows,
        dict(statuses),
        table.n_rows,
        0.0,
        wanted["device"],
        wanted["precision"],
        wanted["model"],
    )
