"""The next round: fit a model on all labels, pick the batch, and export it for annotation."""

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.counted import counted
from curate.exporting.batches import write_batch
from curate.exporting.row_images import ImageReader
from curate.exporting.table import TOOLS
from curate.options.function import callable_of
from curate.policies.receipts import environment
from curate.policies.select.policy import find_picked_copies
from curate.rounds.exported import for_annotators, noted_export
from curate.rounds.files.folder import BATCH, CONTROL, HELD_OUT, STATE, STOP, STRATEGY, Folder, held, new_round
from curate.rounds.files.sealed import write_sealed
from curate.rounds.files.votes import LABELLED, SKIPPED, TIED
from curate.rounds.measures.lift import PairLift
from curate.rounds.options import RoundNextOptions
from curate.rounds.state.batch import BatchRows, derive
from curate.rounds.state.standing import LabelProgress, RoundRows, progress_of, standing_of, table_of
from curate.tables.images import images_by_key
from curate.tables.provenance import reading_of
from curate.tables.writer import write_table
from curate.version import __version__
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.system import peak_memory

EXPORT = "export"
N_NAMED = 3


@dataclass(frozen=True)
class NextResult:
    """A round that was written.

    Attributes:
        number: from 1.
        folder: folder of its files.
        export: the files for annotators.
        state: content of `state.json`.
        notes: for the user.
    """

    number: int
    folder: Path
    export: Path
    state: dict[str, Any]
    notes: tuple[str, ...]


def run_round_next(options: RoundNextOptions) -> NextResult:
    """Fit a model on all labels, pick the next batch, and export it for annotators.

    Unlabelled images of earlier batches can still be labelled, and are not sent out again.

    Raises:
        InputError: if images of the last batch have no label, no candidate is left, the folder was changed or is
            locked, or the table is another one.
    """
    began = time.monotonic()
    with held(options.folder) as opened:
        progress = progress_of(opened)
        _refuse_open(opened, progress, options.partial)
        scored = table_of(opened.settings, opened.path, options.table)
        return _write(progress, standing_of(opened, scored, progress), began, options.source)


round_next = callable_of(RoundNextOptions, run_round_next)


def _refuse_open(folder: Folder, progress: LabelProgress, partial: bool) -> None:
    if not folder.rounds or partial:
        return
    last = folder.rounds[-1]
    missing = progress.missing(last)
    if missing:
        named = ", ".join(repr(key) for key in missing[:N_NAMED]) + (", ..." if len(missing) > N_NAMED else "")
        raise InputError(
            f"round {last.number} in {folder.of_round(last.number)} waits for labels: expected one for each of its "
            f"{counted(len(last.keys), 'image')}, got none for {len(missing):,} ({named}); import them with "
            "`curate round import`, or continue without them with --partial"
        )


def _write(progress: LabelProgress, standing: RoundRows, began: float, source: str | None) -> NextResult:
    folder, scored = standing.folder, standing.scored
    settings, number = folder.settings, len(folder.rounds) + 1
    derived = derive(standing, number)
    probe, picked, batch = derived.probe, derived.picked, derived.batch
    with new_round(folder, number) as place:
        write_table(place / BATCH, batch, {"kind": "batch", "round": number})
        moved = None if source is not None else scored.table.moved
        current = batch if moved is None else moved.current_rows(batch)
        reader = images_by_key(current, source=source, options=reading_of(scored.table))
        export, notes = _export(place, batch, folder, reader)
        model: dict[str, Any] = {}
        lift: PairLift | None = None
        files = {BATCH: file_sha256(place / BATCH)}
        if probe is not None:
            look = len(folder.label_files)
            measured, sample = standing.measure(probe, look)
            model, lift = asdict(measured), standing.lift(look)
            write_table(place / STOP, sample, {"kind": "stop set", "round": number})
            files[STOP] = file_sha256(place / STOP)
        at, peak = scored.rows.place, peak_memory()
        copies = find_picked_copies(scored.table, at[picked.rows], at[standing.away])  # also of images sent out before
        state = _state(progress, standing, picked, number)
        state |= {
            "model": model,
            "lift": asdict(lift) if lift else None,
            "export": noted_export(settings, place / export),
            "notes": [*picked.notes, *(copies.words() if copies else ()), *notes],
            "files": files,
            "labels": {folder.name(file.path): file.content for file in folder.label_files},
            "environment": environment(),
            "wall_s": round(time.monotonic() - began, 3),
            "peak_mb": None if peak is None else round(peak / (1 << 20)),
        }
        write_sealed(place / STATE, state)
    final = folder.of_round(number)
    return NextResult(number, final, final / export, state, tuple(state["notes"]))


def _state(progress: LabelProgress, standing: RoundRows, picked: BatchRows, number: int) -> dict[str, Any]:
    folder, scored = standing.folder, standing.scored
    counted = {arm: picked.arm.count(arm) for arm in (STRATEGY, CONTROL, HELD_OUT)}
    gains = picked.gain[np.isfinite(picked.gain)]
    return {
        "kind": "round",
        "curate": __version__,
        "number": number,
        "parent": folder.head,
        "strategy": {"asked": folder.settings.strategy, **picked.used},
        "pool": {
            "rows": len(scored.rows),
            "usable": int(scored.usable.sum()),
            "held_out": len(standing.holdout),
            "candidates": picked.candidates,
            **{state: progress.count(state) for state in (LABELLED, TIED, SKIPPED)},
            "pending": sum(key not in progress.consensus for key in progress.arms),
        },
        "picked": counted,
        "gains": {
            "n": len(gains),
            "first": float(gains.max()) if len(gains) else None,
            "median": float(np.median(gains)) if len(gains) else None,
            "last": float(gains.min()) if len(gains) else None,
        },
    }


def _export(place: Path, batch: pa.Table, folder: Folder, reader: ImageReader) -> tuple[str, list[str]]:
    """Write the files for annotators, which do not contain the arm of an image."""
    settings = folder.settings
    kind = TOOLS[settings.format]
    name, classes = EXPORT + kind.suffix, settings.classes or ()
    rows = for_annotators(batch)
    written = write_batch(rows, place / name, settings.format, images=reader, link=settings.link, classes=classes)
    return name, list(written.notes)
