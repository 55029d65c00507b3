"""Image quality: fast statistics of the decoded pixels, each a number with a unit.

| measure | pixels |
| --- | --- |
| brightness, shadow, highlight, contrast, entropy, sharpness, noise, border | the image at a short side of 128 |
| colourfulness | the 32 x 32 image of the perceptual hash |
| blocking, resolution | the middle at full size, before any resize; None if the decoder reduced the image |
| colours | the middle of the decoded image, before any resize |
| jpeg | none: the quantisation table of the file |

The image at a short side of 128 is resized bicubic, antialiased; a smaller image is not resized; an image more than 8
times as long as wide is cut to its middle. So values are comparable across sizes, at about a model's resolution.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from scoring.images.geometry import Pixels, Raster, cut_middle, resize, resized_size

SIDE = 128  # pixels: the short side at which quality is measured
KIND = f"{SIDE} px"  # only measures of the same kind are comparable
_BLOCK = 8  # pixels: the side of JPEG's blocks
_CROP = 160  # pixels: the side of the middle in which blocking and resolution are measured
_TILE = 8  # pixels: of the tiles in which noise is measured
_LEAST_SIDE = 16  # pixels: a smaller image has no sharpness and no noise
_LEAST_DETAIL = 1.0  # grey levels squared: an image with less at every scale is neither sharp nor blurred
_ROUNDING = 20 / 12  # grey levels squared, of a Laplacian: what rounding to whole levels adds
_FLAT = 6  # grey levels: the range within a bar of one colour
_COVERED = 0.9  # share of the pixels that colours cover
_EVERY = 4  # step between sampled columns for bars, and between rows and columns for colours
_STRAIGHT = 0.5  # share of a bar's inner edge along which the image differs from it

Grey = NDArray[np.uint8] | NDArray[np.int16]  # (H, W)


@dataclass(frozen=True)
class Quality:
    """Measures of one image; None if undefined.

    Attributes:
        brightness: mean grey, 0 (black) to 1 (white).
        shadow: 5 % quantile of grey, 0 to 1; high if nothing is dark.
        highlight: 95 % quantile of grey, 0 to 1; low if nothing is bright.
        contrast: standard deviation of the grey, 0 to 0.5.
        entropy: of the histogram of 256 greys, bits, 0 to 8.
        sharpness: ratio of detail at the finest scale to detail at 2 or 4 times that scale, 0 to 2; lower with blur,
            independent of contrast. None without detail, or if a side is below 16 pixels.
        noise: standard deviation of colour noise in the smoothest quarter, in grey levels; noise that is equal in red
            and green is not counted, since texture looks the same. None below 16 pixels.
        colourfulness: 0 for grey, about 15 for slightly, 45 for quite, 80 for highly colourful.
        border: share of the area in plain bars or a frame with straight inner edges, 0 to 1.
        blocking: ratio of grey steps across the lines of JPEG's 8-pixel grid to steps between them; about 1 without
            blocks, 2 and more with visible ones. None if the decoder reduced the image, or below 24 pixels.
        resolution: sharpness at full size, 0 to 2; low for enlarged images. None if the decoder reduced the image, or
            sharpness is None.
        colours: number of colours that cover 90 % of about 1,600 pixels in the middle, 1 to 1,600; up to 256 for grey
            images and palettes. None for a JPEG, which adds colours.
        jpeg: libjpeg's quality setting, 1 to 100, nearest to the file's quantisation; None without a valid table.
    """

    brightness: float
    shadow: float
    highlight: float
    contrast: float
    entropy: float
    sharpness: float | None
    noise: float | None
    colourfulness: float
    border: float
    blocking: float | None
    resolution: float | None
    colours: int | None
    jpeg: int | None


MEASURES = tuple(field.name for field in fields(Quality))


def measure(raster: Raster, thumbnail: Pixels, *, reduced: Pixels | None = None, jpeg: int | None = None) -> Quality:
    """Measure an image.

    Args:
        raster: the decoded image.
        thumbnail: the image at 32 x 32 pixels.
        reduced: result of ``reduce``, if already computed.
        jpeg: as in ``Quality``.
    """
    pixels = reduce(raster) if reduced is None else reduced
    histogram = tones(pixels)
    brightness, contrast = moments(histogram)
    green = pixels[..., 1]
    return Quality(
        brightness=brightness,
        shadow=percentile(histogram, 0.05),
        highlight=percentile(histogram, 0.95),
        contrast=contrast,
        entropy=entropy(histogram),
        sharpness=sharpness(green),
        noise=noise(pixels),
        colourfulness=colourfulness(thumbnail),
        border=border(green),
        blocking=blocking(raster),
        resolution=resolution(raster),
        colours=colours(raster.pixels) if jpeg is None else None,
        jpeg=jpeg,
    )


def reduce(raster: Raster) -> Pixels:
    """Return an image at the size for measuring: a short side of at most 128 pixels."""
    middle = cut_middle(raster)
    side = min(SIDE, middle.width, middle.height)
    return resize(middle.pixels, *resized_size(middle.width, middle.height, side), "bicubic")


def tones(pixels: Pixels) -> NDArray[np.intp]:
    """Return the histogram of 256 greys, (77 R + 150 G + 29 B) / 256 rounded down: BT.601 in whole numbers.

    Only every second pixel of every second row is counted if the short side has 128 pixels or more: four times as fast.
    """
    step = 2 if min(pixels.shape[:2]) >= SIDE else 1
    some = pixels[::step, ::step]
    grey = some[..., 1] * np.uint16(150)
    grey += some[..., 0] * np.uint16(77)
    grey += some[..., 2] * np.uint16(29)
    grey >>= 8
    return np.bincount(grey.ravel(), minlength=256)


def moments(histogram: NDArray[np.int64]) -> tuple[float, float]:
    """Return mean and standard deviation of the grey, in units of white."""
    n, total, squares = (int(each) for each in _POWERS @ histogram)  # whole numbers: the same in any order of adding
    return total / n / 255, math.sqrt(max(0, n * squares - total**2)) / n / 255


def percentile(histogram: NDArray[np.int64], share: float) -> float:
    """Return the lowest grey that at least this share of the pixels does not exceed, in units of white."""
    below = np.cumsum(histogram)
    return float(np.searchsorted(below, share * below[-1])) / 255


def entropy(histogram: NDArray[np.int64]) -> float:
    """Return the Shannon entropy of a histogram in bits.

    >>> entropy(np.array([5, 5, 0]))
    1.0
    """
    shares = histogram[histogram > 0] / histogram.sum()
    return abs(math.fsum(shares * np.log2(shares)))


def sharpness(green: Grey) -> float | None:
    """Return the root of the energy of green's Laplacian at full scale over the larger energy at 1/2 and 1/4.

    Scenes have similar detail at neighbouring scales (Field 1987); blur removes the finest first. The energy added by
    rounding to whole grey levels is subtracted.
    """
    if min(green.shape) < _LEAST_SIDE:
        return None
    half = _halved(green)
    quarter = _halved(half)  # sums of 16 pixels
    fine = _energy(green, 4) - _ROUNDING
    coarse = max(_energy(half, 2) / 16 - _ROUNDING / 4, _energy(quarter, 1) / 256 - _ROUNDING / 16)
    return float(np.sqrt(max(fine, 0.0) / coarse)) if coarse >= _LEAST_DETAIL else None


def noise(pixels: Pixels) -> float | None:
    """Return the standard deviation of noise in one channel, from red - green, in the smoothest quarter of tiles.

    Natural texture changes red and green together, sensor noise independently. Every fourth row of tiles is used.

    Source: Immerkaer 1996, "Fast noise variance estimation", eq. 5; of a difference of channels and by tiles here.
    """
    height, width = pixels.shape[:2]
    if min(height, width) < _LEAST_SIDE:
        return None
    step = 4 * _TILE
    n = (height - 2 - _TILE) // step + 1  # rows of tiles, each with a pixel more on either side
    rows = np.concatenate([np.arange(i * step, i * step + _TILE + 2) for i in range(n)])
    taken = pixels[rows]
    colour = np.subtract(taken[..., 0], taken[..., 1], dtype=np.int16).reshape(n, _TILE + 2, width)
    across = colour[:, :, 2:] + colour[:, :, :-2] - 2 * colour[:, :, 1:-1]
    response = np.abs(across[:, 2:] + across[:, :-2] - 2 * across[:, 1:-1])
    m = (width - 2) // _TILE
    tiles = response.sum(1, dtype=np.int32)[:, : m * _TILE].reshape(n * m, _TILE).sum(1)
    tiles.sort()
    return float(tiles[len(tiles) // 4]) / _TILE**2 * _IMMERKAER / np.sqrt(2)


def colourfulness(pixels: Pixels) -> float:
    """Return the colourfulness of an image, 0 for grey and about 80 for highly colourful.

    Source: Hasler and Suesstrunk 2003, "Measuring colourfulness in natural images", the third metric.
    """
    opponent = pixels.reshape(-1, 3).astype(np.float64) @ _OPPONENT  # (N, 2); sums of multiples of 1/4 are exact
    mean = opponent.sum(0) / len(opponent)
    spread = np.vdot(opponent, opponent) / len(opponent) - mean @ mean
    return math.sqrt(max(0.0, float(spread))) + 0.3 * math.hypot(*mean.tolist())


def border(green: Grey) -> float:
    """Return the share of the area, 0 to 1, in plain bars at the sides, above and below, with straight inner edges.

    A bar is a run of rows of one colour at the edge of the image; its inner edge is straight if the next row differs
    along at least half of it. An object in front of a plain wall leaves no straight edge.
    """
    height, width = green.shape
    is_small = min(height, width) < SIDE
    top, bottom = _bar_height(green, is_small), _bar_height(green[::-1], is_small)
    rest = green[top : height - bottom].T
    left, right = _bar_height(rest, is_small), _bar_height(rest[::-1], is_small)
    return max(0.0, 1 - (height - top - bottom) * (width - left - right) / (height * width))


def blocking(raster: Raster) -> float | None:
    """Return the grey step at the lines of the 8-pixel grid, divided by the largest step between them, both plus 1.

    Measured on green in the middle 160 x 160 pixels, aligned to the grid. A step between two columns is the mean over
    every fourth row; for each position in the grid the median over all lines is used, which a frame does not affect.
    """
    pixels = raster.pixels
    if pixels.shape[:2] != (raster.height, raster.width) or min(pixels.shape[:2]) < 3 * _BLOCK:
        return None
    top, left = (max(0, (side - _CROP) // 2) // _BLOCK * _BLOCK for side in pixels.shape[:2])
    green = pixels[top : top + _CROP, left : left + _CROP, 1]
    steps = _column_steps(green[::4]) + _column_steps(green[:, ::4].T)
    return float((steps[-1] + 1) / (steps[:-1].max() + 1))


def resolution(raster: Raster) -> float | None:
    """Return ``sharpness`` of the middle 160 x 160 pixels at full size."""
    pixels = raster.pixels
    if pixels.shape[:2] != (raster.height, raster.width):
        return None
    top, left = (max(0, (side - _CROP) // 2) for side in pixels.shape[:2])
    return sharpness(np.ascontiguousarray(pixels[top : top + _CROP, left : left + _CROP, 1]))


def colours(pixels: Pixels) -> int:
    """Return the fewest colours that cover 90 % of every fourth pixel in both directions of the middle 160 x 160.

    >>> colours(np.repeat(np.uint8([[[0, 0, 0], [9, 9, 9]]]), 20, axis=1))
    2
    """
    codes = _codes(pixels)
    ends = np.flatnonzero(codes[1:] != codes[:-1])  # of the runs of equal codes but the last
    if not len(ends):
        return 1
    runs = np.append(ends, len(codes) - 1)
    runs[1:] -= ends
    runs[0] += 1
    times = np.bincount(runs)  # number of colours by frequency
    held = (times * np.arange(len(times))).cumsum()  # cumulative pixels of colours up to a frequency
    spare = int((1 - _COVERED) * len(codes) + 1e-9)  # number of uncovered pixels, of the rarest colours
    often = int(held.searchsorted(spare, side="right"))  # lowest frequency of covered colours
    return len(runs) - int(times[:often].sum()) - (spare - int(held[often - 1])) // often


def _codes(pixels: Pixels) -> NDArray[np.uint32]:
    """Return the colours of the sampled pixels as numbers, ascending."""
    top, left = (max(0, (side - _CROP) // 2) for side in pixels.shape[:2])
    some = pixels[top : top + _CROP : _EVERY, left : left + _CROP : _EVERY]
    codes = some[..., 0].astype(np.uint32).ravel()
    for channel in (1, 2):
        codes <<= 8
        codes |= some[..., channel].ravel()
    codes.sort()
    return codes


_POWERS = np.arange(256) ** np.array([[0], [1], [2]])
_OPPONENT = np.array([[1, 0.5], [-1, 0.5], [0, -1]])  # red - green, yellow - blue
_IMMERKAER = float(np.sqrt(np.pi / 2) / 6)


def _energy(green: Grey, step: int) -> float:
    """Return the mean square of the Laplacian of every ``step``-th row; sums of 16 pixels fit into 16 bits."""
    last = len(green) - 1
    centre = green[1:last:step]
    response = np.multiply(centre[:, 1:-1], 4, dtype=np.int16)
    response -= green[0 : last - 1 : step, 1:-1]
    response -= green[2 : last + 1 : step, 1:-1]
    response -= centre[:, :-2]
    response -= centre[:, 2:]
    flat = response.ravel().astype(np.float64)  # whose sum of squares is exact
    return float(flat @ flat) / flat.size


def _halved(green: Grey) -> Grey:
    """Return sums of 2 x 2 pixels."""
    height, width = green.shape[0] // 2 * 2, green.shape[1] // 2 * 2
    rows = np.add(green[0:height:2, :width], green[1:height:2, :width], dtype=np.int16)
    return rows[:, ::2] + rows[:, 1::2]


def _bar_height(green: Grey, is_small: bool) -> int:
    """Return the number of rows of one colour at the top, if the image below begins at a straight edge; else 0.

    In a small image, which was not resized, every column is checked, and the edge is one row.
    """
    if not green.size:
        return 0
    first = green[0]
    if abs(int(first[0]) - int(first[len(first) // 2])) > _FLAT or first.max() - first.min() > _FLAT:
        return 0  # the first test, for most images, is the cheaper one
    colour = int(first[0])
    some = green if is_small else green[:, ::_EVERY]
    differs = (some < colour - _FLAT) | (some > colour + _FLAT)
    in_row = differs.any(1)
    depth = int(in_row.argmax())  # 0 too where no row differs
    beyond = differs[depth : depth + 2 - is_small]  # two rows, since resizing mixes one with the bar
    return depth if depth and beyond.any(0).mean() >= _STRAIGHT else 0


def _column_steps(green: Grey) -> NDArray[np.float64]:
    """Return the step between columns 8 k + i and 8 k + i + 1, for i = 0 to 7; shape (8,)."""
    step = np.abs(np.subtract(green[:, 1:], green[:, :-1], dtype=np.int16))
    by_column = step.sum(0, dtype=np.int32) / len(green)
    full_blocks = by_column[: len(by_column) // _BLOCK * _BLOCK].reshape(-1, _BLOCK)
    return np.sort(full_blocks, axis=0)[len(full_blocks) // 2]
