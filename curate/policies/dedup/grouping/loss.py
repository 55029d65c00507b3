"""The quality loss of an image relative to its copies: pixels, colours, grey levels, and compression.

It is computed from sizes, formats and image quality. A missing column is treated as no loss.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from curate.policies.dedup.finders.passing import LOSSLESS, has_format
from curate.tables.digests import is_text
from curate.tables.needs import is_number
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Floats, Ints, Mask

WIDTH, HEIGHT, N_BYTES, FORMAT = "width", "height", "n_bytes", "format"
COLOURS, COLOURFULNESS, ENTROPY = "quality_colours", "quality_colourfulness", "quality_entropy"
JPEG, BLOCKING, RESOLUTION, NOISE = "quality_jpeg", "quality_blocking", "quality_resolution", "quality_noise"
OF_SIGHT = (COLOURS, COLOURFULNESS, ENTROPY, JPEG, BLOCKING, RESOLUTION, NOISE)
OF_DETAIL = (WIDTH, HEIGHT, *OF_SIGHT)  # columns for ``least-lost``
OF_FIDELITY = (FORMAT, COLOURS, COLOURFULNESS, JPEG)  # columns for ``fidelity``

LEAST_COLOUR = 1.0  # colourfulness below which an image is grey
TWO, FEW, PALETTE = 2, 16, 256  # numbers of colours
GREY_BITS, COLOUR_BITS = 8, 24  # a pixel
PLAIN = 3.5  # entropy in bits below which a lossy image originally had few colours
HEAVY = 30  # JPEG quality up to which compression is strong
BLOCKY = 1.5  # ratio of steps at the grid from which it is visible
NOISY = 1.2  # colour noise in grey levels; photographs in JPEGs have less
HALVED = 90  # JPEG quality up to which most encoders halve the colour resolution, and thus sensor noise
LEFT = 0.25  # share of the detail left in a spoilt image
LARGER = 1.3  # minimal ratio of pixels of an enlarged copy to another copy
SHARP = 0.7  # resolution of an image that was hardly enlarged
POWER = 2.5  # pixels x resolution^2.5 is smaller for enlarged copies, and larger for originals of reduced ones
EXACT, OF_PALETTE, UNKNOWN = 101.0, 60.0, 75.0  # fidelity next to JPEG's 1 to 100: lossless, a palette, WebP and others


def facts_in(table: Table, columns: Iterable[str]) -> tuple[str, ...]:
    """Return the given columns that a table has with the required type: text for the format, else numbers."""
    kinds = {field.name: field.type for field in table.schema}
    return tuple(name for name in columns if name in kinds and (is_text if name == FORMAT else is_number)(kinds[name]))


def numbers(rows: Rows, name: str) -> Floats:
    """Return a column of rows as float64, shape (N,), NaN if missing; all NaN if not read."""
    column = rows.exact.get(name)
    if column is None:
        return rows.numbers.get(name, np.full(len(rows), np.nan))
    return np.where(column.valid, column.values.astype(np.float64), np.nan)


def bits(rows: Rows) -> Ints:
    """Return the bits per pixel of each row: 24 in colour, 8 grey, 4 for up to 16 colours, 1 for two; shape (N,)."""
    colours, lossless = numbers(rows, COLOURS), has_format(rows, LOSSLESS)
    depth = np.where(numbers(rows, COLOURFULNESS) < LEAST_COLOUR, GREY_BITS, COLOUR_BITS)
    plain = ~lossless & (numbers(rows, ENTROPY) < PLAIN)
    depth[(colours <= FEW) | plain] = 4
    depth[colours <= TWO] = 1
    return depth


def detail(rows: Rows, large: Mask | None = None) -> Floats:
    """Return the visible bits of each row: pixels x bits, a quarter if ``spoilt``; NaN without a size.

    Rows in the mask ``large`` (see ``enlarged``) come after all others.
    """
    shown = numbers(rows, WIDTH) * numbers(rows, HEIGHT) * bits(rows) * np.where(spoilt(rows), LEFT, 1.0)
    return shown if large is None else np.where(large, -1 / (1 + shown), shown)


def spoilt(rows: Rows) -> Mask:
    """Return a mask of the rows with strong compression or added noise, shape (N,).

    Noise is only used in lossy formats, which would have removed a sensor's noise: in others the original may have it.
    """
    quality = numbers(rows, JPEG)
    is_noisy = (quality <= HALVED) & (numbers(rows, NOISE) >= NOISY)
    return np.asarray((quality <= HEAVY) | (numbers(rows, BLOCKING) >= BLOCKY) | is_noisy)


def fidelity(rows: Rows) -> Floats:
    """Return how closely the file of each row follows its pixels: 101 lossless, JPEG's quality, 75 for other formats.

    Images of 17 to 256 colours get 60, since they were most likely reduced to a palette; with fewer they may be
    drawings.
    """
    colours, jpeg = numbers(rows, COLOURS), numbers(rows, JPEG)
    closeness = np.where(np.isnan(jpeg), np.where(has_format(rows, LOSSLESS), EXACT, UNKNOWN), jpeg)
    palette = (colours > FEW) & (colours <= PALETTE) & (numbers(rows, COLOURFULNESS) >= LEAST_COLOUR)
    return np.where(palette & (closeness == EXACT), OF_PALETTE, closeness)


def enlarged(rows: Rows, owner: Ints) -> Mask:
    """Return a mask of the enlarged rows: a smaller row of their group and depth has more detail, shape (N,).

    Args:
        rows: N rows.
        owner: the kept row of each row's group, shape (N,); negative for none.
    """
    pixels, resolution = numbers(rows, WIDTH) * numbers(rows, HEIGHT), numbers(rows, RESOLUTION)
    known = np.flatnonzero((owner >= 0) & (pixels > 0) & (resolution > 0))
    is_soft = resolution < SHARP
    size = np.log(np.where(pixels > 0, pixels, np.nan))
    shown = size + POWER * np.log(np.where(resolution > 0, resolution, np.nan))
    depth = bits(rows)
    faithful = np.where((depth >= GREY_BITS) & ~spoilt(rows), shown, -np.inf)  # noise is not detail
    is_enlarged = np.zeros(len(owner), bool)
    for group in _groups(known, owner * (COLOUR_BITS + 1) + depth, is_soft):
        copies = group[np.argsort(size[group])]
        most = np.concatenate([[-np.inf], np.maximum.accumulate(faithful[copies])])  # over the first 0, 1, ... copies
        n_smaller = np.searchsorted(size[copies], size[copies] - np.log(LARGER), side="right")
        is_enlarged[copies] = is_soft[copies] & (most[n_smaller] > shown[copies])
    return is_enlarged


def _groups(known: Ints, names: Ints, marked: Mask) -> Iterator[Ints]:
    """Yield the known rows of each name with at least two rows, if one of them is marked."""
    order = known[np.argsort(names[known], kind="stable")]
    for group in np.split(order, np.flatnonzero(np.diff(names[order])) + 1):
        if len(group) > 1 and marked[group].any():
            yield group


def ranks(rows: Rows, large: Mask | None = None) -> Ints:
    """Return numbers that decrease with the loss of a row: by ``detail``, then ``fidelity``; shape (N,)."""
    keys = [np.nan_to_num(values, nan=-np.inf) for values in (fidelity(rows), detail(rows, large))]
    order = np.lexsort(keys)
    rises = np.zeros(len(rows), bool)
    for values in keys:
        rises[1:] |= values[order[1:]] != values[order[:-1]]
    rank = np.empty(len(rows), np.int64)
    rank[order] = np.cumsum(rises)
    return rank
