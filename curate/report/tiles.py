"""Rows of a table -> the pictures of a contact sheet."""

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY, URI
from curate.manifest import ReadError, SourceOptions, open_manifest, read_uri
from curate.report.sheet import TILE, Tile
from curate.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb


def tiles(
    table: Table, rows: Sequence[int], column: str, *, source: str | None = None, options: SourceOptions | None = None
) -> dict[int, Tile]:
    """Return the picture of each row, captioned with its value and key.

    Args:
        table: with `key`, and `uri` unless a source is given.
        rows: row numbers; repeats are read once.
        column: the value in the caption.
        source: what was scored, for tables whose images lie in a Parquet file; rows are found by key.
        options: how to read the source; the same as when it was scored.

    Returns:
        Row number -> tile; one whose image cannot be read says so.

    Raises:
        InputError: if there is no path and no source for a row, or the source lacks its key.
    """
    wanted = np.unique(np.asarray(rows, np.int64))
    names = [name for name in (KEY, URI, column) if name in table.schema.names]
    found: dict[int, dict[str, object]] = {}
    start = 0
    for batch in table.batches(names):
        inside = wanted[(wanted >= start) & (wanted < start + batch.num_rows)]
        for row, values in zip(inside.tolist(), batch.take(inside - start).to_pylist(), strict=True):
            found[row] = values
        start += batch.num_rows
    keys = [str(values[KEY]) for values in found.values()]
    read = _from_source(source, options or SourceOptions(), keys) if source else _from_uri(table)
    return {row: _tile(read, values, column) for row, values in found.items()}


def _from_uri(table: Table) -> Callable[[dict[str, object]], bytes]:
    def read(values: dict[str, object]) -> bytes:
        uri = values.get(URI)
        if uri is None:
            raise InputError(
                f"{table.path} holds no path to the image {values[KEY]!r}; name what was scored with --source"
            )
        return read_uri(str(uri))

    return read


def _from_source(source: str, options: SourceOptions, keys: list[str]) -> Callable[[dict[str, object]], bytes]:
    manifest = open_manifest(source, options)
    place: dict[str, int] = {}
    step = 65536
    for start in range(0, manifest.n_rows, step):
        column = manifest.rows(start, min(start + step, manifest.n_rows)).column(KEY)
        for at in np.flatnonzero(
            pc.is_in(column, value_set=pa.array(keys, pa.string())).to_numpy(zero_copy_only=False)
        ):
            place[column[int(at)].as_py()] = start + int(at)

    def read(values: dict[str, object]) -> bytes:
        key = str(values[KEY])
        if key not in place:
            raise InputError(
                f"{source} has no image with the key {key!r}; expected what was scored, with the same --key"
            )
        return next(manifest.readers(place[key], place[key] + 1))()

    return read


def _tile(read: Callable[[dict[str, object]], bytes], values: dict[str, object], column: str) -> Tile:
    value = values[column]
    caption = f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
    try:
        pixels = decode_rgb(read(values), short_side=TILE)
    except (ReadError, DecodeError):
        pixels = None
    return Tile(pixels, caption, str(values[KEY]))
