"""Pairs near the threshold for a reviewer to judge: drawn by strata of similarity, with known weights."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.policies.dedup.finders.links import Links
from curate.policies.dedup.finders.table import FINDERS
from curate.policies.sampled import drawn_text
from curate.tables.digests import key_bytes, plain
from scoring.errors import InputError

COLUMNS = ("pair", "key_a", "key_b", "similarity", "stratum", "weight")
DROPPED, NEAR = "dropped", "near"  # the two sides of a threshold
MOST_STRATA = {DROPPED: 4, NEAR: 3}
NEAR_SHARE = 1 / 3  # of the pairs drawn, where there are so many
FEWEST = 20  # pairs in a stratum; each is about half as large as the next one outward


@dataclass(frozen=True)
class StratumName:
    """A stratum: pairs of one finder, on one side of its threshold, in one range of similarity.

    Attributes:
        finder: that linked them.
        side: ``dropped`` or ``near``.
        number: 1 next to the threshold, and outward from there.
        least: the least alike similarity in it, in the unit of the finder.
        most: the most alike one.
    """

    finder: str
    side: str
    number: int
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.finder}: {self.side} {self.number}, {self.least!r} to {self.most!r}"


@dataclass(frozen=True)
class Drawn:
    """One pair of an audit: its keys, similarity and stratum, and how many pairs it represents."""

    key_a: str
    key_b: str
    similarity: float
    stratum: StratumName
    weight: float


def pair_of_each_row(links: Links, place: NDArray[np.int64], *, higher: bool = True) -> Links:
    """Return which pairs near a threshold to audit: for each row, that with the row it would be dropped for.

    That is what a looser threshold would drop, about: a row, for the most alike of the rows that are kept and come
    before it. Each pair is left once, whichever side requested, and where only a random part of the rows requested, the
    pairs of those are a random part of all (``draw_pairs`` with ``looked_for``).

    Args:
        links: P pairs.
        place: of each row of the table in the order of keeping, shape (N,).
        higher: whether a larger similarity is more alike.

    Returns:
        At most one pair for each ``query``.
    """
    links = links.take(place[links.row] < place[links.query])
    alike = links.similarity if higher else -links.similarity.astype(np.float64)
    links = links.take(np.lexsort((place[links.row], -alike, links.query)))
    return links.take(np.unique(links.query, return_index=True)[1])


def draw_pairs(
    pairs: pa.Table, thresholds: Mapping[str, float], n: int, *, seed: int = 0, looked_for: float = 1.0
) -> list[Drawn]:
    """Draw pairs for a reviewer to judge, more of them near the threshold.

    Each finder's pairs are cut into strata by similarity: on the side of what was dropped up to four, which hold an
    eighth, an eighth, a quarter and half of the pairs going outward from the threshold; on the other side up to three.
    Equal similarities stay together. Half of the draw is spread over strata by their size and half evenly; within a
    stratum it is a simple random sample. Which pairs are drawn depends on their keys and the seed alone, not on the
    order of the rows. They come in a random order, so the first hundred answers are a sample like all of them.

    Args:
        pairs: P rows with ``key_a`` and ``key_b`` (text), ``similarity`` (number) and ``finder`` (text): every dropped
            row with the row kept instead, and pairs found at a looser threshold. Each pair once; leave out
            pairs of equal bytes, which need no judging.
        thresholds: finder -> its threshold, on which the side of a pair depends.
        n: pairs to draw, >= 1; all where there are fewer.
        seed: another seed draws others.
        looked_for: of the rows that could have a pair just short of a threshold, the share that was requested, at
            random, in (0, 1]; each such pair represents that many more. The number of pairs beyond is an estimate then.

    Raises:
        InputError: if there are no pairs.
    """
    if not pairs.num_rows:
        raise InputError(
            "--audit: expected pairs to judge, got none at or near the threshold; loosen it, or leave --audit out"
        )
    finder, similarity, ties = pairs.column("finder"), pairs.column("similarity").to_numpy(), _pair_hashes(pairs, seed)
    strata: list[tuple[StratumName, NDArray[np.int64]]] = []
    for name, threshold in thresholds.items():
        strata += _strata(name, np.flatnonzero(pc.equal(finder, name).to_numpy()), similarity, threshold)
    drawn = _draw(strata, ties, n, looked_for)
    # hashed once more, for a stratum's lowest hashes are the lower the larger it is
    drawn.sort(key=lambda each: hashlib.blake2b(ties[each[0]].tobytes()).digest())
    rows = pa.array([row for row, _, _ in drawn])
    keys = zip(*(pairs.column(name).take(rows).to_pylist() for name in ("key_a", "key_b")), strict=True)
    return [
        Drawn(first, second, _shortest(similarity[row]), stratum, weight)
        for (row, stratum, weight), (first, second) in zip(drawn, keys, strict=True)
    ]


def _shortest(value: np.floating | np.integer) -> float:
    """The decimal that a reviewer would write: 0.95, where a float32 as a double reads 0.949999988079071."""
    return float(str(value)) if isinstance(value, np.floating) else float(value)


def _pair_hashes(pairs: pa.Table, seed: int) -> NDArray[np.uint64]:
    """A hash of each pair, independent of the order of its keys."""
    salt = seed.to_bytes(8, "little", signed=True)
    first, second = (key_bytes(plain(pairs.column(name).combine_chunks())) for name in ("key_a", "key_b"))
    digests = bytearray()
    for a, b in zip(first, second, strict=True):
        low, high = (a, b) if a <= b else (b, a)
        digests += hashlib.blake2b(len(low).to_bytes(4, "little") + low + high, digest_size=8, salt=salt).digest()
    return np.frombuffer(bytes(digests), ">u8").astype(np.uint64)


def _strata(
    finder: str, rows: NDArray[np.int64], similarity: NDArray, threshold: float
) -> list[tuple[StratumName, NDArray[np.int64]]]:
    higher = FINDERS[finder].higher
    alike = similarity[rows] if higher else -similarity[rows].astype(np.float64)
    bar = threshold if higher else -threshold
    # a threshold of 0.9 in float32 is a little less than the double 0.9: compare as the similarity is stored
    is_dropped = alike >= (alike.dtype.type(bar) if np.issubdtype(alike.dtype, np.floating) else bar)
    out = []
    for side, mask, outward in ((DROPPED, is_dropped, 1), (NEAR, ~is_dropped, -1)):
        inside = rows[mask]
        distance = outward * alike[mask].astype(np.float64)
        order = np.argsort(distance, kind="stable")
        for number, part in enumerate(_cut(distance[order], MOST_STRATA[side]), 1):
            members = inside[order[part]]
            ends = [_shortest(similarity[members[at]]) for at in (0, -1)]
            least, most = ends if side == DROPPED else ends[::-1]
            out.append((StratumName(finder, side, number, least, most), members))
    return out


def _cut(values: NDArray[np.float64], most: int) -> list[slice]:
    """Cut ascending values into at most ``most`` parts, each half as large as the next; ties stay together."""
    n = len(values)
    parts = min(most, 1 + max(0, int(np.log2(max(n, 1) / FEWEST)))) if n else 0
    cuts = {0, n}
    for halvings in range(1, parts):
        at = n >> halvings
        cuts.add(int(np.searchsorted(values, values[at - 1], side="right")))
    return [slice(a, b) for a, b in pairwise(sorted(cuts)) if b > a]


def _draw(
    strata: Sequence[tuple[StratumName, NDArray[np.int64]]], ties: NDArray[np.uint64], n: int, looked_for: float
) -> list[tuple[int, StratumName, float]]:
    """Return the pairs that are drawn: number, stratum and weight."""
    sizes = {side: [len(rows) for name, rows in strata if name.side == side] for side in (DROPPED, NEAR)}
    n_near = min(round(n * NEAR_SHARE), sum(sizes[NEAR]))
    n_near = max(n_near, min(n - sum(sizes[DROPPED]), sum(sizes[NEAR])))  # what the other side cannot use
    counts = {
        DROPPED: iter(allocate(sizes[DROPPED], n - n_near)),
        NEAR: iter(allocate(sizes[NEAR], n_near)),
    }
    drawn = []
    for name, rows in strata:
        count = next(counts[name.side])
        size = round(len(rows) / looked_for) if name.side == NEAR else len(rows)
        chosen = rows[np.argsort(ties[rows], kind="stable")[:count]]
        drawn += [(row, name, size / count) for row in chosen.tolist()]
    return drawn


def allocate(sizes: Sequence[int], n: int) -> list[int]:
    """Return the sample size of each stratum: half of n by size, half evenly, at most all.

    Args:
        sizes: members of each stratum, >= 1.
        n: to draw in all; everything where that is more than there are. Each stratum gets one while there are enough.

    >>> allocate([10, 10, 20, 40], 40)
    [8, 7, 10, 15]
    """
    size = np.array(sizes, np.float64)
    n = min(n, int(size.sum()))
    if not n:
        return [0] * len(size)
    goal = n * (0.5 * size / size.sum() + 0.5 / len(size))
    for _ in size:  # what is over the size of one stratum goes to the others, in proportion
        full = goal >= size
        spare = n - size[full].sum()
        rest = goal[~full].sum()
        if not rest:
            break
        goal = np.where(full, size, goal * spare / rest)
    counts = np.minimum(np.floor(goal + 1e-9), size).astype(np.int64)
    if n >= len(size):
        counts = np.maximum(counts, 1)
    order = np.argsort(counts - goal, kind="stable")
    while counts.sum() != n:
        step = 1 if counts.sum() < n else -1
        for at in order if step > 0 else order[::-1]:
            if counts.sum() != n and (counts[at] < size[at] if step > 0 else counts[at] > 1):
                counts[at] += step
    return counts.tolist()


def audit_text(drawn: Sequence[Drawn]) -> bytes:
    """Return an audit as CSV."""
    lines = [
        (
            f"{number} of {len(drawn)}",
            pair.key_a,
            pair.key_b,
            repr(pair.similarity),
            str(pair.stratum),
            repr(pair.weight),
        )
        for number, pair in enumerate(drawn, 1)
    ]
    return drawn_text(COLUMNS, lines)
