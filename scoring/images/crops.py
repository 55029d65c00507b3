"""Is one image a part of another? Coarsely: many frames of the whole, by its signature, next to the part."""

from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.images.phash import SIDE
from scoring.images.signature import KEPT, LARGEST, WEIGHTS, WIDTH
from scoring.threads import few_threads

LOW = 8  # frequencies along each axis by which candidates are found
COARSE = LOW * LOW - 1  # numbers of a coarse vector
LIKELY = 0.87  # cosine of coarse vectors from which a fit is looked for
SIDES = (
    (1.0, 1),
    (0.93, 3),
    (0.86, 5),
    (0.78, 5),
    (0.7, 7),
)  # of an axis: length of the part, and places it is tried at
ROUGH = 1e-4  # by which a cosine of 63 numbers in float32 is never wrong
WHOLES = 32  # framed at once: a few MB


def _axes() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The parts of an axis, (I, 2), and which two make a frame, (F, 2): of like length, or one of them whole."""
    parts = [(step, low, low + side) for step, (side, n) in enumerate(SIDES) for low in np.linspace(0, 1 - side, n)]
    frames = [
        (v, h)
        for v, (tall, *_) in enumerate(parts)
        for h, (wide, *_) in enumerate(parts)
        if abs(tall - wide) <= 1 or not tall or not wide
    ]
    return np.clip(np.array(parts)[:, 1:], 0, 1), np.array(frames)


INTERVALS, _FRAME = _axes()
FRAMES = np.concatenate([INTERVALS[_FRAME[:, 0]], INTERVALS[_FRAME[:, 1]]], 1)  # (F, 4): top, bottom, left, right
WEIGHT = np.concatenate([[0.0], WEIGHTS]).reshape(KEPT, KEPT).astype(np.float32)
_LOWEST = (np.arange(LOW)[:, None] * KEPT + np.arange(LOW)).ravel()[1:] - 1  # where a signature has them


def coarse(signatures: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return the lowest 8 x 8 frequencies of each signature but the constant one.

    Args:
        signatures: int8, shape (N, 255).

    Returns:
        int8, shape (N, 63).

    Raises:
        ValueError: for another shape or type.
    """
    check(signatures)
    return signatures[:, _LOWEST]


def check(signatures: NDArray[np.int8]) -> None:
    """Raise ValueError for what is no array of signatures."""
    if signatures.ndim != 2 or signatures.shape[1] != WIDTH or signatures.dtype != np.int8:
        raise ValueError(f"signatures must be int8 of shape (N, {WIDTH}), got {signatures.dtype} {signatures.shape}")


def waves(signatures: NDArray[np.int8]) -> Tensor:
    """Return the cosine series that signatures (N, 255) hold, but for the constant; (N, 16, 16) float32."""
    series = np.zeros((len(signatures), KEPT * KEPT), np.float32)
    series[:, 1:] = signatures / WEIGHTS
    return torch.from_numpy(series.reshape(-1, KEPT, KEPT))


def axis_maps(ends: NDArray[np.float64], kept: int) -> Tensor:
    """Return the maps from the frequencies of a whole axis to the frequencies of its parts, and how they change.

    A signature holds a cosine series. What a part shows is that series between the part's ends, so its own frequencies
    are a linear map of the old ones, the same along each axis. What the signature left out (finer than 16 waves) is
    missing in the part too.

    Args:
        ends: first and last point of each part, shape (I, 2), in 0 to 1.
        kept: frequencies of the part.

    Returns:
        float32, shape (I, 3, kept, 16): the map, its derivative by the first point, and by the last.
    """
    within = (np.arange(SIDE) + 0.5) / SIDE
    at = ends[:, :1] + (ends[:, 1:] - ends[:, :1]) * within  # (I, 32)
    k = np.pi * np.arange(KEPT)
    scale = np.where(np.arange(KEPT) > 0, np.sqrt(2 / SIDE), np.sqrt(1 / SIDE))
    series = np.cos(at[..., None] * k) * scale  # (I, 32, 16)
    slope = -np.sin(at[..., None] * k) * k * scale
    back = np.cos(np.pi * np.arange(kept)[:, None] * within) * np.sqrt(2 / SIDE)  # (kept, 32)
    back[0] /= np.sqrt(2)
    parts = np.stack([series, slope * (1 - within[:, None]), slope * within[:, None]], 1)
    return torch.from_numpy((back @ parts).astype(np.float32))


@cache
def _grid() -> Tensor:
    """The maps of the intervals, one below another, (I x 8, 16)."""
    return axis_maps(INTERVALS, LOW)[:, 0].reshape(-1, KEPT).contiguous()


@cache
def _taken() -> Tensor:
    """Where the numbers of the frames are in the product of all intervals, (F x 63,)."""
    n = len(INTERVALS)
    u, v = np.divmod(np.arange(LOW * LOW)[1:], LOW)
    at = ((_FRAME[:, :1] * LOW + u) * n + _FRAME[:, 1:]) * LOW + v
    return torch.from_numpy(at.ravel())


def framed(signatures: NDArray[np.int8]) -> NDArray[np.int8]:
    """Return what ``coarse`` would give of each part of each image.

    Args:
        signatures: int8, shape (N, 255); a few thousand at most, for the result has 19 kB a row.

    Returns:
        int8, shape (N, F, 63): of each frame in ``FRAMES``; zeros of zeros.
    """
    check(signatures)
    seen = _grid() @ waves(signatures) @ _grid().mT  # (N, I x 8, I x 8)
    chosen = seen.reshape(len(signatures), len(INTERVALS) * LOW * len(INTERVALS) * LOW)[:, _taken()]
    chosen = chosen.reshape(-1, len(FRAMES), COARSE) * torch.from_numpy(WEIGHT[:LOW, :LOW].ravel()[1:])
    largest = chosen.abs().amax(-1, keepdim=True)
    return (chosen * (LARGEST / largest.clamp_min(1e-6))).round().to(torch.int8).numpy()


def coarse_fits(
    images: NDArray[np.int8],
    image_of_pair: NDArray[np.int64],
    parts: NDArray[np.int8],
    part_of_pair: NDArray[np.int64],
    *,
    least: float = -1.0,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return, of some pairs, the largest coarse cosine of a frame of the whole with the part, and that frame.

    Args:
        images: signatures, int8, shape (W, 255).
        image_of_pair: the image of each pair, an index into ``images``, shape (P,).
        parts: signatures, int8, shape (V, 255).
        part_of_pair: the part of each pair, an index into ``parts``, shape (P,).
        least: pairs whose cosine is lower may be reported with 0, which costs far less.

    Returns:
        cosines, shape (P,), float64, 0 with zeros; and indices into ``FRAMES``, shape (P,), int64.
    """
    cosine, frame = np.zeros(len(image_of_pair)), np.zeros(len(image_of_pair), np.int64)
    numbers = torch.from_numpy(coarse(parts)).float()
    lengths = numbers.double().norm(dim=1).clamp_min(1)
    units = numbers / lengths[:, None].float()
    order = np.argsort(image_of_pair, kind="stable")
    some, starts = np.unique(image_of_pair[order], return_index=True)
    groups = np.split(order, starts[1:])
    with few_threads():
        for first in range(0, len(some), WHOLES):
            ints = torch.from_numpy(framed(images[some[first : first + WHOLES]])).float()  # (B, F, 63)
            of_frames = ints.double().norm(dim=2).clamp_min(1)
            rough = ints / of_frames[..., None].float()
            for each, length, unit, pairs in zip(ints, of_frames, rough, groups[first : first + WHOLES], strict=True):
                if least > -1:  # first in float32: most pairs promise nothing
                    pairs = pairs[(unit @ units[part_of_pair[pairs]].T).numpy().max(0) >= least - ROUGH]
                dots = (each @ numbers[part_of_pair[pairs]].T).double()  # (F, k): sums of whole numbers below 2^24
                best, at = (dots / (length[:, None] * lengths[part_of_pair[pairs]])).max(0)
                cosine[pairs], frame[pairs] = best.numpy(), at.numpy()
    return cosine, frame
