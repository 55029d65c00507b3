"""Corrupted copies of an image, as input of a model and of quality measures.

Every function takes an image, shape (H, W, 3), uint8, and a random generator, and returns the corrupted image as
float32 in grey levels, same shape, not yet rounded or clipped. Lengths are shares of the short side, so that the same
corruption can be drawn at several sizes: parameters are drawn before anything whose shape depends on the size.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import simplejpeg
import torch
from numpy.typing import NDArray
from torch.nn.functional import interpolate

from scoring.arrays import Array
from scoring.changes import gaussian_blur
from scoring.images.geometry import Pixels, Raster, centre_crop, resize, resized_size
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import SIDE, Quality, measure
from scoring.images.signature import SIDE as THUMBNAIL

Floats = NDArray[np.float32]
Generator = np.random.Generator
Corruption = Callable[[Pixels, Generator], Floats]

MOST_CELLS = 13  # bars, squares or lines of text in one image


def dark(pixels: Pixels, draw: Generator) -> Floats:
    """Darken to 1 to 8 % of the light."""
    return pixels * np.float32(_log_uniform(draw, 0.01, 0.08))


def bright(pixels: Pixels, draw: Generator) -> Floats:
    """Multiply the light by 4 to 20, clip at white, and add white haze that leaves 2 to 15 % of the contrast."""
    gain, left = _log_uniform(draw, 4, 20), draw.uniform(0.02, 0.15)
    lit = np.minimum(pixels * np.float32(gain), 255)
    return 255 - (255 - lit) * np.float32(left)


def blank(pixels: Pixels, draw: Generator) -> Floats:
    """Replace the image by one colour, often with a gradient and grain of up to 8 grey levels."""
    plain, angle = _colour(draw), draw.uniform(0, 2 * math.pi)
    slope = 60 * draw.uniform() ** 2 * (draw.uniform() < 0.6)
    grain = 8 * draw.uniform() ** 2 * (draw.uniform() < 0.6)
    across, down = _axes(pixels)
    light = slope * (math.cos(angle) * (across - 0.5) + math.sin(angle) * (down - 0.5))
    return _float(plain + light[..., None] + grain * draw.standard_normal(pixels.shape, np.float32))


def flat(pixels: Pixels, draw: Generator) -> Floats:
    """Reduce the contrast to 1 to 8 %, around a random colour."""
    left, plain = _log_uniform(draw, 0.01, 0.08), _colour(draw)
    apart = pixels - pixels.mean((0, 1), dtype=np.float32)
    return _float(plain + np.float32(left) * apart)


def blurred(pixels: Pixels, draw: Generator) -> Floats:
    """Blur by a Gaussian with a sigma of 6 to 15 % of the short side."""
    sigma = draw.uniform(0.06, 0.15) * min(pixels.shape[:2])
    return _image(gaussian_blur(_batch(pixels), torch.tensor([sigma])))


def noisy(pixels: Pixels, draw: Generator) -> Floats:
    """Add Gaussian noise with a sigma of 60 to 200 grey levels, coloured or grey; in 40 % return noise alone."""
    sigma, alone, grey = _log_uniform(draw, 60, 200), draw.uniform() < 0.4, draw.uniform() < 0.3
    coarse = draw.choice([0.5, 1.0, 1.0])  # the noise of an image of half the size, enlarged
    height, width = pixels.shape[:2]
    size = max(2, round(height * coarse)), max(2, round(width * coarse))
    noise = draw.standard_normal((*size, 1 if grey else 3), np.float32) * np.float32(sigma)
    noise = np.broadcast_to(noise, (*size, 3))
    base = np.full(pixels.shape, 127.5, np.float32) if alone else pixels
    return _float(base + resized(noise, height, width, "nearest"))


def enlarged(pixels: Pixels, draw: Generator) -> Floats:
    """Reduce to a short side of 4 to 14 pixels, at most a third of it, and enlarge by one of three filters."""
    side, mode = draw.uniform(4, 14), str(draw.choice(["nearest", "bilinear", "bicubic"]))
    height, width = pixels.shape[:2]
    short = min(height, width)
    scale = min(side, max(2.0, short / 3)) / short
    small = resized(pixels, max(1, round(height * scale)), max(1, round(width * scale)), "area")
    return resized(small, height, width, mode)


def compressed(pixels: Pixels, draw: Generator) -> Floats:
    """Compress as JPEG of quality 1 or 2 at 30 to 75 % of the size, and enlarge."""
    quality, share = int(draw.integers(1, 3)), draw.uniform(0.3, 0.75)
    height, width = pixels.shape[:2]
    small = rounded(resized(pixels, max(8, round(height * share)), max(8, round(width * share)), "bilinear"))
    decoded = simplejpeg.decode_jpeg(simplejpeg.encode_jpeg(np.ascontiguousarray(small), quality, "RGB", "420"))
    return resized(decoded, height, width, "bilinear")


def covered(pixels: Pixels, draw: Generator) -> Floats:
    """Cover 75 to 95 % of the area by a box of one colour, half of the time mid-grey."""
    side, x, y = math.sqrt(draw.uniform(0.75, 0.95)), draw.uniform(), draw.uniform()
    colour = np.full(3, 127.5) if draw.uniform() < 0.5 else _colour(draw)
    height, width = pixels.shape[:2]
    top, left = int(y * (1 - side) * height), int(x * (1 - side) * width)
    out = _float(pixels)
    out[top : top + math.ceil(side * height), left : left + math.ceil(side * width)] = colour
    return out


def placeholder(pixels: Pixels, draw: Generator) -> Floats:
    """Replace by a page with a sign (framed image, crossed circle, cross), up to three lines of text, or both."""
    page, contrast = _colour(draw), draw.uniform(40, 160)
    ink = np.clip(page + (contrast if page.mean() < 128 else -contrast), 0, 255)
    sign, size = int(draw.integers(0, 4)), draw.uniform(0.12, 0.35)
    x, y = 0.5 + draw.uniform(-0.05, 0.05), 0.5 + draw.uniform(-0.15, 0.15)
    n_lines = int(draw.integers(1, 4)) if sign == 3 or draw.uniform() < 0.6 else 0
    lines = [(draw.uniform(0.2, 0.42), draw.uniform(0.5, 1.3, 24)) for _ in range(n_lines)]
    letter = draw.uniform(0.04, 0.09)
    height, width = pixels.shape[:2]
    short = min(height, width)
    across, down = _axes(pixels)
    u, v = (across - x) * width / short, (down - y) * height / short  # in short sides, from the middle of the sign
    mark = _sign(sign, u / size, v / size)
    first = (size + letter) if sign != 3 else -n_lines * letter
    for number, (half, lengths) in enumerate(lines):
        mark |= _line_of_text(u, v - first - 1.8 * letter * number, half * width / short, letter, lengths)
    return _float(np.where(mark[..., None], ink, page))


def page(pixels: Pixels, draw: Generator) -> Floats:
    """Replace by a page of text: 2 to 24 lines of strokes in words."""
    ground, ink = np.full(3, 255 - draw.uniform(0, 25)), np.full(3, draw.uniform(0, 90))
    if draw.uniform() < 0.25:
        ground, ink = ink, ground
    letter, top, left = draw.uniform(0.025, 0.09), draw.uniform(0.02, 0.15), draw.uniform(0.02, 0.1)
    n_lines = int(draw.integers(2, 25))
    height, width = pixels.shape[:2]
    short = min(height, width)
    u, v = (np.arange(width) + 0.5) / short, (np.arange(height) + 0.5) / short
    mark = np.zeros(pixels.shape[:2], bool)
    at = top * height / short
    for _ in range(n_lines):
        end, spacing = draw.uniform(0.5, 0.98) * width / short, draw.uniform(1.2, 1.8)
        strokes, rises = draw.uniform(0.25, 0.6, 48), draw.choice([0.0, 0.3, 0.3, 0.3], 48)
        rows, columns = (v >= at) & (v < at + 0.85 * letter), (u >= left) & (u < end)
        line = _strokes((u[columns] - left) / letter, ((v[rows] - at) / letter)[:, None], strokes, rises)
        mark[np.ix_(rows, columns)] |= line
        at += letter * spacing
    return _float(np.where(mark[..., None], ink, ground))


def pattern(pixels: Pixels, draw: Generator) -> Floats:
    """Replace by a test pattern in 2 to 13 colours: bars, a checkerboard, a gradient or a wave."""
    kind, count, turned = int(draw.integers(0, 4)), int(draw.integers(2, MOST_CELLS)), draw.uniform() < 0.5
    colours, waves = np.stack([_colour(draw) for _ in range(count)]), draw.uniform(2, 30)
    across, down = _axes(pixels)
    if turned:
        across, down = down, across
    if kind == 0:
        return _float(colours[np.floor(across * count).astype(int).clip(0, count - 1)])
    if kind == 1:
        return _float(colours[(np.floor(across * count) + np.floor(down * count)).astype(int) % 2])
    angle = count
    share = (
        across
        if kind == 2
        else 0.5 + 0.5 * np.sin(2 * math.pi * waves * (across * math.cos(angle) + down * math.sin(angle)))
    )
    return _float(colours[0] * (1 - share[..., None]) + colours[1] * share[..., None])


def scrambled(pixels: Pixels, draw: Generator) -> Floats:
    """Shuffle all pixels, or shift every row, as a wrong row length does."""
    kind, slope = int(draw.integers(0, 3)), draw.uniform(0.05, 0.95)
    height, width = pixels.shape[:2]
    if kind == 0:
        every = pixels.reshape(-1, 3)
        return _float(every[draw.permutation(len(every))].reshape(pixels.shape))
    shift = (np.arange(height) * slope * width).astype(int)
    if kind == 2:
        shift = shift + draw.integers(0, width, height)
    columns = (np.arange(width) - shift[:, None]) % width
    return _float(np.take_along_axis(pixels, columns[..., None], axis=1))


CORRUPTIONS: dict[str, Corruption] = {  # to add a kind, add a line
    "dark": dark,
    "bright": bright,
    "blank": blank,
    "flat": flat,
    "blur": blurred,
    "noise": noisy,
    "enlarged": enlarged,
    "compressed": compressed,
    "covered": covered,
    "placeholder": placeholder,
    "scrambled": scrambled,
    "pattern": pattern,
    "page": page,
}
KINDS = tuple(CORRUPTIONS)
VERSION = 1  # of kinds and severities: a classifier of another version was trained on other corruptions


def corrupt(pixels: Pixels, kind: str, digest: str) -> Pixels:
    """Return a corrupted copy of an image, determined by image, kind and size on every machine.

    Args:
        pixels: uint8, shape (H, W, 3).
        kind: a key of ``CORRUPTIONS``.
        digest: hexadecimal digest of the encoded image, which seeds the random parameters, equal at all sizes.
    """
    draw = np.random.default_rng([int(digest[:16], 16), KINDS.index(kind)])
    return rounded(CORRUPTIONS[kind](pixels, draw))


def rounded(pixels: Array) -> Pixels:
    """Return an image rounded and clipped to whole grey levels from 0 to 255."""
    return np.clip(np.rint(pixels), 0, 255).astype(np.uint8)


def resized(pixels: Array, height: int, width: int, mode: str) -> Floats:
    """Return an image (H, W, 3) at another size, float32; bilinear and bicubic antialiased."""
    if pixels.shape[:2] == (height, width):
        return _float(pixels)
    options = {} if mode in ("nearest", "area") else {"align_corners": False, "antialias": True}
    return _image(interpolate(_batch(pixels), (height, width), mode=mode, **options))


def _sign(kind: int, u: Array, v: Array) -> NDArray[np.bool_]:
    """Return a mask of the sign of a placeholder, from coordinates in units of its half size; empty for text alone."""
    thick = 0.08
    if kind == 0:  # a framed image: a hill and a sun
        frame = (np.abs(u) < 1) & (np.abs(v) < 0.75) & ~((np.abs(u) < 1 - thick) & (np.abs(v) < 0.75 - thick))
        hill = (v < 0.6) & (v > -0.2 + 1.3 * np.abs(u + 0.2))
        return frame | hill | ((u - 0.45) ** 2 + (v + 0.35) ** 2 < 0.15**2)
    if kind == 1:  # a crossed circle
        radius = np.hypot(u, v)
        return ((radius < 1) & (radius > 1 - 2 * thick)) | ((np.abs(u - v) < 2 * thick) & (radius < 1))
    if kind == 2:  # a cross
        inside = (np.abs(u) < 1) & (np.abs(v) < 1)
        return inside & ((np.abs(u - v) < 2 * thick) | (np.abs(u + v) < 2 * thick))
    return np.zeros(u.shape, bool)


def _line_of_text(u: Array, v: Array, half: float, letter: float, lengths: Array) -> NDArray[np.bool_]:
    """Return a mask of a line of blocks for letters, centred at u = 0, from v = 0 down."""
    ends = np.cumsum(lengths) * letter
    place = np.searchsorted(ends, np.clip(u + half, 0, None) % ends[-1], side="right").clip(max=len(lengths) - 1)
    start = ends[place] - lengths[place] * letter
    filled = (np.clip(u + half, 0, None) % ends[-1]) - start < 0.7 * lengths[place] * letter
    return (np.abs(u) < half) & (v >= 0) & (v < letter) & filled


def _strokes(u: Array, v: Array, widths: Array, rises: Array) -> NDArray[np.bool_]:
    """Return a mask of the letters of a line, from coordinates in units of its height; every seventh is a space."""
    ends = np.cumsum(widths + 0.12)
    place = np.searchsorted(ends, u % ends[-1], side="right").clip(max=len(widths) - 1)
    start = ends[place] - widths[place] - 0.12
    return (u % ends[-1] - start < 0.6 * widths[place]) & (v >= rises[place]) & (place % 7 != 6)


def _colour(draw: Generator) -> NDArray[np.float64]:
    """Return a random colour, shape (3,): white in 30 %, black in 20 %, grey in 10 %, any other in the rest."""
    kind, any_colour, off = draw.uniform(), draw.uniform(0, 255, 3), draw.uniform(0, 12)
    if kind < 0.3:
        return np.full(3, 255 - off)
    if kind < 0.5:
        return np.full(3, off)
    return np.full(3, any_colour[0]) if kind < 0.6 else any_colour


def _axes(pixels: Pixels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the horizontal and vertical position of every pixel, each in (0, 1) and of shape (H, W)."""
    height, width = pixels.shape[:2]
    across, down = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    return np.broadcast_to(across, (height, width)), np.broadcast_to(down[:, None], (height, width))


def _log_uniform(draw: Generator, low: float, high: float) -> float:
    return math.exp(draw.uniform(math.log(low), math.log(high)))


def _float(pixels: Array) -> Floats:
    return pixels.astype(np.float32)


def _batch(pixels: Array) -> torch.Tensor:
    return torch.from_numpy(_float(pixels)).permute(2, 0, 1)[None]


def _image(batch: torch.Tensor) -> Floats:
    out: Floats = batch[0].permute(1, 2, 0).numpy()
    return out


@dataclass(frozen=True)
class Copy:
    """A corrupted copy.

    Attributes:
        kind: of corruption.
        pixels: input of the model, uint8, shape (S, S, 3).
        quality: measures, if requested. Blocking and JPEG quality are None: a copy was never a file.
    """

    kind: str
    pixels: Pixels
    quality: Quality | None


def corrupted_copies(
    image: Pixels, digest: str, kinds: Sequence[str], preprocessing: Preprocessing, *, with_quality: bool
) -> list[Copy]:
    """Return a corrupted copy of an image for each kind.

    The corruption is applied at the size for measuring quality, and with the same parameters at the model's input size
    if that is larger, so that its cost does not depend on the size of the image.

    Args:
        image: from ``decode_small`` with ``side_needed``, uint8, shape (H, W, 3).
        digest: of the encoded image.
        kinds: keys of ``CORRUPTIONS``.
        preprocessing: of the model.
        with_quality: measure the copies.
    """
    small = _reduced(image, SIDE)
    large = image if min(image.shape[:2]) > SIDE and preprocessing.resize > SIDE else None
    copies = []
    for kind in kinds:
        copy = corrupt(small, kind, digest)
        seen = copy if large is None else corrupt(_reduced(large, preprocessing.resize), kind, digest)
        copies.append(Copy(kind, _square(seen, preprocessing), _measured(copy) if with_quality else None))
    return copies


def side_needed(preprocessing: Preprocessing) -> int:
    """Return the short side, in pixels, from which copies for a model are made."""
    return max(SIDE, preprocessing.resize)


def _reduced(image: Pixels, side: int) -> Pixels:
    height, width = image.shape[:2]
    return resize(image, *resized_size(width, height, min(side, width, height)), "bicubic")


def _square(image: Pixels, preprocessing: Preprocessing) -> Pixels:
    height, width = image.shape[:2]
    resized = resize(image, *resized_size(width, height, preprocessing.resize), preprocessing.interpolation)
    return np.ascontiguousarray(centre_crop(resized, preprocessing.size))


def _measured(copy: Pixels) -> Quality:
    raster = Raster(copy, copy.shape[1], copy.shape[0])
    return measure(raster, resize(copy, THUMBNAIL, THUMBNAIL, "bilinear"), reduced=copy)
