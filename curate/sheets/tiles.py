"""Rows of a table as captioned images of a contact sheet."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curate.columns import LABEL
from curate.counted import counted
from curate.manifest import ReadError
from curate.sheets.sheet import TILE, Tile
from curate.tables.images import MOVED, Images
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb


def tiles(
    table: Table,
    rows: Sequence[int],
    column: str,
    *,
    source: str | None = None,
    frames: Mapping[int, str] | None = None,
) -> dict[int, Tile]:
    """Return the image of each row, captioned with its value, its key, and its class if ``label`` is given.

    Args:
        table: with `key`, and `uri` unless a source is given.
        rows: row numbers; repeats are read once.
        column: the value in the caption.
        source: what was scored, for tables whose images are in a Parquet file; rows are found by key.
        frames: row number -> colour of its frame.

    Returns:
        Row number -> tile; one whose image cannot be read says so.

    Raises:
        InputError: if there is no path and no source for a row, the source lacks its key, or no image can be read.
    """
    unique_rows = np.unique(np.asarray(rows, np.int64))
    images = Images.of(table, unique_rows, source=source)
    taken = table.take(unique_rows, [column, *([LABEL] if LABEL in table.schema.names and column != LABEL else [])])
    labels = taken[LABEL].to_pylist() if LABEL in taken.column_names else [None] * len(unique_rows)
    drawn = {
        row: tile_of(images, row, value, label, (frames or {}).get(row))
        for row, value, label in zip(unique_rows.tolist(), taken.column(0).to_pylist(), labels, strict=True)
    }
    if drawn and all(tile.pixels is None for tile in drawn.values()):
        named = f"{counted(len(drawn), 'image')} of {table.path}"
        raise InputError(f"none of {named} can be shown, such as {images.key[int(unique_rows[0])]!r}; {MOVED}")
    return drawn


def small_image(images: Images, row: int, side: int) -> NDArray[np.uint8] | None:
    """Return the image of a row, its longer side at most ``side`` pixels; None if it cannot be read."""
    try:
        small = Image.fromarray(decode_rgb(images.data(row), short_side=side, white=images.white))
    except (ReadError, DecodeError):
        return None
    small.thumbnail((side, side))
    return np.asarray(small)


def tile_of(images: Images, row: int, value: object, label: object = None, frame: str | None = None) -> Tile:
    """Return the image of a row with its value, key and label below; a note if it cannot be read."""
    caption = f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
    try:
        pixels = decode_rgb(images.data(row), short_side=TILE, white=images.white)
    except (ReadError, DecodeError):
        pixels = None
    return Tile(pixels, caption, images.key[row], () if label is None else (str(label),), frame)
