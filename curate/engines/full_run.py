"""A scoring run from a listed source to the table: the model is opened, an engine scores, the table is published."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from curate.counted import counted
from curate.engines.adding.run import ADDITIONS
from curate.engines.adding.settings import request_of
from curate.engines.contract import Engine
from curate.engines.finished import (
    clear,
    commit_rest,
    failed_rows,
    finished_table,
    perhaps_gone,
    shards_again,
    statuses_of,
)
from curate.engines.job import Job, Opened, corrupter_of, model_threads, open_all, thread_counts
from curate.engines.journal import WorkFolder
from curate.engines.log import RunLog, logged_parts
from curate.engines.options import ScoreOptions
from curate.engines.out_path import holds_scores
from curate.engines.output import publish
from curate.engines.result import ScoreResult
from curate.engines.run import ScoreRun
from curate.engines.settings import TEMPORARY, ScoreSettings
from curate.engines.shard import score_schema
from curate.engines.source import classes_of, notes_on
from curate.engines.store_work import work_of
from curate.engines.white import find_white, white_notes
from curate.manifest import Manifest, SourceOptions
from curate.manifest.store_path import StorePath
from curate.tables.classes import CLASSES
from curate.tables.provenance import REQUEST
from curate.tables.table import Table, open_table
from scoring.backends import TORCH
from scoring.errors import InputError
from scoring.relative.columns import NEIGHBOUR
from scoring.relative.model import DatasetFit, far_from


def score_listed(
    manifest: Manifest,
    options: ScoreOptions,
    out: Path | StorePath,
    model: str | Path,
    reading: SourceOptions,
    engine: Engine,
    retry: frozenset[str],
    events: RunLog,
) -> ScoreResult:
    """Score a source that is listed with an engine that is at the ready; other arguments are ``options``, checked."""
    overwrite, announce = options.overwrite, options.announce
    opened = open_all(options.source, reading, model, engine.settings, elsewhere=engine.elsewhere, listed=manifest)
    for note in notes_on(opened.manifest, reading):
        announce(note)
    if opened.of_table and out.suffix != ".parquet":
        raise InputError(
            f"{next(iter(opened.of_table))} needs all rows at once; expected --out NAME.parquet, got {out}"
        )
    work = work_of(out)
    white = engine.settings.white or (None if overwrite else _white_before(out, work))
    white = white or _sampled_white(opened.manifest, options)
    # what is settled here holds everywhere
    settings = replace(engine.settings, precision=opened.runner.precision, white=white)
    fingerprint = opened.fingerprint(settings)
    read_again = partial(
        shards_again,
        manifest=opened.manifest,
        preprocessing=opened.runner.model.spec.preprocessing,
        settings=settings,
        workers=options.workers,
        announce=announce,
    )
    again: set[int] = set()  # shards with rows that can be read now
    if out.exists() and not overwrite:
        table = finished_table(out, fingerprint, opened.manifest)
        if ADDITIONS not in table.metadata:
            # rows of a table that has grown are not shards of one run: --add reads them
            again = read_again(statuses_of(table, failed_rows(table, retry)))
        if not again:
            return _finished(out, table, fingerprint, work, announce)
    metadata = _metadata(opened, settings, request_of(model, reading))
    if opened.device.type == "cpu" and not engine.elsewhere:
        announce(_on_cpu(opened))
    started = time.monotonic()
    with work:
        if out.exists() and not overwrite:  # perhaps finished by another process while we waited for the lock
            table = finished_table(out, fingerprint, opened.manifest)
            again &= set((failed_rows(table, retry) // settings.shard_size).tolist())
            if not again:
                return _finished(out, table, fingerprint, work, announce, locked=True)
            metadata = {name: table.metadata.get(name, value) for name, value in metadata.items()}
            metadata["settings"] = fingerprint
        work.sweep(out)
        parts, metadata = work.begin(fingerprint, metadata, overwrite=overwrite)
        back = read_again(perhaps_gone(work, parts, settings.shard_size))
        parts = {shard: part for shard, part in parts.items() if shard not in back}
        if again:
            again |= back
            schema = score_schema(opened.manifest.schema, opened.runner, settings, opened.fit)
            parts = commit_rest(
                work, table, again, parts, schema, metadata, shard_rows=settings.shard_size, step=opened.batch_size
            )
        step = opened.runner.step = min([opened.runner.step, *(part.step for part in parts.values())])
        job = Job(
            options.source, reading, model, settings, options.workers, work.folder, fingerprint, metadata, step, opened
        )
        run = ScoreRun(job, work, parts, options.report, logged_parts(events, opened.manifest.n_rows, parts), announce)
        with model_threads(metadata):
            if run.todo():
                engine.score(run)
            run.check_complete()
            notes = _published(run, opened, work, out, options, overwrite=overwrite or bool(again))
    return _result(out, opened, run, time.monotonic() - started, notes)


def _sampled_white(manifest: Manifest, options: ScoreOptions) -> int:
    """Return the white of 16-bit images of a source, by a sample of them, and say so."""
    sampled = find_white(manifest, options.workers)
    for line in sampled.words():
        options.announce(line)
    return sampled.white


def _on_cpu(opened: Opened) -> str:
    by = "" if opened.runner.backend == TORCH else f", by {opened.runner.backend}"
    return f"running on the CPU ({torch.get_num_threads()} threads, {opened.runner.precision}{by}): no GPU is used"


def _published(
    run: ScoreRun, opened: Opened, work: WorkFolder, out: Path | StorePath, options: ScoreOptions, *, overwrite: bool
) -> list[str]:
    """Write the table of a run that is complete, and return what the user should know of it."""
    settings = run.job.settings
    notes = publish(
        work,
        run.parts,
        out,
        scorers=opened.of_table,
        fit=opened.fits,
        corrupter=corrupter_of(opened, settings, options.workers) if opened.fits else None,
        overwrite=overwrite,
        announce=options.announce,
    )
    notes += _outside(out, opened.fit)
    deep = [part for part in run.parts.values() if part.deep]
    if deep and settings.white is not None:
        notes += white_notes(sum(part.deep for part in deep), max(part.highest for part in deep), settings.white)
    return notes


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
        **thread_counts(opened.device),
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


def _finished(
    out: Path | StorePath,
    table: Table,
    fingerprint: dict[str, Any],
    work: WorkFolder,
    announce: Callable[[str], None],
    *,
    locked: bool = False,
) -> ScoreResult:
    """Return the result of a run that is complete already."""
    if not clear(work, out, lambda noted: noted == fingerprint, locked=locked):
        announce(f"another run towards {out} is unfinished in {work.place}; repeat its command to go on with it")
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
        fingerprint["device"],
        fingerprint["precision"],
        fingerprint["model"],
    )
