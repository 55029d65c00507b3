"""A scoring run from a listed source to the table: open the model, score, publish the table."""

import time
from collections import Counter
from dataclasses import replace
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
from curate.engines.job import Opened, model_threads, open_all, thread_counts
from curate.engines.journal import Part, WorkFolder
from curate.engines.log import RunLog
from curate.engines.options import ScoreOptions
from curate.engines.out_path import holds_scores
from curate.engines.output import publish
from curate.engines.result import ScoreRequest, ScoreResult
from curate.engines.run import ScoreRun
from curate.engines.settings import TEMPORARY, ScoreSettings
from curate.engines.setup import RunSetup
from curate.engines.source import classes_of, notes_on
from curate.engines.store_work import work_of
from curate.engines.white import find_white, white_notes
from curate.manifest.contract import Manifest
from curate.manifest.store_path import StorePath
from curate.tables.classes import CLASSES
from curate.tables.provenance import REQUEST
from curate.tables.table import Table, open_table
from scoring.backends import TORCH
from scoring.errors import InputError
from scoring.images.deep import WHITE
from scoring.relative.columns import NEIGHBOUR
from scoring.relative.model import DatasetFit, far_from


def score_listed(manifest: Manifest, request: ScoreRequest, engine: Engine, events: RunLog) -> ScoreResult:
    """Score a listed source with a ready engine."""
    options, out = request.options, request.out
    overwrite, announce = options.overwrite, options.announce
    opened = open_all(
        options.source, request.reading, request.model, engine.settings, elsewhere=engine.elsewhere, listed=manifest
    )
    for note in notes_on(opened.manifest, request.reading):
        announce(note)
    if opened.of_table and out.suffix != ".parquet":
        raise InputError(
            f"{next(iter(opened.of_table))} needs all rows in one table; expected --out NAME.parquet, got {out}"
        )
    work = work_of(out)
    white = engine.settings.white or (None if overwrite else _white_before(out, work))
    white = white or _sampled_white(opened.manifest, options)
    # resolved here for all processes
    settings = replace(engine.settings, precision=opened.runner.precision, white=white)
    setup = RunSetup(request, opened, settings, opened.fingerprint(settings), work)
    table = finished_table(out, setup.fingerprint, opened.manifest) if out.exists() and not overwrite else None
    again: set[int] = set()  # shards with failed rows that are readable now
    if table is not None:
        if ADDITIONS not in table.metadata:
            # rows of a table extended by --add do not form shards of one run
            again = shards_again(setup, statuses_of(table, failed_rows(table, request.retry)))
        if not again:
            return _complete_result(setup, table)
    if opened.device.type == "cpu" and not engine.elsewhere:
        by = "" if opened.runner.backend == TORCH else f", by {opened.runner.backend}"
        how = f"{torch.get_num_threads()} threads, {opened.runner.precision}{by}"
        announce(f"running on the CPU ({how}): no GPU is used")
    metadata = _metadata(opened, settings, request_of(request.model, request.reading))
    started = time.monotonic()
    with work:
        if out.exists() and not overwrite:  # perhaps finished by another process while we waited for the lock
            table = finished_table(out, setup.fingerprint, opened.manifest)
            again &= set((failed_rows(table, request.retry) // settings.shard_size).tolist())
            if not again:
                return _complete_result(setup, table, locked=True)
            metadata = {name: table.metadata.get(name, value) for name, value in metadata.items()}
            metadata["settings"] = setup.fingerprint
        parts, metadata = _begin_run(setup, metadata, again, table)
        run = setup.score(engine, events, parts, metadata)
        with model_threads(metadata):
            notes = publish(setup, run.parts, overwrite=overwrite or bool(again))
            notes += _outside_warning(out, opened.fit)
            notes += white_notes(run.parts.values(), settings.white or WHITE)
    return _result(setup, run, time.monotonic() - started, notes)


def _begin_run(
    setup: RunSetup, metadata: dict[str, Any], again: set[int], table: Table | None
) -> tuple[dict[int, Part], dict[str, Any]]:
    """Begin or resume a run; return its shards that need no scoring, and its metadata.

    ``again`` are the shards of a complete ``table`` to score again; ``metadata`` is for a new run.
    """
    work, request = setup.work, setup.request
    work.sweep()
    parts, metadata = work.begin(setup.fingerprint, metadata, overwrite=request.options.overwrite)
    back = shards_again(setup, perhaps_gone(work, parts, setup.settings.shard_size))
    parts = {shard: part for shard, part in parts.items() if shard not in back}
    if again and table is not None:
        parts = commit_rest(setup, table, again | back, parts, metadata)
    return parts, metadata


def _sampled_white(manifest: Manifest, options: ScoreOptions) -> int:
    """Return and report the white level of a source's 16-bit images, from a sample."""
    sampled = find_white(manifest, options.workers)
    for line in sampled.words():
        options.announce(line)
    return sampled.white


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
    """Return the white level of the finished or started run at an output; None if there is none."""
    run = work.run()
    before = open_table(out).metadata.get("settings") if holds_scores(out) else run["fingerprint"] if run else {}
    white = before.get("white") if isinstance(before, dict) else None
    return white if type(white) is int else None


def _outside_warning(out: Path | StorePath, fit: DatasetFit | None) -> list[str]:
    """Return a warning if many rows lie outside of the dataset to which the model was fitted."""
    if fit is None:
        return []
    rows = far = 0
    for batch in open_table(out).batches([NEIGHBOUR]):
        values = batch.column(0).drop_null().to_numpy(zero_copy_only=False)
        rows, far = rows + len(values), far + int((values > fit.far).sum())
    note = far_from(far, rows)
    return [note] if note else []


def _result(setup: RunSetup, run: ScoreRun, seconds: float, notes: list[str]) -> ScoreResult:
    statuses = sum((Counter(part.statuses) for part in run.parts.values()), Counter[str]())
    step = min(part.step for part in run.parts.values())
    if step < setup.opened.batch_size:
        notes = [f"memory ran out, and batches went through the device {step} images at a time", *notes]
    if passing := sum(statuses[status] for status in TEMPORARY):
        kinds = ", ".join(sorted(TEMPORARY))
        notes = [*notes, f"{counted(passing, 'row')} failed for a temporary reason ({kinds}): repeat the command"]
    return setup.result(statuses, run.resumed, seconds, notes)


def _complete_result(setup: RunSetup, table: Table, *, locked: bool = False) -> ScoreResult:
    """Return the result of a complete run."""
    out, work, announce = setup.request.out, setup.work, setup.request.options.announce
    if not clear(work, lambda noted: noted == setup.fingerprint, locked=locked):
        announce(f"another run towards {out} is unfinished in {work.place}; repeat its command to resume it")
    announce(f"{out} is complete already: same input, same model, same settings; nothing to do")
    return setup.nothing_done(table, [])
