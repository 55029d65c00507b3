"""A coarse search for the region of one image that another shows: a grid of frames, compared by signatures."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from scoring.images.signature import KEPT, SIDE, WEIGHTS, check

LOW = 5  # frequencies per axis of the coarse search
HELD = 10  # frequencies per axis of the whole image that enter a region
COARSE = LOW * LOW - 1  # numbers of a coarse vector
LIKELY = 0.9  # minimal cosine of coarse vectors for refinement
SIDES = ((1.0, 1), (0.93, 3), (0.85, 4), (0.78, 5), (0.7, 5))  # share of an axis, number of positions
AT_ONCE = 64  # parts compared with one image at a time
WHOLES = 128  # images framed at once: 3 MB
INTERVALS_AT_ONCE = 128  # intervals mapped at once: 0.3 MB, which fits in the cache
CLOSE = 1e-5  # cosines closer than this are ties, which go to the first frame


def _intervals() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the intervals of an axis, (I, 2), and the pairs of intervals that form a frame, (F, 2).

    The two intervals of a frame have similar lengths, or one is the full axis.
    """
    parts = [(step, low, low + side) for step, (side, n) in enumerate(SIDES) for low in np.linspace(0, 1 - side, n)]
    frames = [
        (v, h)
        for v, (tall, *_) in enumerate(parts)
        for h, (wide, *_) in enumerate(parts)
        if abs(tall - wide) <= 1 or not tall or not wide
    ]
    return np.clip(np.array(parts)[:, 1:], 0, 1), np.array(frames)


INTERVALS, _FRAME = _intervals()
FRAMES = np.concatenate([INTERVALS[_FRAME[:, 0]], INTERVALS[_FRAME[:, 1]]], 1)  # (F, 4): top, bottom, left, right
WEIGHT = np.concatenate([[0.0], WEIGHTS]).reshape(KEPT, KEPT).astype(np.float32)


def waves(signatures: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the cosine series of signatures (N, 255) with a constant of 0; (N, 16, 16) float32."""
    series = np.zeros((len(signatures), KEPT * KEPT), np.float32)
    series[:, 1:] = signatures / WEIGHTS
    return series.reshape(-1, KEPT, KEPT)


def axis_maps(ends: NDArray[np.float64], kept: int) -> NDArray[np.float32]:
    """Return the linear maps from the frequencies of a full axis to frequencies of its intervals, and derivatives.

    A signature is a cosine series. The content of a region is that series between the region's ends, so its frequencies
    are a linear map of the image's, the same along each axis. Frequencies above the signature's 16 are missing in the
    region too.

    Args:
        ends: start and end of each interval, shape (I, 2), in 0 to 1.
        kept: number of frequencies of the interval.

    Returns:
        float32, shape (I, 3, kept, 16): the map, its derivative by the start, and by the end.
    """
    within = (np.arange(SIDE) + 0.5) / SIDE
    k = np.pi * np.arange(KEPT)
    scale = np.where(np.arange(KEPT) > 0, np.sqrt(2 / SIDE), np.sqrt(1 / SIDE))
    back = np.cos(np.pi * np.arange(kept)[:, None] * within) * np.sqrt(2 / SIDE)  # (kept, 32)
    back[0] /= np.sqrt(2)
    back = np.stack([back, back * (1 - within), back * within])  # (3, kept, 32)
    lengths, which = np.unique(np.round(ends[:, 1] - ends[:, 0], 9), return_inverse=True)
    along = lengths[:, None, None, None] * within[:, None] * k  # (L, 1, 32, 16)
    cosine, sine = ((back @ wave(along)).astype(np.float32) for wave in (np.cos, np.sin))  # (L, 3, kept, 16)
    first = ends[:, None, None, :1] * k  # (I, 1, 1, 16)
    real, imaginary = ((wave(first) * scale).astype(np.float32) for wave in (np.cos, np.sin))
    maps = np.empty((len(ends), *cosine.shape[1:]), np.float32)
    for start in range(0, len(ends), INTERVALS_AT_ONCE):
        some = slice(start, start + INTERVALS_AT_ONCE)
        real_of, imaginary_of, cosines, sines = real[some], imaginary[some], cosine[which[some]], sine[which[some]]
        maps[some, :1] = real_of * cosines[:, :1] - imaginary_of * sines[:, :1]
        maps[some, 1:] = -k.astype(np.float32) * (imaginary_of * cosines[:, 1:] + real_of * sines[:, 1:])
    return maps


@cache
def _grid() -> NDArray[np.float32]:
    """Return the map from the signature of a whole image to the coarse vectors of all frames, (99, F x 24), float32."""
    maps = axis_maps(INTERVALS, LOW)[:, 0, :, :HELD]
    down, across = maps[_FRAME[:, 0]], maps[_FRAME[:, 1]]  # (F, 5, 10)
    every = np.einsum("fua,fvb->abfuv", down, across) * WEIGHT[:LOW, :LOW]
    return every.reshape(HELD * HELD, len(FRAMES), LOW * LOW)[1:, :, 1:].reshape(HELD * HELD - 1, -1)


def _lowest(signatures: NDArray[np.int8], kept: int) -> NDArray[np.float32]:
    """Return the lowest frequencies of signatures without the constant, (N, kept x kept - 1) float32."""
    at = (np.arange(kept)[:, None] * KEPT + np.arange(kept)).ravel()[1:] - 1
    return signatures[:, at].astype(np.float32)


def framed(signatures: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the lowest 5 x 5 frequencies, without the constant, of each frame of each image: (N, F, 24) float32.

    Signatures are int8, (N, 255); the result has 22 kB per row. Zeros stay zeros.
    """
    check(signatures)
    series = _lowest(signatures, HELD) / WEIGHT[:HELD, :HELD].ravel()[1:]
    frames: NDArray[np.float32] = np.matmul(series, _grid())
    return frames.reshape(-1, len(FRAMES), COARSE)


def coarse_fits(
    images: NDArray[np.int8],
    image_of_pair: NDArray[np.int64],
    parts: NDArray[np.int8],
    part_of_pair: NDArray[np.int64],
    least_cosine: float = -1.0,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the frame of each pair's first image whose coarse cosine with the second image is largest.

    Args:
        images: signatures, int8, shape (W, 255).
        image_of_pair: index into ``images``, shape (P,).
        parts: signatures, int8, shape (V, 255).
        part_of_pair: index into ``parts``, shape (P,).
        least_cosine: pairs below it get frame 0, which is faster.
        report: called with the numbers of framed and all images.

    Returns:
        cosines, shape (P,), float64, 0 with zeros; and indices into ``FRAMES``, shape (P,), int64.
    """
    check(parts)
    cosine, frame = np.zeros(len(image_of_pair)), np.zeros(len(image_of_pair), np.int64)
    units = np.concatenate([_lowest(parts, LOW), np.zeros((1, COARSE), np.float32)])  # the last, of zeros, fills up
    units /= np.maximum(_lengths(units), 1e-6)[:, None]
    order = np.argsort(image_of_pair, kind="stable")
    images_in_order = image_of_pair[order]
    within = np.arange(len(order)) - np.searchsorted(images_in_order, images_in_order)
    starts = np.flatnonzero(within % AT_ONCE == 0)  # each block has one image and some of its parts
    sizes = np.diff(starts, append=len(order))
    by_size = np.argsort(sizes, kind="stable")  # blocks of similar size need little padding
    for first in range(0, len(starts), WHOLES):
        groups = by_size[first : first + WHOLES]
        group = np.repeat(np.arange(len(groups)), sizes[groups])
        place = np.arange(len(group)) - np.searchsorted(group, group)
        at = starts[groups][group] + place
        chosen = np.full((len(groups), sizes[groups[-1]]), len(parts))
        chosen[group, place] = part_of_pair[order[at]]
        frames = framed(images[images_in_order[starts[groups]]])
        cosines = units[chosen] @ frames.transpose(0, 2, 1)  # (B, K, F)
        cosines /= np.maximum(_lengths(frames), 1e-6)[:, None]
        best = cosines.max(2)[group, place]
        cosine[order[at]] = best
        near = np.flatnonzero(best >= least_cosine)
        frame[order[at[near]]] = _first_best(cosines[group[near], place[near]], best[near])
        report(min(first + WHOLES, len(starts)), len(starts))
    return cosine, frame


def _lengths(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the norm of vectors (..., D), shape (...)."""
    return np.sqrt(np.einsum("...d,...d->...", vectors, vectors))


def _first_best(cosines: NDArray[np.float32], best: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return the first frame of each row whose cosine (P, F) equals ``best`` (P,), shape (P,)."""
    return (cosines >= (best - np.float32(CLOSE))[:, None]).argmax(1)
