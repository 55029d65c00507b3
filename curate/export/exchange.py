"""Rows out, and labels back, in a format by its name."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from curate.export.batch import batch_of
from curate.export.contract import ExportOptions, Written
from curate.export.labels import ExpectedRows, Labels
from curate.export.table import FORMATS
from scoring.atomic import require_folder
from scoring.lookup import lookup


def write_batch(
    table: pa.Table, out: str | Path, format: str, options: ExportOptions | None = None, *, label: str | None = None
) -> Written:
    """Write rows for an annotation tool, or for a loader.

    Args:
        table: as `batch_of` takes it.
        out: a file, or for the formats of images a folder, that is not there yet.
        format: one of FORMATS.
        options: images, links and classes.
        label: column of the classes, which go out as labels; None where labels are what is asked for.

    Raises:
        InputError: for an unknown format, rows that cannot be written, or a place that refuses.
    """
    writer = lookup(FORMATS, format, kind="format")
    path = Path(out)
    require_folder(path)
    batch = batch_of(table, label=label)
    written = writer.write(batch, path, options or ExportOptions())
    if not batch.left_out:
        return written
    note = f"left out, as no tool reads them: {', '.join(batch.left_out)}"
    return replace(written, notes=(*written.notes, note))


def read_labels(
    path: str | Path,
    format: str,
    *,
    keys: Collection[str] | Mapping[str, str | None],
    classes: Iterable[str] | None = None,
    name: str | None = None,
) -> Labels:
    """Read labels back from an annotation tool.

    Args:
        path: the tool's export.
        format: one of FORMATS.
        keys: of the round; with their uris, images are also found by these where a tool lost the keys.
        classes: names that are known; None takes every name.
        name: the column, control or field that holds the labels, where a file has several.

    Raises:
        InputError: for an unknown format, a file of another format, or one in which nothing can be used.
    """
    reader = lookup(FORMATS, format, kind="format")
    return reader.read(Path(path), ExpectedRows.of(keys, classes), name)
