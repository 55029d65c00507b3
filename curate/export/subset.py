"""Any subset, or scored table, as another tool takes it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY, OK, STATUS, URI
from curate.export.batch import batch_of, is_plain
from curate.export.contract import ExportOptions, Format
from curate.export.csv_file import LABEL
from curate.export.exchange import write_batch
from curate.export.names import KeyNames
from curate.export.table import FORMATS
from curate.manifest import SourceOptions
from curate.tables.images import images_by_key, require_images
from curate.tables.table import Table, open_table
from scoring.atomic import require_folder
from scoring.errors import InputError
from scoring.lookup import lookup

SAID_OF_OK = (STATUS, "error")  # columns that say the same of every row whose image was scored


@dataclass(frozen=True)
class ExportResult:
    """What went out.

    Attributes:
        format: its name.
        rows: images.
        labelled: those that carry a label.
        left_out: rows whose image could not be scored.
        paths: what lies on the disk now, in the order written; none of a dry run.
        notes: what the format has to say.
    """

    format: str
    rows: int
    labelled: int
    left_out: int
    paths: tuple[Path, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {**self.__dict__, "paths": [str(path) for path in self.paths], "notes": list(self.notes)}


def export(
    table: str | Path,
    out: str | Path | None,
    format: str,
    *,
    label: str | None = None,
    link: bool = False,
    source: str | None = None,
    options: SourceOptions | None = None,
    overwrite: bool = False,
    dry_run: bool = False,
) -> ExportResult:
    """Write the rows of a table for another tool: key, place or image, label and scores.

    Rows whose image could not be scored stay behind.

    Args:
        table: a subset, a scored table, or any with a column `key`.
        out: a file, or for the formats of images a folder; None of a dry run.
        format: a key of ``FORMATS``.
        label: column of the classes; None for `label` where there is one.
        link: symbolic links to local files where images would be copied.
        source: what was scored, for tables that name no files; rows are found by key.
        options: how to read the source.
        overwrite: replace a file that is there, or an earlier export of the same format.
        dry_run: check everything but the images, and write nothing.

    Raises:
        InputError: for an unknown format, rows or images that cannot be had, or a place that refuses.
    """
    kind = lookup(FORMATS, format, kind="format")
    place = None if dry_run else _place(out, kind, format, overwrite)
    opened = open_table(table)
    rows, label, left_out = _rows(opened, label)
    if source is not None and not kind.reads_images:
        raise InputError(f"--source is for formats that hold images, and {format} names them only; leave it out")
    batch = batch_of(rows, label=label)
    if kind.folder:
        KeyNames(item.key for item in batch)
        require_images(opened, source)
    images = images_by_key(rows, source=source, options=options) if kind.reads_images else None
    labels = [item.label for item in batch if item.label is not None]
    paths: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    if place is not None:
        export_options = ExportOptions(images, link=link, classes=tuple(sorted(set(labels))), overwrite=overwrite)
        written = write_batch(rows, place, format, export_options, label=label)
        paths, notes = written.paths, written.notes
    return ExportResult(format, len(batch), len(labels), left_out, paths, notes)


def _place(out: str | Path | None, kind: Format, format: str, overwrite: bool) -> Path:
    """Return where to write, refused early: before the rows are read."""
    if out is None:
        what = "a folder" if kind.folder else f"a file name that ends in {kind.suffix}"
        raise InputError(f"expected {what} to write, got none; give --out, or --dry-run")
    path = Path(out)
    if not kind.folder and path.suffix.lower() != kind.suffix:
        raise InputError(f"expected a file name that ends in {kind.suffix} for {format}, got {path}; rename --out")
    require_folder(path)
    if path.exists() and not overwrite:
        raise InputError(f"{path} exists already; choose another name, or replace it with --overwrite")
    return path


def _rows(table: Table, label: str | None) -> tuple[pa.Table, str | None, int]:
    """Return what can go out of a table, the column of its labels, and how many rows stay behind."""
    table.require([KEY, *([label] if label else [])])
    schema = table.schema
    label = label or (LABEL if LABEL in schema.names else None)
    if label is not None and not is_plain(schema.field(label).type):
        raise InputError(f"expected text or numbers in the column {label!r}, got {schema.field(label).type}")
    rows = table.read([field.name for field in schema if field.name in (KEY, URI) or is_plain(field.type)])
    n_rows = rows.num_rows
    if STATUS in rows.column_names:
        rows = rows.filter(pc.equal(rows[STATUS], OK))
        rows = rows.drop_columns([name for name in SAID_OF_OK if name in rows.column_names])
    if not rows.num_rows:
        got = f"{n_rows:,} whose image could not be scored" if n_rows else "none"
        raise InputError(f"expected rows with an image in {table.path}, got {got}; export another table")
    return rows, label, n_rows - rows.num_rows
