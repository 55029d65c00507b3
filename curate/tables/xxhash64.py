"""Vectorised xxHash64 of many texts in NumPy: the same on every machine and version.

Source: Collet, "xxHash fast digest algorithm", version 0.1.1 of its specification (2018), section XXH64.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
U = np.uint64
P1, P2, P3, P4, P5 = map(
    U, (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
)
STRIPE = 32  # bytes that four lanes take at a time
WORD = 8  # bytes that are read from any place on, so that as many follow the last text
BLOCK = 1 << 14  # texts whose lanes the processor's cache holds
RUN = 512  # texts of one length, from which they are hashed apart from others


def xxh64(texts: pa.LargeBinaryArray, seed: int = 0) -> Hashes:
    """Return the XXH64 of each of N byte strings without nulls, shape (N,) uint64, with a 64-bit seed."""
    lengths = np.diff(_starts(texts)).astype(np.uint16)  # 16 bits sort fast, and need not be exact
    is_mixed = np.count_nonzero(lengths[1:] != lengths[:-1]) >= len(texts) // RUN
    sizes = np.bincount(lengths) if is_mixed else np.zeros(0, np.int64)
    is_run = sizes >= RUN
    if 2 * sizes[is_run].sum() < len(texts):
        return _in_blocks(texts, np.arange(0, len(texts), BLOCK), seed)
    order, ends = np.argsort(lengths, kind="stable"), np.cumsum(sizes)
    cuts = np.concatenate([(ends - sizes)[is_run], ends[is_run], np.arange(0, len(texts), BLOCK)])
    hashes = np.empty(len(texts), U)
    hashes[order] = _in_blocks(texts.take(pa.array(order)), np.unique(cuts[cuts < len(texts)]), seed)
    return hashes


def _starts(texts: pa.LargeBinaryArray) -> NDArray[np.int64]:
    """Return the start offset of each of N texts, and the end of the last, shape (N + 1,)."""
    return np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + len(texts) + 1]


def _in_blocks(texts: pa.LargeBinaryArray, cuts: NDArray[np.int64], seed: int) -> Hashes:
    """Return the hashes of texts, computed in blocks that start at ``cuts``, of which the first is 0."""
    start, data = _starts(texts), np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    hashes = np.empty(len(texts), U)
    for first, last in pairwise([*cuts.tolist(), len(texts)]):
        places = start[first : last + 1]
        block = data[places[0] : places[-1] + WORD]
        if len(block) < places[-1] - places[0] + WORD:
            block = np.append(block, np.zeros(WORD, np.uint8))
        hashes[first:last] = _hashed(block, places - places[0], U(seed % 2**64))
    return hashes


def _hashed(data: NDArray[np.uint8], start: NDArray[np.int64], seed: np.uint64) -> Hashes:
    """Return the hashes of M texts by offsets (M + 1,)."""
    lengths = np.diff(start)
    if lengths.min() == lengths.max():
        return _equal_lengths(data, len(lengths), int(lengths[0]), seed)
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))  # the eight bytes from any place on
    h = _striped(words, start[:-1], lengths, seed) + lengths.astype(U)
    at, left = start[:-1] + lengths // STRIPE * STRIPE, lengths % STRIPE
    while (rows := _row_selection(left >= 8)) is not None:
        h[rows] = _add_word(h[rows], words[at[rows]])
        at, left = at + 8 * (left >= 8), left - 8 * (left >= 8)
    if (rows := _row_selection(left >= 4)) is not None:
        h[rows] = _add_half(h[rows], words[at[rows]] & U(0xFFFFFFFF))
        at, left = at + 4 * (left >= 4), left - 4 * (left >= 4)
    while (rows := _row_selection(left >= 1)) is not None:
        h[rows] = _add_byte(h[rows], data[at[rows]])
        at, left = at + 1, left - 1
    return _avalanche(h)


def _equal_lengths(data: NDArray[np.uint8], n: int, length: int, seed: np.uint64) -> Hashes:
    """Return the hashes of n contiguous texts of equal length: each position is read as one column."""

    def column(at: int, kind: str) -> NDArray[Any]:
        return np.ndarray((n,), kind, data, at, (length,))

    words = [column(at, "<u8") for at in range(0, length - 7, 8)]
    n_striped = length // STRIPE * 4
    with np.errstate(over="ignore"):
        lanes: list[Any] = _first_lanes(seed)
        for at, word in enumerate(words[:n_striped]):
            lanes[at % 4] = _round(lanes[at % 4], word)
        h = (_merged(lanes) if n_striped else np.full(n, seed + P5)) + U(length)
    for word in words[n_striped:]:
        h = _add_word(h, word)
    at = len(words) * 8
    if length - at >= 4:
        h, at = _add_half(h, column(at, "<u4")), at + 4
    for place in range(at, length):
        h = _add_byte(h, column(place, "u1"))
    return _avalanche(h)


def _striped(words: Hashes, start: NDArray[np.int64], lengths: NDArray[np.int64], seed: np.uint64) -> Hashes:
    """Return the state after the complete stripes of each text; the initial state for shorter ones."""
    with np.errstate(over="ignore"):
        h = np.full(len(start), seed + P5)
        if (n_stripes := int(lengths.max(initial=0)) // STRIPE) == 0:
            return h
        lanes = [np.full(len(start), first) for first in _first_lanes(seed)]
    for stripe in range(n_stripes):
        rows = np.flatnonzero(lengths >= STRIPE * (stripe + 1))
        for i, lane in enumerate(lanes):
            lane[rows] = _round(lane[rows], words[start[rows] + STRIPE * stripe + 8 * i])
    if (striped := _row_selection(lengths >= STRIPE)) is not None:
        h[striped] = _merged([lane[striped] for lane in lanes])
    return h


def _first_lanes(seed: np.uint64) -> list[np.uint64]:
    return [seed + P1 + P2, seed + P2, seed, seed - P1]


def _merged(lanes: list[Hashes]) -> Hashes:
    merged = np.zeros_like(lanes[0])
    for lane, by in zip(lanes, (1, 7, 12, 18), strict=True):
        merged += _rotated(lane, by)
    for lane in lanes:
        merged = (merged ^ _round(U(0), lane)) * P1 + P4
    return merged


def _add_word(h: Hashes, word: Hashes) -> Hashes:
    mixed = _round(U(0), word)
    mixed ^= h
    mixed = _rotated(mixed, 27)
    mixed *= P1
    mixed += P4
    return mixed


def _add_half(h: Hashes, word: Hashes) -> Hashes:
    mixed = word * P1
    mixed ^= h
    mixed = _rotated(mixed, 23)
    mixed *= P2
    mixed += P3
    return mixed


def _add_byte(h: Hashes, byte: NDArray[np.uint8]) -> Hashes:
    mixed = byte * P5
    mixed ^= h
    mixed = _rotated(mixed, 11)
    mixed *= P1
    return mixed


def _avalanche(h: Hashes) -> Hashes:
    for bits, factor in ((33, P2), (29, P3)):
        h = h ^ (h >> U(bits))
        h *= factor
    return h ^ (h >> U(32))


def _row_selection(rows: NDArray[np.bool_]) -> slice | NDArray[np.int64] | None:
    """Return the rows of a step: a slice without a copy if it is all rows; None for none."""
    if rows.all():
        return slice(None) if len(rows) else None
    return np.flatnonzero(rows) if rows.any() else None


def _round(lane: Hashes | np.uint64, word: Hashes) -> Hashes:
    mixed = word * P2
    mixed += lane
    mixed = _rotated(mixed, 31)
    mixed *= P1
    return mixed


def _rotated(values: Hashes, bits: int) -> Hashes:
    rotated = values << U(bits)
    rotated |= values >> U(64 - bits)
    return rotated
