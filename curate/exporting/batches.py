"""Write the batch of a round in a named format, and read its labels back."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from curate.columns import KEY, URI
from curate.exporting.contract import ExportRequest
from curate.exporting.labels import ExpectedRows, Labels
from curate.exporting.names import FileNames
from curate.exporting.row_images import COPY, ImageReader, RowImages
from curate.exporting.rows import Source, is_plain
from curate.exporting.run import Job, Written, write_out
from curate.exporting.survey import survey
from curate.exporting.table import TOOLS
from curate.tables.classes import ClassList
from scoring.atomic import require_folder
from scoring.errors import InputError
from scoring.lookup import lookup, name_list

RANK = "rank"


def write_batch(
    table: pa.Table,
    out: str | Path,
    format: str,
    *,
    images: ImageReader | None = None,
    link: str = COPY,
    classes: tuple[str, ...] = (),
) -> Written:
    """Write rows for an annotation tool.

    Args:
        table: B rows with `key` and, if known, `uri`, `rank`, `round`, `gain`, `predicted`, `probability` (of the
            predicted class, in [0, 1]) and scores. Sorted by `rank` if every row has one.
        out: a file, or for image formats a folder, that does not exist yet.
        format: one of TOOLS.
        images: key -> encoded image, for rows that other tools cannot open (bytes in a table, members of a tar file);
            None reads the images at the rows' paths.
        link: `copy`, or `hard` or `symbolic` links to local files instead of copies.
        classes: classes to choose from; empty for the classes of the rows.

    Raises:
        InputError: for an unknown format, rows that cannot be written, or a path that cannot be written.
    """
    kind = lookup(TOOLS, format, kind="format")
    path = Path(out)
    require_folder(path)
    if os.path.lexists(path):
        raise InputError(f"{path} exists already; choose another name")
    if KEY not in table.column_names:
        raise InputError(
            f"expected a column 'key' in the batch, got {name_list(table.column_names, KEY)}; rename one to 'key'"
        )
    if table.num_rows == 0:
        raise InputError("expected at least one row in the batch, got none; choose a larger budget")
    source = Source(by_rank(table))
    others = [name for name in table.column_names if name not in (KEY, URI)]
    columns = tuple(name for name in others if is_plain(table.schema.field(name).type))
    names = FileNames(nested=kind.nested)
    request = ExportRequest(kind, columns, None, names=names, class_list=ClassList("", classes, "the given list"))
    plan, _, _ = survey(source, request, path.name)
    written = write_out(Job(plan, source, path, hint="remove it from the batch"), RowImages(images, link=link))
    left_out = [name for name in others if name not in columns]
    if not left_out:
        return written
    note = f"left out, because no tool reads them: {', '.join(left_out)}"
    return replace(written, notes=(*written.notes, note))


def by_rank(table: pa.Table) -> pa.Table:
    """Return rows sorted by `rank` if every row has one; otherwise unchanged."""
    if RANK not in table.column_names or table[RANK].null_count or not pa.types.is_integer(table[RANK].type):
        return table
    return table.take(pa.array(np.argsort(table[RANK].to_numpy(), kind="stable")))


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
        format: one of TOOLS.
        keys: of the round; if mapped to uris, images whose key a tool lost are found by these.
        classes: allowed names; None allows every name.
        name: the column, control or field with the labels, if a file has several.

    Raises:
        InputError: for an unknown format, a file of another format, or a file without usable labels.
    """
    reader = lookup(TOOLS, format, kind="format").read
    if reader is None:
        raise ValueError(f"{format} is in the table of formats that labels come back from, and reads none")
    return reader(Path(path), ExpectedRows.of(keys, classes), name)
