"""The region of an image that matches another image best, from their signatures alone."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from scoring.images.crops import FRAMES, WEIGHT, axis_maps, coarse_fits, waves
from scoring.images.signature import KEPT, MARGIN, STEPS, check

LOW = 8  # frequencies per axis of the first steps
FINE = 12  # frequencies per axis of the last steps
LEAST = 0.6  # minimal share of each side in a region
STRIDE = 0.04  # largest step of an edge
SETTLE = (LOW, LOW, FINE, FINE, FINE)  # frequencies per axis of each step
JUDGED = 1  # step after which unpromising pairs are dropped
AT_ONCE = 1024  # pairs refined at once
DAMPING = 1e-3
_JUDGED_BY = (np.arange(FINE)[:, None] * KEPT + np.arange(FINE)).ravel()[1:] - 1  # indices into a signature
FULL_FRAME = np.array([0, STEPS, 0, STEPS])


@dataclass(frozen=True)
class Refined:
    """The match of a region of one image with another image.

    Attributes:
        cosine: over the frequencies that the region contains, shape (P,), float64, in [-1, 1]; -1 if either signature
            is zero or ``least_cosine`` was not reached.
        edges: of the region, shape (P, 4), int64, in 256ths: top and bottom of the height, left and right of the width.
    """

    cosine: NDArray[np.float64]
    edges: NDArray[np.int64]


def refine(
    images: NDArray[np.int8],
    parts: NDArray[np.int8],
    start: NDArray[np.int64] | None = None,
    *,
    least_cosine: float = -1.0,
) -> Refined:
    """Return the region of each whole image that matches the other image best, and its similarity.

    Gauss-Newton from a frame of the grid: the other image is linearised in the four edges of the frame. The first steps
    use the lowest 8 x 8 frequencies, later ones 12 per axis, or fewer for a smaller region (80 % of an axis holds 80 %
    of the waves). The best frame of all steps is returned.

    Args:
        images: signatures, int8, shape (P, 255).
        parts: signatures, int8, shape (P, 255).
        start: frame to start from, shape (P,), an index into ``FRAMES``; by default the frame with the largest coarse
            cosine, which is several times slower.
        least_cosine: pairs whose 8 x 8 frequencies do not reach this cosine in one step are not refined.

    Raises:
        ValueError: for other shapes or types.
    """
    check(images)
    check(parts)
    if len(images) != len(parts) or (start is not None and len(start) != len(images)):
        raise ValueError(f"expected as many images as parts and starts, got {len(images)} and {len(parts)}")
    cosine, edges = np.full(len(images), -1.0), np.tile(FULL_FRAME, (len(images), 1))
    for first in range(0, len(images), AT_ONCE):
        block = slice(first, first + AT_ONCE)
        frame = _best_frames(images[block], parts[block]) if start is None else start[block]
        cosine[block], edges[block] = _refine_pairs(images[block], parts[block], frame, least_cosine)
    return Refined(cosine, edges)


def as_they_are(images: NDArray[np.int8], others: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return the cosine of pairs of signatures (P, 255), int8, over the frequencies of ``refine``; 0 for zeros."""
    (a, length), (b, other) = _low_frequencies(images), _low_frequencies(others)
    return np.einsum("pd,pd->p", a, b).astype(np.float64) / (length * other)


def _low_frequencies(signatures: NDArray[np.int8]) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Return the lowest 12 x 12 frequencies, as integers with exact sums of products, and their norm (1 for zeros)."""
    check(signatures)
    numbers = signatures[:, _JUDGED_BY].astype(np.float32)
    length = np.linalg.norm(numbers.astype(np.float64), axis=1)
    return numbers, np.where(length > 0, length, 1)


def _best_frames(images: NDArray[np.int8], parts: NDArray[np.int8]) -> NDArray[np.int64]:
    """Return the frame of each whole image (P, 255) with the largest coarse cosine with the other image."""
    every = np.arange(len(images))
    return coarse_fits(images, every, parts, every)[1]


def _refine_pairs(
    images: NDArray[np.int8], parts: NDArray[np.int8], frame: NDArray[np.int64], least_cosine: float
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Refine the pairs that reach ``least_cosine``; return cosines and edges as in ``Refined``."""
    series, target = waves(images), waves(parts) * WEIGHT
    edges = _clipped(FRAMES[frame])
    best, where = np.full(len(images), -1.0), _rounded(edges)
    left = np.flatnonzero(images.any(1) & parts.any(1))
    for turn, kept in enumerate((*SETTLE, FINE)):
        if not len(left):
            break
        at = _rounded(edges[left])
        seen, moves, goal = _linearised(series[left], target[left], at, kept)
        cosine = _cosine(seen, goal)
        if kept == FINE:
            better = cosine > best[left]
            best[left[better]], where[left[better]] = cosine[better], at[better]
        elif turn == JUDGED:
            ok = cosine >= least_cosine
            left, seen, moves, goal = left[ok], seen[ok], moves[ok], goal[ok]
        if turn < len(SETTLE):
            edges[left] = _clipped(edges[left] + _edge_steps(seen, moves, goal))
    return best, where


@cache
def _interval_maps() -> NDArray[np.float32]:
    """Return the maps of all intervals of 91 positions, (91 x 91, 3, 12, 16), at 91 start + distance to the end."""
    inside = np.arange(MARGIN + 1)
    ends = np.stack(np.meshgrid(inside, STEPS - inside, indexing="ij"), -1).reshape(-1, 2) / STEPS
    return axis_maps(ends, FINE)


def _rounded(edges: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return edges rounded to whole positions, (P, 4)."""
    return np.rint(edges * STEPS).astype(np.int64)


def _maps_of(ends: NDArray[np.int64], kept: int) -> NDArray[np.float32]:
    """Return the maps of intervals (P, 2), and their derivatives by start and end, (P, 3, kept, 16)."""
    return _interval_maps()[ends[:, 0] * (MARGIN + 1) + STEPS - ends[:, 1], :, :kept]


def _linearised(
    series: NDArray[np.float32], target: NDArray[np.float32], at: NDArray[np.int64], kept: int
) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """Return the frequencies of frames (P, K), their derivatives by edge (P, 4, K), and the target's (P, K)."""
    n = len(at)
    vertical, horizontal = _maps_of(at[:, :2], kept), _maps_of(at[:, 2:], kept)
    rows = (vertical.reshape(n, 3 * kept, KEPT) @ series).reshape(n, 3, kept, KEPT)
    across = rows[:, 0] @ horizontal.reshape(n, 3 * kept, KEPT).transpose(0, 2, 1)  # (P, kept, 3 x kept)
    across = across.reshape(n, kept, 3, kept).transpose(0, 2, 1, 3)
    down = rows[:, 1:].reshape(n, 2 * kept, KEPT) @ horizontal[:, 0].transpose(0, 2, 1)
    held = _contained_frequencies(at, kept)
    every = np.concatenate([across[:, :1], down.reshape(n, 2, kept, kept), across[:, 1:]], 1)
    every *= (WEIGHT[:kept, :kept] * held)[:, None]
    flat = every.reshape(n, 5, kept * kept)
    return flat[:, 0], flat[:, 1:], (target[:, :kept, :kept] * held).reshape(n, kept * kept)


def _contained_frequencies(at: NDArray[np.int64], kept: int) -> NDArray[np.bool_]:
    """Return a mask (P, kept, kept) of the frequencies that a region of this size contains."""
    sides = (at[:, 1::2] - at[:, 0::2]) * FINE  # (P, 2)
    low = np.arange(kept) * STEPS < sides[..., None]  # (P, 2, kept)
    return low[:, 0, :, None] & low[:, 1, None, :]


def _cosine(seen: NDArray[np.float32], goal: NDArray[np.float32]) -> NDArray[np.float64]:
    a, b = seen.astype(np.float64), goal.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return np.clip(np.einsum("pk,pk->p", a, b) / np.maximum(lengths, 1e-9), -1, 1)


def _edge_steps(
    seen: NDArray[np.float32], moves: NDArray[np.float32], goal: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the Gauss-Newton step of each edge, (P, 4), by damped least squares."""
    basis = np.concatenate([seen[:, None], moves], 1).astype(np.float64)  # (P, 5, K)
    lengths = np.maximum(np.sqrt(np.einsum("pek,pek->pe", basis, basis)), 1e-9)[..., None]
    basis /= lengths
    gram = basis @ basis.transpose(0, 2, 1) + DAMPING * np.eye(5)
    share = (np.linalg.solve(gram, basis @ goal.astype(np.float64)[..., None]) / lengths)[..., 0]
    step = share[:, 1:] / np.where(share[:, :1] > 0, share[:, :1], np.inf)
    return np.clip(step, -STRIDE, STRIDE)


def _clipped(edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return edges clipped to at most ``MARGIN`` inside the image, with sides of at least ``LEAST``."""
    first = np.clip(edges[:, 0::2], 0, MARGIN / STEPS)
    last = np.clip(edges[:, 1::2], 1 - MARGIN / STEPS, 1)
    short = np.maximum(LEAST - (last - first), 0)
    first = np.maximum(first - short / 2, 0)
    last = np.minimum(last + np.maximum(LEAST - (last - first), 0), 1)
    first = np.minimum(first, last - LEAST)
    out = np.empty_like(edges)
    out[:, 0::2], out[:, 1::2] = first, last
    return out
