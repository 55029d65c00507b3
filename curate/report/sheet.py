"""A contact sheet: pictures in a grid, each with its score beneath."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from curate.report.captions import plain_line
from scoring.errors import InputError

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont

TILE = 128
CAPTION = 30  # two lines
LINE = 14
GAP = 8
MOST_TILES = 2000


@dataclass(frozen=True)
class Tile:
    """One picture of a sheet: RGB pixels (H, W, 3) uint8 or None where it cannot be shown, and short lines beneath.

    A frame is a colour such as ``green``, drawn around the picture.
    """

    pixels: np.ndarray | None
    first: str
    second: str
    more: tuple[str, ...] = ()
    frame: str | None = None

    @property
    def lines(self) -> tuple[str, ...]:
        """What stands beneath the picture: two lines or more."""
        return (self.first, self.second, *self.more)


def contact_sheet(sections: Sequence[tuple[str, Sequence[Tile]]], *, columns: int = 10) -> Image.Image:
    """Return one picture with a heading for each section and its tiles beneath, row by row.

    Args:
        sections: heading and tiles.
        columns: tiles a row, >= 1.

    Raises:
        InputError: if there are more than 2,000 tiles, which no one could look at.
    """
    refuse_too_many(sum(len(tiles) for _, tiles in sections))
    font = ImageFont.load_default(13)
    heading = ImageFont.load_default(18)
    n_lines = max((len(tile.lines) for _, tiles in sections for tile in tiles), default=2)
    row_height = TILE + CAPTION + LINE * (n_lines - 2) + GAP
    rows = sum(-(-len(tiles) // columns) for _, tiles in sections)
    height = GAP + rows * row_height + len(sections) * 36
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), height), "white")
    draw = ImageDraw.Draw(sheet)
    y = GAP
    for title, tiles in sections:
        draw.text((GAP, y + 4), _fitted(draw, title, sheet.width - 2 * GAP, heading), fill="black", font=heading)
        y += 36
        for at, tile in enumerate(tiles):
            x = GAP + at % columns * (TILE + GAP)
            _draw_tile(sheet, draw, tile, (x, y + at // columns * row_height), font)
        y += -(-len(tiles) // columns) * row_height
    return sheet


def refuse_too_many(n: int) -> None:
    """Raise ``InputError`` unless ``n`` pictures fit on a sheet; ask before reading them."""
    if n > MOST_TILES:
        raise InputError(f"a contact sheet holds at most {MOST_TILES} pictures, got {n}; ask for fewer")


def _draw_tile(
    sheet: Image.Image,
    draw: ImageDraw.ImageDraw,
    tile: Tile,
    at: tuple[int, int],
    font: Font,
) -> None:
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
    """The text on one line; the middle is left out where it is wider than ``width`` pixels."""
    most = max(3, width // 3)
    while True:
        line = plain_line(text, most)
        length = draw.textlength(line, font=font)
        if length <= width or most == 3:
            return line
        most = max(3, min(most - 1, int(most * width / length) + 1))
