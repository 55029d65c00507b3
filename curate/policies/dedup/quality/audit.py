"""Sampling of pairs near the threshold for review, stratified by similarity."""

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
from scoring.arrays import Array, Floats, Ints
from scoring.errors import InputError

COLUMNS = ("pair", "key_a", "key_b", "similarity", "stratum", "weight")
DROPPED, NEAR = "dropped", "near"  # the two sides of a threshold
MOST_STRATA = {DROPPED: 4, NEAR: 3}
NEAR_SHARE = 1 / 3  # share of the sampled pairs, if available
FEWEST = 20  # minimal pairs in a stratum; each is about half as large as the next one outward


@dataclass(frozen=True)
class StratumName:
    """A stratum: pairs of one finder, on one side of its threshold, in one range of similarity.

    Attributes:
        finder: of the pairs.
        side: ``dropped`` or ``near``.
        number: from 1 next to the threshold outward.
        least: the similarity of its least similar pair, in the finder's unit.
        most: the similarity of its most similar pair.
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
    """A sampled pair: keys, similarity and stratum, and the number of pairs it represents."""

    key_a: str
    key_b: str
    similarity: float
    stratum: StratumName
    weight: float


def pair_of_each_row(links: Links, place: Ints, *, higher: bool = True) -> Links:
    """Return the pairs near a threshold to audit: each row with the row it would be dropped for.

    This approximates what a looser threshold would drop: a row, for the most similar earlier kept row. Each pair occurs
    once; if only a random part of the rows was queried, their pairs are a random sample (``looked_for`` of
    ``draw_pairs``).

    Args:
        links: P pairs.
        place: rank of each row in the order of keeping, shape (N,).
        higher: whether larger values are more similar.

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
    """Sample pairs for review, more of them near the threshold.

    Each finder's pairs are split into strata by similarity: up to four of dropped pairs, with an eighth, an eighth, a
    quarter and half of the pairs from the threshold outward, and up to three on the other side. Ties stay together.
    Half of the sample is allocated by size, half evenly; within a stratum it is simple random. It depends on keys and
    seed only, not on the row order. The order is random, so the first hundred verdicts are a random sample too.

    Args:
        pairs: P rows with ``key_a`` and ``key_b`` (text), ``similarity`` (number) and ``finder`` (text): every dropped
            row with the row kept instead, and pairs found at a looser threshold. Each pair once, without pairs of equal
            bytes.
        thresholds: finder -> its threshold, for the side of a pair.
        n: sample size, >= 1; all if there are fewer.
        seed: of the sample.
        looked_for: random share of the rows that was queried for pairs just short of a threshold, in (0, 1]; the weight
            of these pairs is divided by it.

    Raises:
        InputError: if there are no pairs.
    """
    if not pairs.num_rows:
        raise InputError(
            "--audit: expected pairs to judge, got none at or near the threshold; loosen it, or leave --audit out"
        )
    finder, similarity, ties = pairs.column("finder"), pairs.column("similarity").to_numpy(), _pair_hashes(pairs, seed)
    strata: list[tuple[StratumName, Ints]] = []
    for name, threshold in thresholds.items():
        strata += _strata(name, np.flatnonzero(pc.equal(finder, name).to_numpy()), similarity, threshold)
    drawn = _draw(strata, ties, n, looked_for)
    # hashed again, since the lowest hashes depend on the size of a stratum
    drawn.sort(key=lambda each: hashlib.blake2b(ties[each[0]].tobytes()).digest())
    rows = pa.array([row for row, _, _ in drawn])
    keys = zip(*(pairs.column(name).take(rows).to_pylist() for name in ("key_a", "key_b")), strict=True)
    return [
        Drawn(first, second, _shortest(similarity[row]), stratum, weight)
        for (row, stratum, weight), (first, second) in zip(drawn, keys, strict=True)
    ]


def _shortest(value: np.floating | np.integer) -> float:
    """Return the shortest decimal: 0.95 for a float32 that as a double is 0.949999988079071."""
    return float(str(value)) if isinstance(value, np.floating) else float(value)


def _pair_hashes(pairs: pa.Table, seed: int) -> NDArray[np.uint64]:
    """Return a hash of each pair, independent of the order of its keys."""
    salt = seed.to_bytes(8, "little", signed=True)
    first, second = (key_bytes(plain(pairs.column(name).combine_chunks())) for name in ("key_a", "key_b"))
    digests = bytearray()
    for a, b in zip(first, second, strict=True):
        low, high = (a, b) if a <= b else (b, a)
        digests += hashlib.blake2b(len(low).to_bytes(4, "little") + low + high, digest_size=8, salt=salt).digest()
    return np.frombuffer(bytes(digests), ">u8").astype(np.uint64)


def _strata(finder: str, rows: Ints, similarity: Array, threshold: float) -> list[tuple[StratumName, Ints]]:
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
        for number, part in enumerate(_slices(distance[order], MOST_STRATA[side]), 1):
            members = inside[order[part]]
            ends = [_shortest(similarity[members[at]]) for at in (0, -1)]
            least, most = ends if side == DROPPED else ends[::-1]
            out.append((StratumName(finder, side, number, least, most), members))
    return out


def _slices(values: Floats, most: int) -> list[slice]:
    """Return up to ``most`` slices of ascending values, each half as large as the next, without splitting ties."""
    n = len(values)
    parts = min(most, 1 + max(0, int(np.log2(max(n, 1) / FEWEST)))) if n else 0
    cuts = {0, n}
    for halvings in range(1, parts):
        at = n >> halvings
        cuts.add(int(np.searchsorted(values, values[at - 1], side="right")))
    return [slice(a, b) for a, b in pairwise(sorted(cuts)) if b > a]


def _draw(
    strata: Sequence[tuple[StratumName, Ints]], ties: NDArray[np.uint64], n: int, looked_for: float
) -> list[tuple[int, StratumName, float]]:
    """Return index, stratum and weight of the sampled pairs."""
    sizes = {side: [len(rows) for name, rows in strata if name.side == side] for side in (DROPPED, NEAR)}
    n_near = min(round(n * NEAR_SHARE), sum(sizes[NEAR]))
    n_near = max(n_near, min(n - sum(sizes[DROPPED]), sum(sizes[NEAR])))  # what the other side leaves
    counts = {DROPPED: iter(allocate(sizes[DROPPED], n - n_near)), NEAR: iter(allocate(sizes[NEAR], n_near))}
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
        n: total sample size; all members if it is larger. Each stratum gets at least one if possible.

    >>> allocate([10, 10, 20, 40], 40)
    [8, 7, 10, 15]
    """
    size = np.array(sizes, np.float64)
    n = min(n, int(size.sum()))
    if not n:
        return [0] * len(size)
    goal = n * (0.5 * size / size.sum() + 0.5 / len(size))
    for _ in size:  # the excess of a stratum is distributed over the others, proportionally
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
    return [int(count) for count in counts]


def audit_text(drawn: Sequence[Drawn]) -> bytes:
    """Return sampled pairs as CSV."""
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
