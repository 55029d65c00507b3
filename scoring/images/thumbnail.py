"""The thumbnail of an image, 64 x 64 greys, and whether two of them show the same image or another one of a template.

A signature holds low frequencies, of which a word on a form is a small part. Another encoding, size, brightness,
contrast or a narrow crop changes all of a thumbnail a little, and a word changes a few cells much. So one thumbnail is
fitted to the other by what such edits do to it, to first order; of what is left, the largest cell is compared with
the other cells.
"""

import numpy as np
from numpy.typing import NDArray

from scoring.images.signature import luma

SIDE = 64
WIDTH = SIDE * SIDE  # numbers of a thumbnail
KIND = f"grey-{SIDE}"  # thumbnails of one kind can be compared, and no others
HINGES = (128.0, 224.0, 244.0)  # grey levels where the slope may change: edits clip at white
NOISE, BLUR = 3.0, 0.3  # what an edit leaves: grey levels, and as a share of the local slope
TYPICAL, LEAST = 0.95, 0.2  # share of the cells below the one that counts as typical, and what is added to it
RATIO, LARGEST = 3.0, 4.0  # of the largest cell: to the typical one, and alone; copies have no more
MOVED = 0.1  # cells: a crop moves some by more, and images of one template by less
MOST_MOVED = 2.5  # cells, of a crop of 4 % of a side
TURNS = 4  # of fitting a crop
BORDER = 2  # cells that a crop takes away or brings in
AT_ONCE = 128  # pairs: about 80 MB
COPY, OTHER = 1.25, 2.5  # ``local_change`` up to which two are copies, and above which they are different images
Floats = NDArray[np.floating]


def thumbnail(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the thumbnail of a 64 x 64 image: its grey, row after row.

    Args:
        image: uint8 RGB, shape (64, 64, 3).

    Returns:
        uint8, shape (4096,).

    >>> thumbnail(np.full((64, 64, 3), 255, np.uint8))[:2]
    array([255, 255], dtype=uint8)
    """
    return np.rint(np.round(luma(image), 3)).astype(np.uint8).ravel()


def local_change(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return how much larger a local difference of P pairs is than another encoding, size, light or crop makes it.

    Args:
        first: thumbnails, shape (P, 4096).
        second: the same of the other images.

    Returns:
        shape (P,): 0 for equal ones, at most 1.25 for copies, above 2.5 for images that differ in a part.
    """
    changes = np.zeros(len(first))
    for start in range(0, len(first), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        a, b = (each[part].reshape(-1, SIDE, SIDE).astype(np.float32) for each in (first, second))
        left, moved = _fitted(a, b)
        changes[part] = _excess(left, a, b, 0)
        for again, check in (
            (changes[part] > COPY, lambda a, b: _excess(_fitted(b, a)[0], a, b, 0)),
            ((changes[part] > COPY) & (np.abs(moved).max(1) > MOVED), _cropped),
        ):
            if (at := np.flatnonzero(again)).size:
                changes[start + at] = np.minimum(changes[start + at], check(a[at], b[at]))
    return np.round(changes, 3)


def differences(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Return where the second of P pairs differs from the first, with large differences counted more.

    Of two images that differ from one template, the cosine of these is near 1 if they are copies of each other.

    Returns:
        int8, shape (P, 1024): sums of 2 x 2 signed squares, the largest magnitude 127.
    """
    sums = np.zeros((len(first), WIDTH // 4), np.int8)
    for start in range(0, len(first), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        a, b = (each[part].reshape(-1, SIDE, SIDE).astype(np.float32) for each in (first, second))
        left, _ = _fitted(a, b)
        relative = left / _allowed(a, b)
        cells = (relative * np.abs(relative)).reshape(-1, SIDE // 2, 2, SIDE // 2, 2).sum((2, 4))
        most = np.abs(cells).max((1, 2), keepdims=True)
        sums[part] = np.rint(cells * (127 / np.maximum(most, 1e-6))).reshape(len(a), -1)
    return sums


def _cropped(a: Floats, b: Floats) -> NDArray[np.float64]:
    """Return the least excess over fits of a crop: the first image moved and stretched, its border left out."""
    best, moved, seen = np.full(len(a), np.inf), np.zeros((len(a), 4), np.float32), a
    for turn in range(TURNS + 1):
        left, more = _fitted(seen, b)
        if turn:
            best = np.minimum(best, _excess(left, seen, b, BORDER))
        if turn < TURNS:
            moved = np.clip(moved + np.clip(more, -1, 1), -MOST_MOVED, MOST_MOVED).astype(np.float32)
            seen = _sampled(moved[:, 1], moved[:, 3]) @ a @ _sampled(moved[:, 0], moved[:, 2]).transpose(0, 2, 1)
    return best


def _fitted(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Return what edits of the first image do not explain of the second, shape (P, 64, 64), and the movement.

    Edits, to first order, add multiples of: one, the grey, its hinges, what two widths of blur change, its slopes, and
    these times the place (stretching). The movement, shape (P, 4), is in cells: across, down, and both at the edges.
    """
    across, down = np.gradient(a, axis=2), np.gradient(a, axis=1)
    place = np.linspace(-1, 1, SIDE, dtype=np.float32)
    blur = _mean(a)
    parts = [np.ones_like(a), a, *(np.maximum(a - each, 0) for each in HINGES), blur - a, _mean(blur) - a]
    parts += [across, down, across * place, down * place[:, None]]
    columns = np.stack([each.reshape(len(a), -1) for each in parts], 2)  # (P, 4096, 11)
    apart = (b - a).reshape(len(a), -1, 1)
    columns /= (lengths := np.sqrt((columns * columns).sum(1, keepdims=True)) + 1e-6)
    turned = columns.transpose(0, 2, 1)
    products = (turned @ columns).astype(np.float64) + 1e-5 * np.eye(len(parts))
    shares = np.linalg.solve(products, (turned @ apart).astype(np.float64)).astype(np.float32)  # (P, 11, 1)
    weights = shares[:, :, 0] / lengths[:, 0]
    slope = np.clip(1 + weights[:, 1], 0.5, 2)[:, None]
    return (apart - columns @ shares).reshape(a.shape), (weights[:, -4:] / slope).astype(np.float32)


def _excess(left: Floats, a: Floats, b: Floats, border: int) -> NDArray[np.float64]:
    """Return by which factor the largest cell exceeds what copies have, shape (P,)."""
    inner = slice(border, SIDE - border)
    cells = (np.abs(left) / _allowed(a, b))[:, inner, inner].reshape(len(a), -1)
    typical = int(TYPICAL * cells.shape[1])
    cells.partition(typical, axis=1)
    largest = cells[:, typical:].max(1).astype(np.float64)
    return np.maximum(largest / (cells[:, typical] + LEAST) / RATIO, largest / LARGEST)


def _allowed(a: Floats, b: Floats) -> Floats:
    """Return what edits leave of a cell, in grey levels: more where both images have edges."""
    slopes = np.minimum(*(_mean(np.gradient(each, axis=2) ** 2 + np.gradient(each, axis=1) ** 2) for each in (a, b)))
    return np.sqrt(NOISE**2 + BLUR**2 * slopes)


def _mean(cells: Floats) -> Floats:
    """Return the mean of 3 x 3 cells around each."""
    wide = np.pad(cells, ((0, 0), (1, 1), (1, 1)), mode="edge")
    rows = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    return (rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]) / 9


def _sampled(shift: Floats, stretch: Floats) -> Floats:
    """Return the matrices that sample an axis elsewhere by cubic interpolation, shape (P, 64, 64)."""
    cells, place = np.arange(SIDE, dtype=np.float32), np.linspace(-1, 1, SIDE, dtype=np.float32)
    at = np.clip(cells + shift[:, None] + stretch[:, None] * place, 0, SIDE - 1)
    t = np.abs(at[:, :, None] - cells)
    near, far = 1.5 * t**3 - 2.5 * t**2 + 1, -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    weights = np.where(t < 1, near, np.where(t < 2, far, 0))
    return np.asarray(weights / weights.sum(2, keepdims=True), np.float32)
