"""How a copy was changed: differences between two rows that show the same, in words."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.columns import FRAMES
from curate.policies.dedup.grouping.loss import (
    BLOCKING,
    COLOURFULNESS,
    COLOURS,
    ENTROPY,
    FORMAT,
    HEIGHT,
    JPEG,
    LEAST_COLOUR,
    N_BYTES,
    PALETTE,
    WIDTH,
    bits,
)
from curate.tables.rows import Rows

BRIGHTNESS, CONTRAST, SHARPNESS = "quality_brightness", "quality_contrast", "quality_sharpness"
NOISE, BORDER = "quality_noise", "quality_border"
READ = (WIDTH, HEIGHT, N_BYTES, FORMAT, COLOURS, COLOURFULNESS, ENTROPY, JPEG, BLOCKING)  # what keeping reads, too
COMPARED = (*READ, FRAMES, BRIGHTNESS, CONTRAST, SHARPNESS, NOISE, BORDER)  # what is compared, where a table has it
TURNED = frozenset({"rotated 90", "rotated 270", "transposed", "transversed"})  # views that exchange width and height

SHAPE = 0.03  # of the ratio of the sides: by so much another is another shape
LIGHT = 0.06  # of white: a change of the mean that is named
SETTING = 3  # of JPEG's quality
FALLS, RISES = 0.8, 1.25  # of contrast
PALER, RICHER = 0.6, 1.6  # of colourfulness
BLURRED, SHARPENED = 0.75, 1.35  # of sharpness
GRAIN = 3.0  # grey levels of noise
FRAME = 0.03  # share of the area in a border


@dataclass(frozen=True)
class Appearance:
    """The properties of N rows that the table shows.

    Attributes:
        rows: with the columns of ``COMPARED`` that their table has.
        bits: of each a pixel, shape (N,) int8.
    """

    rows: Rows
    bits: NDArray[np.int8]

    @classmethod
    def of(cls, rows: Rows) -> "Appearance":
        """Return the appearance of rows."""
        return cls(rows, bits(rows).astype(np.int8))

    def value(self, name: str, row: int) -> float:
        """Return the value of a row in a column of numbers; NaN if absent."""
        column = self.rows.exact.get(name)
        return float(column.values[row]) if column is not None and column.valid[row] else np.nan

    def format(self, row: int) -> str | None:
        """Return the format of a row, or None."""
        codes = self.rows.names.get(FORMAT)
        return codes.names[codes.codes[row]] if codes is not None and codes.codes[row] >= 0 else None


def change_words(of: Appearance, row: int, kept_of: Appearance, kept: int, *, turned: bool, part: bool) -> list[str]:
    """Return the differences of a row from the kept one, such as ``half the size``, ``grey``.

    Args:
        of: rows of the row.
        row: that goes.
        kept_of: rows of the one that stays.
        kept: that stays.
        turned: the one shows the other turned by 90 degrees.
        part: the one shows a part of the other, which is reported elsewhere: sizes are not compared.
    """

    def pair(name: str) -> tuple[float, float]:
        return of.value(name, row), kept_of.value(name, kept)

    words = [] if part else _size(pair(WIDTH), pair(HEIGHT), turned=turned)
    words += _colours(pair(COLOURFULNESS), pair(COLOURS), int(of.bits[row]), int(kept_of.bits[kept]))
    words += _coding(of.format(row), kept_of.format(kept), pair(JPEG))
    for name, step, falls, rises in (
        (BRIGHTNESS, LIGHT, "darker", "brighter"),
        (BORDER, FRAME, "without its border", "with a border"),
        (NOISE, GRAIN, "less noise", "more noise"),
    ):
        apart = float(np.subtract(*pair(name)))
        words += [falls] if apart <= -step else [rises] if apart >= step else []
    for name, low, high, falls, rises in (
        (CONTRAST, FALLS, RISES, "less contrast", "more contrast"),
        (SHARPNESS, BLURRED, SHARPENED, "blurred", "sharper"),
    ):
        ratio = _ratio(*pair(name))
        words += [falls] if ratio <= low else [rises] if ratio >= high else []
    return words


def _size(widths: tuple[float, float], heights: tuple[float, float], *, turned: bool) -> list[str]:
    (width, kept_width), (height, kept_height) = widths, heights
    if turned:
        width, height = height, width
    if not np.isfinite([width, height, kept_width, kept_height]).all() or (width, height) == (kept_width, kept_height):
        return []
    if abs(_ratio(width * kept_height, height * kept_width) - 1) > SHAPE:
        return [f"{width:.0f} x {height:.0f} pixels instead of {kept_width:.0f} x {kept_height:.0f}"]
    scale = (_ratio(width, kept_width) * _ratio(height, kept_height)) ** 0.5
    return [f"{'reduced' if scale < 1 else 'enlarged'} to {scale:.0%}"]


def _colours(colourful: tuple[float, float], colours: tuple[float, float], bits: int, kept_bits: int) -> list[str]:
    words = {1: "two colours", 4: "few colours"}
    if bits < kept_bits and bits in words:
        return [words[bits]]
    is_grey, kept_grey = (value < LEAST_COLOUR for value in colourful)
    if is_grey != kept_grey and np.isfinite(colourful).all():
        return ["grey" if is_grey else "in colour"]
    ratio = _ratio(*colourful)
    words_of_ratio = ["less colourful"] if ratio <= PALER else ["more colourful"] if ratio >= RICHER else []
    in_palette, kept_in_palette = (value <= PALETTE for value in colours)
    is_reduced = in_palette and not kept_in_palette and not is_grey
    return [*(["a palette of colours"] if is_reduced else []), *([] if is_grey else words_of_ratio)]


def _coding(name: str | None, kept: str | None, settings: tuple[float, float]) -> list[str]:
    quality, kept_quality = settings
    words = []
    if name == "jpeg" and np.isfinite(quality):
        before = f", not {kept_quality:.0f}" if np.isfinite(kept_quality) else ""
        if not before or abs(quality - kept_quality) >= SETTING:
            words.append(f"JPEG quality {quality:.0f}{before}")
    if name != kept and name is not None and kept is not None and name != "jpeg":
        words.append(f"saved as {name}")
    return words


def _ratio(value: float, other: float) -> float:
    """Return value / other; 1 (unchanged) if undefined."""
    return value / other if np.isfinite([value, other]).all() and other > 0 else 1.0
