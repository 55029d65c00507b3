"""Export a subset or a scored table for another tool."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, LABEL, STATUS, URI
from curate.counted import counted
from curate.engines.log import RunLog
from curate.exporting.batches import RANK, by_rank
from curate.exporting.contract import ExportRequest, Format, Plan
from curate.exporting.names import FileNames
from curate.exporting.options import ExportOptions
from curate.exporting.row_images import COPY, LINKS, SUFFIXES, Encoding, RowImages
from curate.exporting.rows import Source, is_plain
from curate.exporting.run import ExportProgress, Job, Written, refused, write_out
from curate.exporting.sides import N_BYTES, SIDES, SPLIT, Shard
from curate.exporting.survey import columns_of, survey
from curate.exporting.table import ALIASES, FORMATS
from curate.exporting.work import MANIFEST, WorkFolder, is_untouched, read_manifest
from curate.manifest.local import refuse_inside
from curate.manifest.store_path import sha256_of
from curate.options.function import callable_of
from curate.tables.classes import NO_CLASSES, class_list
from curate.tables.digests import is_text
from curate.tables.images import SHA256, Located, require_images
from curate.tables.provenance import reading_of, white_of
from curate.tables.table import SHOW_A_MOVE, Table, open_table
from curate.version import __version__
from scoring.atomic import refuse_existing, require_folder
from scoring.errors import InputError
from scoring.lookup import lookup, name_list, require_known
from scoring.system import usable_cores

MOST_RANKED = 1_000_000  # maximum rows sorted by rank: no round is larger


@dataclass(frozen=True)
class ExportResult:
    """The result of an export.

    Attributes:
        to: the format.
        rows: number of images.
        labelled: rows with a label.
        left_out: rows whose image could not be scored.
        missing: rows left out because their image cannot be read; listed next to the output.
        n_bytes: of all files.
        resumed: rows written by earlier runs.
        paths: files written, in order; empty for a dry run.
        notes: on the format.
        classes: names of all classes; their order defines the class numbers.
        lacking: classes without an exported row.
        load: lines of Python that load the output.
    """

    to: str
    rows: int
    labelled: int
    left_out: int
    missing: int = 0
    n_bytes: int = 0
    resumed: int = 0
    paths: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()
    load: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        lists = {name: list(getattr(self, name)) for name in ("notes", "classes", "lacking", "load")}
        return {**self.__dict__, "paths": [str(path) for path in self.paths], **lists}


def run_export(options: ExportOptions) -> ExportResult:
    """Export the rows of a table for another tool: key, path or URL, image, label and columns.

    Rows whose image could not be scored are left out. Repeat an interrupted call to resume; until all is written and
    checked, the output is in ``OUT.part``.

    Raises:
        InputError: for an unknown format, an option that it does not support, rows or images that cannot be read, a
            path that cannot be written, or an unfinished export of something else at ``OUT.part``.
    """
    lookup({**dict.fromkeys(FORMATS, ""), **ALIASES}, options.to, kind="format")
    options = replace(options, to=ALIASES.get(options.to, options.to))
    kind = FORMATS[options.to]
    encoding = Encoding.of(options.resize, options.encode)
    _check_options(options, kind, encoding)
    place = None if options.dry_run else _place(options.out, kind, options.to)
    opened = open_table(options.table, require=[KEY, *filter(None, (options.label, options.per))])
    if place is not None and kind.folder:
        _refuse_scored_folder(place, opened, options.source)
    encoding = encoding and replace(encoding, white=white_of(opened))
    request = _request(options, opened, encoding, place)
    per = [request.per] if request.per and request.per not in request.columns else []
    table = _ranked(opened, kind, (*request.columns, *per))
    rows = Source(table, opened.path, opened.moved if options.source is None else None)
    plan, hashes, seen = survey(rows, request, place.name if place is not None else "export")
    located = _located(opened, hashes, options.source, skip_missing=options.skip_missing, plan=plan)
    if kind.reads_images and kind.folder:
        require_images(opened, options.source)
    if seen.gone:
        raise refused(plan.n_rows, seen.gone, *seen.first_gone)
    result = ExportResult(options.to, plan.n_rows, plan.labelled, plan.left_out)
    notes = _notes(opened, plan, options.take)
    result = replace(result, classes=plan.classes, lacking=plan.lacking, notes=notes)
    if place is None:
        return result
    result = replace(result, load=kind.load_lines(place, plan))
    fingerprint = {"subset": digest_of(opened), "source": located and located.manifest.digest}
    fingerprint |= _settings(options, plan)
    done = _existing_export(place, kind, fingerprint, overwrite=options.overwrite, skips=options.skip_missing)
    if done is not None:
        complete = (f"{place} is complete already: nothing to do",)
        written = Written((place,), done["rows"], complete, done["missing"], done["bytes"], done["rows"])
        return replace(result, **vars(written))
    job = Job(plan, rows, place, fingerprint, options.overwrite, options.skip_missing)
    written = _write(options, job, located, encoding)
    return replace(result, **{**vars(written), "notes": (*result.notes, *written.notes)})


export = callable_of(ExportOptions, run_export)


def _write(options: ExportOptions, job: Job, located: Located | None, encoding: Encoding | None) -> Written:
    """Write the missing parts of an export, and its log."""
    with RunLog(
        options.log, command="export", table=str(options.table), to=options.to, out=str(job.out), rows=job.plan.n_rows
    ) as events:
        images = RowImages(None, located, encoding, options.link, checked=True, workers=usable_cores())

        def report(progress: ExportProgress) -> None:
            events.write("part", **asdict(progress))
            if options.report is not None:
                options.report(progress)

        written = write_out(replace(job, report=report), images)
        events.ends_with(rows=written.rows, missing=written.missing, bytes=written.n_bytes)
    return written


def _request(options: ExportOptions, opened: Table, encoding: Encoding | None, place: Path | None) -> ExportRequest:
    """Return the request to export rows of a table; ``place`` is the target, None in a dry run."""
    kind = FORMATS[options.to]
    label = options.label or (LABEL if LABEL in opened.schema.names else None)
    per = options.per or (sides_column(opened) if kind.sides else None)
    for name in filter(None, (label, per)):
        if not is_plain(kind_of := opened.schema.field(name).type):
            raise InputError(f"expected text or numbers in the column {name!r}, got {kind_of}")
    if label is None and options.classes is not None:
        raise InputError("--classes lists the classes of a column, and the table has no column label; add --label")
    suffix = encoding.kind if encoding is not None else None
    sized = N_BYTES in opened.schema.names and encoding is None
    return ExportRequest(
        kind,
        _exported_columns(opened, options.to, options.take, label),
        label,
        per,
        shard=Shard.of(options.shard, is_sized=sized) if kind.shards else Shard(),
        names=FileNames(kind.nested and per is None, SUFFIXES.get(suffix, suffix) if suffix else None, suffix),
        takes_uri=options.take is not None or not kind.minimal,
        looks=kind.reads_images and kind.folder and options.source is None and not options.skip_missing,
        replaced=place if place is not None and options.overwrite and kind.folder and place.is_dir() else None,
        null=options.null,
        class_list=class_list(opened, label, options.classes) if label else NO_CLASSES,
    )


def _settings(options: ExportOptions, plan: Plan) -> dict[str, Any]:
    """Return the settings that, with rows and images, determine an export."""
    same = {name: getattr(options, name) for name in ("link", "resize", "encode", "null")}
    classes = hashlib.sha256("\0".join(plan.classes).encode()).hexdigest()[:32]
    return {
        **{"format": options.to, "label": plan.label, "classes": classes, "per": plan.per},
        **{"take": ", ".join(plan.columns), **same, "shard": [plan.shard.n_rows, plan.shard.n_bytes]},
        "version": __version__,
    }


def sides_column(table: Table) -> str | None:
    """Return column `split` if the table has one whose values are all splits."""
    if SPLIT not in table.schema.names or not is_text(table.schema.field(SPLIT).type):
        return None
    values = table.read([SPLIT])[SPLIT].unique().to_pylist()
    return SPLIT if values and all(value in SIDES for value in values) else None


def _exported_columns(table: Table, to: str, take: str | Sequence[str] | None, label: str | None) -> tuple[str, ...]:
    """Return the columns exported in addition to key and uri."""
    kind = FORMATS[to]
    if take is None:
        take = () if kind.minimal else ("*",)
    elif isinstance(take, str):
        take = [name.strip() for name in take.split(",") if name.strip()]
        if not take:
            raise InputError("--take: expected column names such as label,'kappa_*', got none; leave it out")
    chosen = columns_of(table, take, label)
    taken = tuple(name for name in chosen if kind.takes(table.schema.field(name).type))
    lost = next((name for name in take if name in chosen and name not in taken), None)
    if lost is not None:
        kind_of = table.schema.field(lost).type
        raise InputError(
            f"--take: {to} cannot contain {kind_of}, the type of the column {lost!r}; leave it out, or use --to parquet"
        )
    return taken


def _notes(table: Table, plan: Plan, take: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return notes on classes, splits and columns, for every format."""
    notes = []
    if plan.lacking:
        n = counted(len(plan.lacking), "class", "classes")
        notes.append(f"no image of {n} of {len(plan.classes):,}: {name_list(plan.lacking)}")
    if plan.classes and not plan.class_list.names:
        notes.append(
            f"classes of {plan.label!r} are numbered by these rows alone: another subset may number them "
            "differently; list them with --classes"
        )
    if plan.sides.bounds:
        notes.append(
            "no column marks the val rows: a fifth of each class is used, by a hash of the keys; `curate "
            "split` keeps copies on one side, and --per reads its column"
        )
    left = len(table.schema.names) - len(plan.schema.names)
    if plan.kind.minimal and take is None and left:
        notes.append(
            f"key and label are included; {counted(left, 'other column')} with --take '*', or some with --take a,b"
        )
    return tuple(notes)


def digest_of(table: Table) -> str:
    """Return a digest of a table's bytes."""
    return " ".join(sha256_of(file)[:32] for file in table.files)


def _check_options(options: ExportOptions, kind: Format, encoding: Encoding | None) -> None:
    """Refuse options that a format does not support, instead of ignoring them."""
    to, link = options.to, options.link
    require_known(link, LINKS, "unknown --link")
    if link != COPY and encoding is not None:
        raise InputError("--link keeps images as they are, and --resize and --encode change them; choose one")
    holds, source = kind.reads_images and kind.folder, options.source
    skips = options.skip_missing
    refusals = (
        (source is not None and not kind.reads_images, "--source is for formats that hold images, and {} names them"),
        (skips and not kind.reads_images, "--skip-missing is for formats that hold images; {} reads none"),
        (encoding is not None and not holds, "--resize and --encode are for formats that hold images; {} holds none"),
        (link != COPY and not kind.links, "--link is for formats whose images are files, and images of {} are not"),
        (options.per is not None and not kind.per, "--per is for formats with folders, and {} has none"),
        (options.shard is not None and not kind.shards, "--shard is for formats of shards, and {} has none"),
        (options.null and to != "paths", "--null is for paths, not for {}"),
    )
    for is_refused, text in refusals:
        if is_refused:
            raise InputError(f"{text.format(to)}; leave it out")


def _place(out: str | Path | None, kind: Format, to: str) -> Path:
    """Return the output path, refused early if it cannot be used."""
    if out is None:
        what = "a folder" if kind.folder else f"a file name that ends in {kind.suffix}"
        raise InputError(f"expected {what} to write, got none; add --out, or --dry-run")
    path = Path(out)
    if not path.name or path.name in (".", ".."):
        raise InputError(f"expected a name for --out, got {str(out)!r}; pass the name of the output")
    if not kind.folder and path.suffix.lower() != kind.suffix:
        raise InputError(f"expected a file name that ends in {kind.suffix} for {to}, got {path}; rename --out")
    require_folder(path)
    return path


def _refuse_scored_folder(place: Path, table: Table, source: str | None) -> None:
    """Refuse a folder inside the scored source: its images would be scored the next time."""
    if source is not None:
        refuse_inside(place, source)
    if URI not in table.schema.names or not str(table.metadata.get("source")).startswith("folder "):
        return
    rows = next(table.batches([KEY, URI], rows=SHOW_A_MOVE), None)
    for row in [] if rows is None else rows.to_pylist():
        uri = str(table.moved.current(row[URI]) if table.moved else row[URI])
        if uri.endswith(f"/{row[KEY]}"):  # a link leads elsewhere
            return refuse_inside(place, uri.removesuffix(f"/{row[KEY]}"))


def _ranked(table: Table, kind: Format, columns: Sequence[str]) -> Table | pa.Table:
    """Return the rows sorted by rank, for formats of annotation tools, if every row has one; else unchanged."""
    if kind.read is None or RANK not in table.schema.names or table.n_rows > MOST_RANKED:
        return table
    names = [name for name in table.schema.names if name in (KEY, URI, STATUS, SHA256, *columns)]
    return by_rank(table.read(list(dict.fromkeys([*names, RANK]))))


def _located(
    table: Table, hashes: NDArray[np.uint64], source: str | None, *, skip_missing: bool, plan: Plan
) -> Located | None:
    if source is None:
        return None
    located = Located(hashes, source, reading_of(table))
    if located.missing and not skip_missing:
        raise InputError(
            f"--source: {source} has no image with the keys of {located.missing:,} of {plan.n_rows:,} rows; "
            "pass what was scored, or leave such rows out with --skip-missing"
        )
    return located


def _existing_export(
    place: Path, kind: Format, fingerprint: dict[str, Any], *, overwrite: bool, skips: bool
) -> dict[str, Any] | None:
    """Return the manifest of an existing equal export; refuse to replace other files."""
    if not os.path.lexists(place):
        return None
    if not kind.folder:
        if not overwrite:
            WorkFolder(place, 1).tidy()
        refuse_existing(place, overwrite=overwrite)
        return None
    manifest = read_manifest(place) if place.is_dir() and not place.is_symlink() else None
    untouched = manifest is not None and is_untouched(place, manifest)
    same = manifest is not None and all(manifest.get(name) == fingerprint[name] for name in fingerprint)
    if manifest is not None and same and untouched and (skips or not manifest.get("missing")):
        WorkFolder(place, 1).tidy()
        return manifest
    if not overwrite:
        raise InputError(f"{place} exists already; choose another name, or replace it with --overwrite")
    is_empty = place.is_dir() and not place.is_symlink() and not any(place.iterdir())
    if not untouched and not is_empty:
        got = f"no {MANIFEST}" if manifest is None else "other files than it was written with"
        raise InputError(f"{place} holds more than an export ({got}), and was not changed; choose another name")
    return None
