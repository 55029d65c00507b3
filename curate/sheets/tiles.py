"""Rows of a table as captioned images of a contact sheet."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from curate.columns import LABEL
from curate.counted import counted
from curate.manifest.contract import ReadError
from curate.sheets.captions import plain_line
from curate.tables.images import MOVED, Images
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TILE = 128
CAPTION = 30  # two lines
LINE = 14
GAP = 8
HEADING = 36
MOST_TILES = 2000


@dataclass(frozen=True)
class Tile:
    """One image of a sheet: RGB pixels (H, W, 3) uint8, or None if it cannot be shown, and a short caption.

    A frame is a colour such as ``green``, drawn around the image.
    """

    pixels: np.ndarray | None
    first: str
    second: str
    more: tuple[str, ...] = ()
    frame: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """The caption, of at least two lines."""
        return (self.first, self.second, *self.more)


def contact_sheet(
    sections: Sequence[tuple[str, Sequence[Tile]]], *, columns: int = 10, fewest: int | None = None
) -> Image.Image:
    """Return one image with a heading for each section and its tiles below, row by row.

    Args:
        sections: heading and tiles.
        columns: tiles per row, >= 1.
        fewest: minimal width of a section in tiles, for small sections next to each other; None for each section in
            separate rows.

    Raises:
        InputError: for more than 2,000 tiles.
    """
    refuse_too_many(sum(len(tiles) for _, tiles in sections))
    font = ImageFont.load_default(13)
    heading = ImageFont.load_default(18)
    n_lines = max((len(tile.lines) for _, tiles in sections for tile in tiles), default=2)
    row_height = TILE + CAPTION + LINE * (n_lines - 2) + GAP
    places, height = _places([len(tiles) for _, tiles in sections], columns, fewest or columns, row_height)
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), height), "white")
    draw = ImageDraw.Draw(sheet)
    for (title, tiles), (left, y) in zip(sections, places, strict=True):
        width = columns if fewest is None else max(fewest, min(len(tiles), columns))
        x = GAP + left * (TILE + GAP)
        draw.text((x, y + 4), _fitted(draw, title, width * (TILE + GAP) - GAP, heading), fill="black", font=heading)
        for at, tile in enumerate(tiles):
            place = (x + at % columns * (TILE + GAP), y + HEADING + at // columns * row_height)
            _draw_tile(sheet, draw, tile, place, font)
    return sheet


def _places(sizes: Sequence[int], columns: int, fewest: int, row_height: int) -> tuple[list[tuple[int, int]], int]:
    """Return the column and y position of each section, and the total height."""
    places: list[tuple[int, int]] = []
    left, y, tallest = 0, GAP, 0
    for size in sizes:
        width = max(fewest, min(size, columns))
        if left and left + width > columns:
            left, y, tallest = 0, y + tallest, 0
        places.append((left, y))
        left += width
        tallest = max(tallest, HEADING + -(-size // columns) * row_height)
    return places, y + tallest


def refuse_too_many(n: int) -> None:
    """Raise InputError if ``n`` images do not fit on a sheet; call it before reading them."""
    if n > MOST_TILES:
        raise InputError(f"a contact sheet holds at most {MOST_TILES} images, got {n}; draw fewer")


def _draw_tile(sheet: Image.Image, draw: ImageDraw.ImageDraw, tile: Tile, at: tuple[int, int], font: Font) -> None:
    x, y = at
    if tile.pixels is None:
        draw.rectangle((x, y, x + TILE - 1, y + TILE - 1), outline="gray")
        draw.text((x + 6, y + TILE // 2 - 8), "not readable", fill="gray", font=font)
    else:
        picture = Image.fromarray(tile.pixels)
        picture.thumbnail((TILE, TILE))
        if max(picture.size) < TILE:
            scale = TILE / max(picture.size)
            picture = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
        sheet.paste(picture, (x + (TILE - picture.width) // 2, y + (TILE - picture.height) // 2))
    if tile.frame:
        draw.rectangle((x - 3, y - 3, x + TILE + 2, y + TILE + 2), outline=tile.frame, width=3)
    for line, text in enumerate(tile.lines):
        draw.text((x, y + TILE + 3 + LINE * line), _fitted(draw, text, TILE, font), fill="black", font=font)


def _fitted(draw: ImageDraw.ImageDraw, text: str, width: int, font: Font) -> str:
    """Return the text on one line, shortened in the middle if it is wider than ``width`` pixels."""
    most = max(3, width // 3)
    while True:
        line = plain_line(text, most)
        length = draw.textlength(line, font=font)
        if length <= width or most == 3:
            return line
        most = max(3, min(most - 1, int(most * width / length) + 1))


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
        rows: row indices; repeats are read once.
        column: the value in the caption.
        source: the scored source, for tables whose images are in a Parquet file; rows are matched by key.
        frames: row index -> colour of its frame.

    Returns:
        Row index -> tile; unreadable images have a note.

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
    """Return the image of a row with a longer side of at most ``side`` pixels; None if it cannot be read."""
    try:
        small = Image.fromarray(decode_rgb(images.data(row), short_side=side, white=images.white))
    except (ReadError, DecodeError):
        return None
    small.thumbnail((side, side))
    return np.asarray(small)


def tile_of(images: Images, row: int, value: object, label: object = None, frame: str | None = None) -> Tile:
    """Return the tile of a row with its value, key and label; a note if the image cannot be read."""
    caption = f"{value:.4g}" if isinstance(value, (int, float)) else str(value)
    try:
        pixels = decode_rgb(images.data(row), short_side=TILE, white=images.white)
    except (ReadError, DecodeError):
        pixels = None
    return Tile(pixels, caption, images.key[row], () if label is None else (str(label),), frame)
