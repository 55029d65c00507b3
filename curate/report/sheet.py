"""A contact sheet: pictures in a grid, each with its score beneath."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from scoring.errors import InputError

TILE = 128
CAPTION = 30
GAP = 8
MOST_TILES = 2000


@dataclass(frozen=True)
class Tile:
    """One picture of a sheet: RGB pixels (H, W, 3) uint8 or None where it cannot be shown, and two short lines."""

    pixels: np.ndarray | None
    first: str
    second: str


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
    row_height = TILE + CAPTION + GAP
    rows = sum(-(-len(tiles) // columns) for _, tiles in sections)
    height = GAP + rows * row_height + len(sections) * 36
    sheet = Image.new("RGB", (GAP + columns * (TILE + GAP), height), "white")
    draw = ImageDraw.Draw(sheet)
    y = GAP
    for title, tiles in sections:
        draw.text((GAP, y + 4), title, fill="black", font=heading)
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
    font: ImageFont.FreeTypeFont | ImageFont.ImageFont,
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
    for line, text in enumerate((tile.first, tile.second)):
        while text and draw.textlength(text, font=font) > TILE:
            text = text[:-2] + "…" if len(text) > 2 else ""
        draw.text((x, y + TILE + 1 + 14 * line), text, fill="black", font=font)


def save_sheet(sheet: Image.Image, path: Path, *, overwrite: bool = False) -> None:
    """Write a sheet as PNG, whole or not at all.

    Raises:
        InputError: if there is a file of that name and it may not be replaced, or the place refuses.
    """
    import io

    from scoring.atomic import AtomicFile

    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(buffer.getvalue())
