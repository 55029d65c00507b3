"""One export from its first part to its final name, or from where an earlier run stopped."""

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.exporting.contract import Plan
from curate.exporting.parts import AllParts, Part
from curate.exporting.row_images import NO_FILE, RowImages
from curate.exporting.rows import Source, parts
from curate.exporting.work import KIND, MISSING, WorkFolder
from curate.manifest.text import csv_lines
from curate.tables.images import MOVED, SHA256
from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.errors import InputError

HINT = f"restore it, or leave such rows out with --skip-missing; {MOVED}"
MISSING_SUFFIX = ".missing.csv"  # suffix of the list of rows left out, next to the output


@dataclass(frozen=True)
class ExportProgress:
    """Progress of an export.

    Attributes:
        done: rows written, including earlier runs.
        total: rows.
        resumed: rows written by earlier runs.
        missing: rows whose image cannot be read.
        n_bytes: of the files written.
    """

    done: int
    total: int
    resumed: int
    missing: int
    n_bytes: int


@dataclass(frozen=True)
class Written:
    """The files written so far.

    Attributes:
        paths: files, or the one folder, in the order written.
        rows: exported.
        notes: for the user, one sentence each.
        missing: rows left out, as allowed, because their image could not be read.
        n_bytes: of all files.
        resumed: rows written by earlier runs.
    """

    paths: tuple[Path, ...]
    rows: int
    notes: tuple[str, ...] = field(default=())
    missing: int = 0
    n_bytes: int = 0
    resumed: int = 0


@dataclass(frozen=True)
class Job:
    """The export to write.

    Attributes:
        plan: of the rows.
        source: the table.
        out: file or folder.
        fingerprint: all that determines the output; None if the export cannot be resumed.
        overwrite: replace existing files.
        skip_missing: leave out rows whose image cannot be read.
        hint: next step if an image cannot be read.
        report: called with the progress after each part.
    """

    plan: Plan
    source: Source
    out: Path
    fingerprint: dict[str, Any] | None = None
    overwrite: bool = False
    skip_missing: bool = False
    hint: str = HINT
    report: Callable[[ExportProgress], None] | None = field(default=None, compare=False)


def write_out(job: Job, reader: RowImages) -> Written:
    """Write all missing parts, check them all, and rename the result to its final name.

    Raises:
        InputError: if images cannot be read, the path cannot be written, or files on disk changed. Finished parts stay
            in ``OUT.part``; the same call resumes.
    """
    work = WorkFolder(job.out, reader.workers)
    began = False
    try:
        with work:
            once = {"once": secrets.token_hex(8)}
            work.begin(job.fingerprint or once, overwrite=job.overwrite, skips=job.skip_missing)
            began = True
            _write_parts(job, reader, work)
            return _finish(job, work)
    except BaseException as error:
        is_short = not job.plan.kind.folder and isinstance(error, InputError)  # text, which is quickly rewritten
        if began and (not work.done or job.fingerprint is None or is_short):
            with suppress(InputError):  # the first error is reported
                work.remove()
        raise
    finally:
        reader.close()


def _write_parts(job: Job, reader: RowImages, work: WorkFolder) -> None:
    resumed = sum(work.done[number].rows for number in work.resumed)
    lost: list[tuple[str, str]] = []
    n_lost = 0
    names = tuple(job.plan.schema.names)
    extra = [name for name in (SHA256, job.plan.per) if name is not None and name in job.source.schema.names]
    for number, rows in parts(job.source, names, extra, job.plan.starts, job.plan.label, job.plan.class_list):
        if number in work.done:
            continue
        part = Part(number, work.out, reader)
        job.plan.kind.part(rows, part, job.plan)
        if not job.plan.kind.reads_images:
            part.written = len(rows)
        missing = [(rows.keys[image.index], image.why) for image in part.lost]
        if part.lost and not job.skip_missing:
            n_lost += len(missing)
            lost = lost or missing[:1]
            continue
        work.commit(part, csv_lines(missing).encode())
        if job.report is not None:
            lines = work.done.values()
            missed, n_bytes = sum(line.missing for line in lines), sum(line.n_bytes for line in lines)
            done = sum(line.rows for line in lines)
            job.report(ExportProgress(done + missed, job.plan.n_rows, resumed, missed, n_bytes))
    if n_lost:
        raise refused(job.plan.n_rows, n_lost, *lost[0], job.hint)


def refused(n_rows: int, n_lost: int, key: str, why: str, hint: str = HINT) -> InputError:
    """Return the error message for images that cannot be read."""
    several = f", and {n_lost - 1:,} more of {n_rows:,}" if n_lost > 1 else ""
    advice = "pass what was scored as --source" if why == NO_FILE else hint
    return InputError(f"cannot read the image of {key!r}{several}: {why}; {advice}")


def _finish(job: Job, work: WorkFolder) -> Written:
    n_rows = sum(line.rows for line in work.done.values())
    missing = sum(line.missing for line in work.done.values())
    if not n_rows:
        raise InputError(f"expected images to write, got none: all {missing:,} cannot be read; check where they are")
    parts = AllParts(work.out, job.out, job.overwrite, n_rows, work.places)
    try:
        notes = job.plan.kind.finish(parts, job.plan)
        files, n_bytes, names = work.check(parts, job.plan.n_rows)
        listed = (_list_missing(work, job.out),) if missing else ()
        manifest = {"kind": KIND, "curate": __version__, **(job.fingerprint or {}), "rows": n_rows, "missing": missing}
        manifest |= {"files": files, "bytes": n_bytes, "names": names}
        shown = manifest if job.fingerprint is not None else None
        n_bytes += sum(file.n_bytes for file in parts.files)
        paths = work.publish(parts, shown, overwrite=job.overwrite)
    except BaseException:
        for file in parts.files:
            file.discard()
        raise
    resumed = sum(work.done[number].rows for number in work.resumed)
    return Written((*paths, *listed), n_rows, notes, missing, n_bytes, resumed)


def _list_missing(work: WorkFolder, out: Path) -> Path:
    """Write a list of the rows left out, with reasons, next to the export."""
    path = out.with_name(out.name + MISSING_SUFFIX)
    header = csv_lines([("key", "why")]).encode()
    with suppress(OSError), path.open("rb") as file:
        ours = file.read(len(header)) == header
        if not ours:
            raise InputError(f"{path} exists, and is not a list of missing images; rename it")
    with AtomicFile(path, overwrite=True) as target:
        target.write(header)
        for piece in work.places(MISSING):
            target.write(piece.read_bytes())
    return path
