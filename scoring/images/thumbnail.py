"""The thumbnail of an image, 64 x 64 greys, and whether two of them show the same image or another one of a template.

A signature holds low frequencies, of which a word on a form is a small part. Another encoding, size, brightness,
contrast or a narrow crop changes all of a thumbnail a little, and a word changes a few cells much. So one thumbnail is
fitted to the other by what such edits do to it, to first order; of what is left, the largest cell is compared with
the other cells.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

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
AT_ONCE = 32  # pairs: about 15 MB
COPY, OTHER = 1.25, 2.5  # ``local_change`` up to which two are copies, and above which they are different images
FAR = 4.7  # of a first fit, times the largest change that counts: no other fit then finds less
PLACE = np.linspace(-1, 1, SIDE, dtype=np.float32)
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


def local_change(
    first: NDArray[np.uint8], second: NDArray[np.uint8], at: NDArray[np.int64] | None = None, *, most: float = OTHER
) -> NDArray[np.float64]:
    """Return how much larger a local difference of P pairs is than another encoding, size, light or crop makes it.

    Args:
        first: thumbnails, shape (F, 4096).
        second: of the other images, shape (P, 4096).
        at: place of the first image of each pair, ascending, shape (P,); by default F is P.
        most: what is larger need not be exact.

    Returns:
        shape (P,): 0 for equal ones, at most 1.25 for copies, above 2.5 for images that differ in a part.
    """
    changes = np.zeros(len(second))
    for part, edits, b, of in _blocks(first, second, at):
        slopes = _steepness(*_slopes(b))
        left, moved = edits.fitted(b, of)
        change = _excess(left, _allowed(edits.slopes[of], slopes))
        again = np.flatnonzero((change > COPY) & (change <= FAR * most))
        cropped = again[np.abs(moved[again]).max(1) > MOVED]
        if len(again):
            turned, a = _Edits.of(b[again]), edits.cells[of[again]]
            left, _ = turned.fitted(a, np.arange(len(a)))
            allowed = _allowed(turned.slopes, edits.slopes[of[again]])
            change[again] = np.minimum(change[again], _excess(left, allowed))
        if len(cropped):
            least = _cropped(edits.cells[of[cropped]], b[cropped], slopes[cropped], FAR * most)
            change[cropped] = np.minimum(change[cropped], least)
        changes[part] = change
    return np.round(changes, 3)


def differences(
    first: NDArray[np.uint8], second: NDArray[np.uint8], at: NDArray[np.int64] | None = None
) -> NDArray[np.int8]:
    """Return where the second of P pairs differs from the first, with large differences counted more.

    Of two images that differ from one template, the cosine of these is near 1 if they are copies of each other.

    Returns:
        int8, shape (P, 1024): sums of 2 x 2 signed squares, the largest magnitude 127.
    """
    sums = np.zeros((len(second), WIDTH // 4), np.int8)
    for part, edits, b, of in _blocks(first, second, at):
        relative = edits.fitted(b, of)[0] / _allowed(edits.slopes[of], _steepness(*_slopes(b)))
        cells = (relative * np.abs(relative)).reshape(-1, SIDE // 2, 2, SIDE // 2, 2).sum((2, 4))
        most = np.abs(cells).max((1, 2), keepdims=True)
        sums[part] = np.rint(cells * (127 / np.maximum(most, 1e-6))).reshape(len(b), -1)
    return sums


def _blocks(
    first: NDArray[np.uint8], second: NDArray[np.uint8], at: NDArray[np.int64] | None
) -> Iterator[tuple[slice, "_Edits", Floats, NDArray[np.int64]]]:
    """Yield some pairs, the edits of their first images, the second images, and the place of each pair's first."""
    at = np.arange(len(second)) if at is None else at
    for start in range(0, len(second), AT_ONCE):
        part = slice(start, start + AT_ONCE)
        distinct, of = np.unique(at[part], return_inverse=True)
        a, b = (each.reshape(-1, SIDE, SIDE).astype(np.float32) for each in (first[distinct], second[part]))
        yield part, _Edits.of(a), b, of


def _cropped(a: Floats, b: Floats, slopes: Floats, far: float) -> NDArray[np.float64]:
    """Return the least excess over fits of a crop: the first image moved and stretched, its border left out."""
    best, moved, at = np.full(len(a), np.inf), np.zeros((len(a), 4), np.float32), np.arange(len(a))
    edits = _Edits.of(a)
    for turn in range(TURNS + 1):
        left, more = edits.fitted(b[at], np.arange(len(at)))
        if turn:
            excess = _excess(left, _allowed(edits.slopes, slopes[at]), BORDER)
            best[at] = np.minimum(best[at], excess)
            at, more = at[excess <= far], more[excess <= far]
        if turn == TURNS or not len(at):
            break
        moved[at] = np.clip(moved[at] + np.clip(more, -1, 1), -MOST_MOVED, MOST_MOVED)
        across, down = _sampled(moved[at, 0], moved[at, 2]), _sampled(moved[at, 1], moved[at, 3])
        edits = _Edits.of(down @ a[at] @ across.transpose(0, 2, 1))
    return best


@dataclass(frozen=True)
class _Edits:
    """What edits of F images change, to first order.

    Attributes:
        cells: the images, shape (F, 64, 64).
        parts: one, the grey, its hinges, what two widths of blur change, its slopes, and these times the place
            (stretching), shape (F, 11, 4096).
        slopes: see ``_steepness``, shape (F, 64, 64).
    """

    cells: Floats
    parts: Floats
    slopes: Floats

    @classmethod
    def of(cls, cells: Floats) -> Self:
        """Return the edits of images."""
        parts = np.empty((len(cells), 8 + len(HINGES), SIDE, SIDE), np.float32)
        across, down = _slopes(cells)
        blur = _mean(cells)
        parts[:, 0], parts[:, 1] = 1, cells
        for number, hinge in enumerate(HINGES):
            np.maximum(cells - np.float32(hinge), 0, out=parts[:, 2 + number])
        for number, each in enumerate((blur - cells, _mean(blur) - cells, across, down)):
            parts[:, 2 + len(HINGES) + number] = each
        np.multiply(across, PLACE, out=parts[:, -2])
        np.multiply(down, PLACE[:, None], out=parts[:, -1])
        return cls(cells, parts.reshape(len(cells), -1, WIDTH), _steepness(across, down))

    def fitted(self, b: Floats, of: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Return the differences of P other images that edits do not explain, (P, 64, 64), and the movement.

        The movement, shape (P, 4), is in cells: across, down, and both at the edges.

        Args:
            b: the others, shape (P, 64, 64).
            of: place of the image that each is compared with, ascending, shape (P,).
        """
        left = (b - self.cells[of]).reshape(-1, WIDTH)
        products = (self.parts @ self.parts.transpose(0, 2, 1)).astype(np.float64)
        lengths = np.sqrt(np.einsum("fee->fe", products)) + 1e-6
        products = products / (lengths[:, :, None] * lengths[:, None]) + 1e-5 * np.eye(lengths.shape[1])
        starts = np.searchsorted(of, np.arange(len(self.cells) + 1))
        some = [slice(*each) for each in pairwise(starts.tolist())]
        along = np.concatenate([left[each] @ parts.T for each, parts in zip(some, self.parts, strict=True)])
        shares = np.linalg.solve(products[of], (along / lengths[of])[:, :, None])[:, :, 0]
        weights = (shares / lengths[of]).astype(np.float32)
        for each, parts in zip(some, self.parts, strict=True):
            left[each] -= weights[each] @ parts
        slope = np.clip(1 + weights[:, 1], 0.5, 2)[:, None]
        return left.reshape(b.shape), weights[:, -4:] / slope


def _excess(left: Floats, allowed: Floats, border: int = 0) -> NDArray[np.float64]:
    """Return by which factor the largest cell exceeds what copies have, shape (P,)."""
    inner = slice(border, SIDE - border)
    cells = (np.abs(left) / allowed)[:, inner, inner].reshape(len(left), -1)
    typical = int(TYPICAL * cells.shape[1])
    largest = cells.max(1).astype(np.float64)
    excess = largest / LARGEST
    few = np.flatnonzero(excess <= FAR * OTHER)
    usual = np.partition(cells[few], typical, axis=1)[:, typical]
    excess[few] = np.maximum(excess[few], largest[few] / (usual + LEAST) / RATIO)
    return excess


def _allowed(slopes: Floats, others: Floats) -> Floats:
    """Return what edits leave of a cell, in grey levels: more where both images have edges."""
    return np.sqrt(np.float32(NOISE**2) + np.float32(BLUR**2) * np.minimum(slopes, others))


def _slopes(cells: Floats) -> tuple[Floats, Floats]:
    """Return the slopes across and down: half the difference of the neighbours, at an edge of it and the next."""
    across, down = np.empty((2, *cells.shape), np.float32)
    for slope, along in ((across, cells), (down.swapaxes(1, 2), cells.swapaxes(1, 2))):
        slope[:, :, 1:-1] = (along[:, :, 2:] - along[:, :, :-2]) / 2
        slope[:, :, 0], slope[:, :, -1] = along[:, :, 1] - along[:, :, 0], along[:, :, -1] - along[:, :, -2]
    return across, down


def _steepness(across: Floats, down: Floats) -> Floats:
    """Return the mean square of the slopes around each cell."""
    return _mean(across * across + down * down)


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
