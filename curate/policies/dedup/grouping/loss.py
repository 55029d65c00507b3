"""What an image has lost against other copies of it: pixels, colours, grey levels, and what compression takes.

The table shows it: by sizes, formats and image quality. A table without a column is read as if no image had lost
what that column would show.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from curate.tables.digests import is_text
from curate.tables.needs import is_number
from curate.tables.rows import Rows
from curate.tables.table import Table

WIDTH, HEIGHT, N_BYTES, FORMAT = "width", "height", "n_bytes", "format"
COLOURS, COLOURFULNESS, ENTROPY = "quality_colours", "quality_colourfulness", "quality_entropy"
JPEG, BLOCKING = "quality_jpeg", "quality_blocking"
OF_DETAIL = (WIDTH, HEIGHT, COLOURS, COLOURFULNESS, ENTROPY, JPEG, BLOCKING)  # columns that ``detail`` reads
OF_FIDELITY = (FORMAT, COLOURS, COLOURFULNESS, JPEG)  # and ``fidelity``

LEAST_COLOUR = 1.0  # colourfulness below which an image is grey
TWO, FEW, PALETTE = 2, 16, 256  # colours
PLAIN = 3.5  # bits of entropy below which a lossy image is of few colours, to which compression added others
HEAVY = 30  # JPEG quality up to which
BLOCKY = 1.5  # and steps at the grid from which compression shows
LEFT = 0.25  # of the detail of such an image
LOSSLESS = ("png", "bmp", "tiff", "gif")
EXACT, OF_PALETTE, UNKNOWN = 101.0, 60.0, 75.0  # fidelity next to JPEG's 1 to 100: lossless, a palette, WebP and others

Values = NDArray[np.float64]


def facts_in(table: Table, columns: Iterable[str]) -> tuple[str, ...]:
    """Return which of some columns a table has, of the type that is read: text for the format, else numbers."""
    kinds = {field.name: field.type for field in table.schema}
    return tuple(name for name in columns if name in kinds and (is_text if name == FORMAT else is_number)(kinds[name]))


def numbers(rows: Rows, name: str) -> Values:
    """Return a column of rows as float64, shape (N,), NaN where there is no value; all NaN where it was not read."""
    column = rows.exact.get(name)
    if column is None:
        return rows.numbers.get(name, np.full(len(rows), np.nan))
    return np.where(column.valid, column.values.astype(np.float64), np.nan)


def has_format(rows: Rows, formats: Iterable[str]) -> NDArray[np.bool_]:
    """Return which rows are of one of some formats, shape (N,); none where the format was not read."""
    codes = rows.names.get(FORMAT)
    if codes is None:
        return np.zeros(len(rows), bool)
    return np.isin(codes.codes, [codes.names.index(name) for name in formats if name in codes.names])


def bits(rows: Rows) -> NDArray[np.int64]:
    """Return the bits a pixel of each row: 24 in colour, 8 grey, 4 for up to 16 colours, 1 for two; shape (N,)."""
    colours, lossless = numbers(rows, COLOURS), has_format(rows, LOSSLESS)
    depth = np.where(numbers(rows, COLOURFULNESS) < LEAST_COLOUR, 8, 24)
    plain = ~lossless & (numbers(rows, ENTROPY) < PLAIN)
    depth[(colours <= FEW) | plain] = 4
    depth[colours <= TWO] = 1
    return depth


def detail(rows: Rows) -> Values:
    """Return how many bits there are to see in each row: pixels x bits, a quarter where heavy compression shows.

    NaN for a row whose size is not known.
    """
    heavy = (numbers(rows, JPEG) <= HEAVY) | (numbers(rows, BLOCKING) >= BLOCKY)
    return numbers(rows, WIDTH) * numbers(rows, HEIGHT) * bits(rows) * np.where(heavy, LEFT, 1.0)


def fidelity(rows: Rows) -> Values:
    """Return how closely the file of each row follows its pixels: 101 lossless, JPEG's quality, 75 for other formats.

    An image of 17 to 256 colours counts as 60: it was most likely reduced to a palette. One of fewer may be a drawing.
    """
    colours, jpeg = numbers(rows, COLOURS), numbers(rows, JPEG)
    closeness = np.where(np.isnan(jpeg), np.where(has_format(rows, LOSSLESS), EXACT, UNKNOWN), jpeg)
    palette = (colours > FEW) & (colours <= PALETTE) & (numbers(rows, COLOURFULNESS) >= LEAST_COLOUR)
    return np.where(palette & (closeness == EXACT), OF_PALETTE, closeness)


def ranks(rows: Rows) -> NDArray[np.int64]:
    """Return numbers that are lower the more a row has lost: by ``detail``, then ``fidelity``; shape (N,)."""
    keys = [np.nan_to_num(values, nan=-np.inf) for values in (fidelity(rows), detail(rows))]
    order = np.lexsort(keys)
    rises = np.zeros(len(rows), bool)
    for values in keys:
        rises[1:] |= values[order[1:]] != values[order[:-1]]
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.cumsum(rises)
    return rank
