"""Rows of a table -> the pictures of a contact sheet."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from PIL import Image

from curate.columns import KEY, URI
from curate.manifest import ReadError, SourceOptions, open_manifest, read_uri
from curate.report.captions import plain_line
from curate.report.sheet import TILE, Tile
from curate.tables.table import Table
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


def rows_by_key(table: Table, keys: Sequence[str], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the named columns of the rows with these keys.

    Args:
        table: with `key`.
        keys: repeats are looked up once.
        names: columns wanted; those that the table has not are left out.

    Returns:
        Key -> column -> value.

    Raises:
        InputError: if a key is not in the table.
    """
    wanted = pa.array(sorted(set(keys)), pa.string())
    columns = [KEY, *(name for name in names if name in table.schema.names and name != KEY)]
    found: dict[str, dict[str, Any]] = {}
    for batch in table.batches(columns):
        inside = pc.is_in(batch.column(0).cast(pa.string()), value_set=wanted)
        found.update({str(values[KEY]): values for values in batch.filter(inside).to_pylist()})
    absent = [key for key in wanted.to_pylist() if key not in found]
    if absent:
        raise InputError(
            f"{table.path} has no row with the key {plain_line(absent[0])!r} ({len(absent):,} of {len(wanted):,} are "
            "missing); give the table that was deduplicated"
        )
    return found


@dataclass(frozen=True)
class Shown:
    """What is shown of a row: RGB pixels (H, W, 3) uint8 or None where the image cannot be read, and its label."""

    pixels: NDArray[np.uint8] | None
    label: str


class Pictures:
    """The pictures of some rows of a table, each read when it is asked for.

    Args:
        table: with `key`, and `uri` unless a source is given.
        keys: all that will be asked for.
        side: longest side of a picture, pixels.
        source: what was scored, for tables whose images lie in a Parquet file; rows are found by key.
        options: how to read the source; the same as when it was scored.
        label: column that is shown beside the picture; None for none.

    Raises:
        InputError: if a key or the label is not in the table, or the source cannot be opened.
    """

    def __init__(
        self,
        table: Table,
        keys: Sequence[str],
        *,
        side: int,
        source: str | None = None,
        options: SourceOptions | None = None,
        label: str | None = None,
    ) -> None:
        table.require([label] if label else [])
        self.label = label
        self.side = side
        self._rows = rows_by_key(table, keys, [URI, label] if label else [URI])
        if source:
            self._read = _from_source(source, options or SourceOptions(), list(self._rows))
        else:
            self._read = _from_uri(table)

    def __call__(self, key: str) -> Shown:
        """Return the picture and the label of a row.

        Raises:
            InputError: if there is no path and no source for the row, or the source lacks its key.
        """
        label = self._rows[key][self.label] if self.label else None
        try:
            pixels = decode_rgb(self._read(self._rows[key]), short_side=self.side)
        except (ReadError, DecodeError):
            return Shown(None, _word(label))
        small = Image.fromarray(pixels)
        small.thumbnail((self.side, self.side))
        return Shown(np.asarray(small), _word(label))


def _word(label: object) -> str:
    return "" if label is None else str(label)


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
