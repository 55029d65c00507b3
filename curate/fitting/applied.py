"""Writes a table with the columns of a fitted score; no image is read."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from curate.columns import describe_all
from curate.manifest.file_set import FileSet
from curate.manifest.store_path import AnyPath
from curate.tables.table import Table
from curate.tables.writer import TableWriter
from scoring.atomic import AtomicFile
from scoring.errors import InputError
from scoring.relative.columns import CLUSTER, COPIES, FITTED


def check_applied(out: AnyPath, table: Table) -> None:
    """Raise ``InputError`` for a name that a table cannot have, or the name of the input."""
    if out.suffix != ".parquet":
        raise InputError(f"the table is a Parquet file: expected --apply NAME.parquet, got {out}")
    if out.resolve() in {file.resolve() for file in (table.path, *table.files)}:
        raise InputError(f"{out} is the table itself, which is never overwritten; choose another name with --apply")


def write_applied(
    out: AnyPath,
    table: Table,
    columns: Mapping[str, pa.Array],
    about: Mapping[str, Any],
    files: FileSet,
    *,
    overwrite: bool,
) -> AtomicFile:
    """Write a table with new columns, which replace columns of the same name, to a temporary file.

    Args:
        out: a name ending in ``.parquet``.
        table: N rows.
        columns: N values by column name.
        about: record of the fit for the table's metadata.
        files: file set to which the table is added.
        overwrite: replace an existing file.
    """
    table = table.stored
    _refuse_user_columns(table, columns)
    kept = [name for name in table.schema.names if name not in columns]
    added = [pa.field(name, values.type) for name, values in columns.items()]
    schema = pa.schema([*(table.schema.field(name) for name in kept), *added], table.file_metadata)
    described = {**describe_all(schema.names), **table.noted("columns"), **describe_all(columns)}
    metadata = {"kind": "scores", **table.metadata, "fit": dict(about)}
    metadata["columns"] = {name: described[name] for name in schema.names}
    start = 0
    writer = TableWriter(files.draft(out), schema, metadata, overwrite=overwrite)
    try:
        for batch in table.batches():
            pieces = [values.slice(start, len(batch)) for values in columns.values()]
            arrays = [*(batch.column(name) for name in kept), *pieces]
            writer.write(pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata()))
            start += len(batch)
        writer.seal()
    except BaseException:
        writer.discard()
        raise
    return writer.file


def _refuse_user_columns(table: Table, columns: Mapping[str, pa.Array]) -> None:
    """Refuse to replace a user column that has the name of a fitted column."""
    of_fits = table.noted("columns")
    user_columns = [
        name for name in (CLUSTER, COPIES) if name in columns and name in table.schema.names and name not in of_fits
    ]
    if user_columns and FITTED not in table.schema.names:
        raise InputError(
            f"{table.path} has a column {user_columns[0]!r} that no fit wrote and that would be replaced; "
            "rename it first"
        )
