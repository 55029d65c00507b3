"""The images behind rows of a table, read again: from what was scored, or from the uris in the table."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.manifest import ReadError, SourceOptions, open_manifest, read_uri
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb

WIDEST_GAP = 512  # rows that are passed over rather than opening the source anew
STEP = 65_536


def squares(
    table: Table, rows: Sequence[int], *, most: int, source: str | None = None, options: SourceOptions | None = None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield the number and the central square of each row whose image can be read, in the order of the source.

    Args:
        table: with ``key``, and with ``uri`` unless a source is given.
        rows: row numbers, ascending.
        most: longest side of a square, pixels; larger pictures are resized to it.
        source: what was scored; rows are found by key.
        options: how to read the source, as when it was scored.

    Yields:
        Row number, and uint8 of shape (S, S, 3), S <= most.

    Raises:
        InputError: if a row has neither a path nor a source, or the source lacks its key.
    """
    for row, data in _from_source(table, rows, source, options) if source else _from_uris(table, rows):
        pixels = _decoded(data, most) if data is not None else None
        if pixels is not None:
            yield row, pixels


def _decoded(data: bytes, most: int) -> NDArray[np.uint8] | None:
    """Return the central square, or None where the picture cannot be decoded."""
    try:
        pixels = decode_rgb(data)
        if min(pixels.shape[:2]) > most:
            pixels = decode_rgb(data, short_side=most)
    except DecodeError:
        return None
    side = min(pixels.shape[:2])
    top, left = ((length - side) // 2 for length in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])


def _from_uris(table: Table, rows: Sequence[int]) -> Iterator[tuple[int, bytes | None]]:
    if URI not in table.schema.names:
        raise InputError(f"--degrade: {table.path} has no column 'uri'; name what was scored with --source")
    uris = table.read([URI]).column(0).take(pa.array(rows, pa.int64())).to_pylist()
    if any(uri is None for uri in uris):
        raise InputError(
            f"--degrade: {table.path} holds no path to {sum(uri is None for uri in uris):,} of {len(rows):,} images; "
            "name what was scored with --source"
        )
    for row, uri in zip(rows, uris, strict=True):
        try:
            yield row, read_uri(uri)
        except ReadError:
            yield row, None


def _from_source(
    table: Table, rows: Sequence[int], source: str, options: SourceOptions | None
) -> Iterator[tuple[int, bytes | None]]:
    manifest = open_manifest(source, options or SourceOptions())
    table.require([KEY])
    wanted = table.read([KEY]).column(0).take(pa.array(rows, pa.int64())).combine_chunks()
    row_of: dict[int, int] = {}  # place in the source -> row of the table
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY)
        at = pc.index_in(keys, value_set=wanted.cast(pa.string()))
        for place in np.flatnonzero(at.is_valid().to_numpy(zero_copy_only=False)).tolist():
            row_of[start + place] = rows[at[place].as_py()]
    if len(row_of) < len(rows):
        known = set(row_of.values())
        absent = next(wanted[number].as_py() for number, row in enumerate(rows) if row not in known)
        raise InputError(
            f"--source: {source} has no image with the key {absent!r} ({len(rows) - len(row_of):,} of {len(rows):,} "
            "are missing); give what was scored, with the same --key"
        )
    places = np.array(sorted(row_of), np.int64)
    cuts = [0, *(np.flatnonzero(np.diff(places) > WIDEST_GAP) + 1).tolist(), len(places)]
    for first, last in pairwise(cuts):
        start, stop = int(places[first]), int(places[last - 1]) + 1
        for place, read in enumerate(manifest.readers(start, stop), start):
            if place in row_of:
                try:
                    yield row_of[place], read()
                except ReadError:
                    yield row_of[place], None
