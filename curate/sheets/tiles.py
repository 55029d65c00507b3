"""Rows of a table -> the images of a contact sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from curate.columns import LABEL
from curate.counted import counted
from curate.manifest import ReadError
from curate.sheets.captions import plain_line
from curate.sheets.sheet import TILE, Tile
from curate.tables.images import MOVED, Images
from curate.tables.keys import rows_with_keys
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
    """Return the image of each row, captioned with its value, its key, and its class where there is ``label``.

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


@dataclass(frozen=True)
class Shown:
    """The tile of a row: RGB pixels (H, W, 3) uint8 or None where the image cannot be read, and its label."""

    pixels: NDArray[np.uint8] | None
    label: str


class TileImages:
    """The images of some rows of a table, each read when it is requested.

    Args:
        table: with `key`, and `uri` unless a source is given.
        keys: all that will be requested.
        side: longest side of an image, pixels.
        source: what was scored, for tables whose images are in a Parquet file; rows are found by key.
        label: column that is shown next to the image; None for none.

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
        label: str | None = None,
    ) -> None:
        table.require([label] if label else [])
        self.side = side
        self._row = rows_with_keys(table, keys)
        absent = sorted(set(keys) - set(self._row))
        if absent:
            raise InputError(
                f"{table.path} has no row with the key {plain_line(absent[0])!r} ({len(absent):,} of "
                f"{len(set(keys)):,} are missing); give the table that was deduplicated"
            )
        rows = list(self._row.values())
        self._images = Images.of(table, rows, source=source)
        labels = table.take(rows, [label]).column(0).to_pylist() if label else [None] * len(rows)
        self._label = dict(zip(rows, labels, strict=True))

    def __call__(self, key: str) -> Shown:
        """Return the image and the label of a row; no pixels where the image cannot be read."""
        row = self._row[key]
        label = self._label[row]
        return Shown(small_image(self._images, row, self.side), "" if label is None else str(label))


def small_image(images: Images, row: int, side: int) -> NDArray[np.uint8] | None:
    """Return the image of a row, its longer side at most ``side`` pixels; None where it cannot be read."""
    try:
        small = Image.fromarray(decode_rgb(images.data(row), short_side=side, white=images.white))
    except (ReadError, DecodeError):
        return None
    small.thumbnail((side, side))
    return np.asarray(small)


def tile_of(images: Images, row: int, value: object, label: object = None, frame: str | None = None) -> Tile:
    """Return the image of a row with its value, key and label beneath; one that cannot be read says so."""
    caption = f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
    try:
        pixels = decode_rgb(images.data(row), short_side=TILE, white=images.white)
    except (ReadError, DecodeError):
        pixels = None
    return Tile(pixels, caption, images.key[row], () if label is None else (str(label),), frame)
