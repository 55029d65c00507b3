"""Groups of rows that must stay together, by a column or as copies, and the side of each group."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.counted import repeated
from curate.policies.contract import Request
from curate.policies.dedup.finders.links import Links, in_chunks, joined
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.finders.table import build
from curate.policies.dedup.request import DedupRequest, resolved
from curate.tables.amount import Amount
from curate.tables.copies import roots
from curate.tables.digests import redrawn, tie_breaks
from curate.tables.needs import Needs
from curate.tables.rows import Codes, Rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.settings import parse_settings

USUAL = ("train", "val", "test")
ROUNDING = Fraction(1, 1000)  # accepts three times 33.3 %
MOST_SIDES = 100
COMPARED = ("sha256", "phash", "signature", "embedding")
PURPOSE = "redrawn"  # purpose of the hashes; changing it would change the sides of rows
MANY = 4_000_000  # number of pairs above which chunks shrink
LARGEST, CHUNKS = 4096, 16  # rows per query, or a share of them, since each query searches the whole table
EXACT = np.uint64(11)  # bits of a hash beyond the precision of a float


def sides_of(shares: Mapping[str, str | float | None], more: Sequence[str] | None) -> dict[str, str]:
    """Return the share of each side as typed; InputError for a repeated side, or a text other than ``NAME=SHARE``.

    Args:
        shares: share of the sides with separate options; None for none.
        more: further sides as ``NAME=SHARE``.
    """
    sides = {name: str(share) for name, share in shares.items() if share is not None}
    for name, share in parse_settings(more or [], flag="--side", example="dev=5%").items():
        if name in sides:
            raise InputError(f"--side {name} was given twice, once as --{name}; pass it once")
        sides[name] = share
    return sides


def shares_of(sides: Mapping[str, str]) -> dict[str, Fraction]:
    """Return the shares of sides, which sum to 1; InputError for fewer than two, an invalid share, or another sum."""
    if not 2 <= len(sides) <= MOST_SIDES:
        raise InputError(
            f"expected shares of 2 to {MOST_SIDES} sides, got {len(sides)}; write them like: --train 80% --val 10% "
            "--test 10%"
        )
    shares = {name: _share(name, text) for name, text in sides.items()}
    total = sum(shares.values(), Fraction(0))
    if abs(total - 1) > ROUNDING:
        listed = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
        over = f"{percent(total - 1)} too much" if total > 1 else f"{percent(1 - total)} is missing"
        raise InputError(f"the shares sum to {percent(total)} ({listed}), expected 100%: {over}")
    return {name: share / total for name, share in shares.items()}


def _share(name: str, text: str) -> Fraction:
    flag = f"--{name}" if name in USUAL else f"--side {name}"
    share = Amount.parse(text, flag).share
    if share is None:
        raise InputError(f"{flag} takes a share, such as 10% or 0.1, got {text}; a number of rows is not a share")
    return share


def percent(share: Fraction | float) -> str:
    """Return a share as text in per cent.

    >>> percent(Fraction(1, 8))
    '12.5%'
    """
    return f"{float(share) * 100:.4g}%"


@dataclass(frozen=True)
class SplitRequest(Request):
    """The validated request of a split; fields are as in ``SplitOptions`` except for these.

    Attributes:
        sides: name -> share as typed, such as ``80%``.
        thresholds: finder of copies -> threshold; empty to not keep copies together.
        without_flat: images of one flat colour are not compared by embedding.
    """

    rule: ClassVar[str] = "split"
    sides: dict[str, str]
    per: tuple[str, ...] = ()
    group: str | None = None
    exact: bool = False
    thresholds: dict[str, float] = field(default_factory=dict)
    mirrored: bool = False
    seed: int = 0
    without_flat: bool = False

    def __post_init__(self) -> None:
        shares_of(self.sides)
        if not -(2**63) <= self.seed < 2**63:
            raise InputError(f"--seed must be a 64-bit integer, got {self.seed}; choose another")
        twice = repeated(self.per)
        if twice or self.group in self.per:
            raise InputError(f"{twice[0] if twice else self.group!r} is given to both --per and --group; pass it once")
        object.__setattr__(self, "per", tuple(self.per))

    @property
    def in_strata(self) -> bool:
        """Whether shares are exact, not only in expectation by the hash."""
        return self.exact or bool(self.per)

    def needs(self) -> Needs:
        """Return the columns and facts to read of the table."""
        names = [*self.per, *([self.group] if self.group else [])]
        finders = DedupRequest(self.thresholds).needs([]) if self.thresholds else Needs()
        return Needs(names=tuple(names), representations=finders.representations, flat=self.without_flat)


def thresholds_in(
    table: Table,
    finder: str | Sequence[str] | Mapping[str, float | None] | None,
    *,
    duplicates: bool,
    mirrored: bool = False,
) -> tuple[dict[str, float], list[str]]:
    """Return the finders of copies with their thresholds, and notes; InputError if the table lacks their columns.

    Args:
        table: to split.
        finder: as for ``curate dedup``; None for the default ones.
        duplicates: whether to keep copies together.
        mirrored: whether mirrored images are copies.
    """
    if not duplicates:
        if finder or mirrored:
            option = "--finder" if finder else "--mirrored"
            raise InputError(f"{option} defines copies, and --no-duplicates ignores them; leave one of them out")
        return {}, ["no search for copies: they may be on two sides"]
    if finder is None and not set(COMPARED) & set(table.schema.names):
        return {}, [f"no column to find copies by ({', '.join(COMPARED)}): they may be on two sides"]
    request, few = resolved(DedupRequest({}, mirrored=mirrored), table, finder)
    return request.thresholds, [f"copies are found by {', '.join(request.thresholds)} alone"] if few else []


@dataclass(frozen=True)
class Together:
    """Groups of M rows that are kept together.

    Attributes:
        of_row: group of each row, shape (M,), in [0, G); no group is empty.
        sizes: rows of each group, shape (G,).
        hashes: of each group, shape (G,) uint64: the lowest hash of a value of the column, or of a key, in it.
        first: the row with this hash, shape (G,).
    """

    of_row: NDArray[np.int64]
    sizes: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    first: NDArray[np.int64]


def copies(rows: Rows, request: SplitRequest, open_rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the lowest row of each row's chain of copies, shape (N,); the row itself if it has no copies.

    Args:
        rows: with the columns of the finders.
        request: with the finders.
        open_rows: rows to compare, shape (N,) bool.
    """
    thresholds = request.thresholds
    if not thresholds or not open_rows.any():
        return np.arange(len(rows))
    searches = build(rows, thresholds, DedupRequest(thresholds, mirrored=request.mirrored).views())
    return find_chains(searches, open_rows)


def together(
    rows: NDArray[np.int64], hashes: NDArray[np.uint64], column: Codes | None, owner: NDArray[np.int64], seed: int
) -> Together:
    """Return groups of rows joined by a column value or as copies; overlapping groups are merged.

    Args:
        rows: indices, shape (M,), ascending.
        hashes: of the keys of all rows, shape (N,).
        column: groups by value; a row without a value is a separate group. None for no column.
        owner: the row that each row is a copy of, shape (N,); itself if none.
        seed: of the hashes of the groups.
    """
    names = hashes[rows]
    parent = np.arange(len(hashes))
    if column is not None and column.names:
        codes = column.codes[rows]
        is_named = codes >= 0
        named = tie_breaks([name.encode("utf-8", "backslashreplace") for name in column.names])
        names = np.where(is_named, named[np.maximum(codes, 0)], names)
        first = np.full(len(column.names), -1)
        first[codes[is_named][::-1]] = rows[is_named][::-1]
        join(parent, first[codes[is_named]], rows[is_named])
    join(parent, owner[rows], rows)
    _, of_row = np.unique(roots(parent)[rows], return_inverse=True)
    sizes = np.bincount(of_row)
    order = np.lexsort((hashes[rows], names, of_row))
    lead = order[np.searchsorted(of_row[order], np.arange(len(sizes)))]
    return Together(of_row, sizes, redrawn(names[lead], seed, PURPOSE), rows[lead])


def by_hash(hashes: NDArray[np.uint64], shares: Sequence[float]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group from its hash alone, independent of other rows.

    Args:
        hashes: of the groups, shape (G,).
        shares: of the sides, with sum 1.

    Returns:
        Sides, shape (G,), and the position of each group in [0, 1), which is divided by the shares in their order.
    """
    place = (hashes >> EXACT) / 2.0**53
    return _side_at(place, shares), place


def in_strata(
    hashes: NDArray[np.uint64],
    sizes: NDArray[np.int64],
    strata: NDArray[np.int64],
    starts: NDArray[np.float64],
    shares: Sequence[float],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group such that each side has its share of every stratum, as far as groups allow.

    The groups of a stratum are laid out as intervals whose length is their number of rows, sorted by hash, and the line
    is cut into sides, the largest first. With groups of one row, shares are exact to within one row. A group gets the
    side of its start, its end, or a point between, by ``starts``. Groups of more than half of the smallest side come
    first, the largest first, and get the side of their start, so that they fall into the largest side.

    Args:
        hashes: of the groups, shape (G,).
        sizes: rows of each group, shape (G,).
        strata: stratum of each group, shape (G,).
        starts: for each stratum, the deciding point of a group as a share of its length, in [0, 1). One half rounds to
            nearest; random values make the rounding of many small strata cancel.
        shares: of the sides, with sum 1.

    Returns:
        Sides, shape (G,), and the position of each group in [0, 1) of its stratum, with sides by descending shares.
    """
    rows = np.bincount(strata, sizes, minlength=len(starts))
    big = np.where(sizes > np.maximum(1, rows[strata] * min(shares) / 2), sizes, 0)
    order = np.lexsort((hashes, -big, strata))
    before = np.cumsum(sizes[order]) - sizes[order]
    first = np.searchsorted(strata[order], np.arange(len(starts)))
    begin = before[np.minimum(first, max(0, len(order) - 1))][strata[order]] if len(order) else before
    place = np.empty(len(hashes))
    inside = np.where(big > 0, 0, sizes * starts[strata])
    place[order] = (before - begin + inside[order]) / rows[strata[order]]
    falling = sorted(range(len(shares)), key=lambda side: -shares[side])
    sides = np.array(falling)[_side_at(place, [shares[side] for side in falling])]
    return sides, place


def _side_at(place: NDArray[np.float64], shares: Sequence[float]) -> NDArray[np.int64]:
    ends = np.cumsum(shares)[:-1] - 1e-12  # tolerance of rounding: a cut of 0.8 is at 0.8
    return np.searchsorted(ends, place, side="right")


def commonest(groups: NDArray[np.int64], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the most frequent code of each group, the lowest for ties, shape (G,).

    From groups (N,), each of the G at least once, and codes (N,) of the rows.
    """
    pairs = pl.DataFrame({"group": groups, "code": codes}).group_by("group", "code").len()
    most_first = pairs.sort("group", "len", "code", descending=[False, True, False])
    return most_first.unique("group", keep="first", maintain_order=True)["code"].to_numpy()


def find_chains(searches: Mapping[str, Search], open_rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the lowest row of each row's connected component of similar pairs, shape (N,).

    All pairs are visited, so the time for a group of n rows grows with n^2, unlike in ``find_stars``; the memory does
    not. Rows are queried in a random order, which spreads a large group over all queries.

    Args:
        searches: finder by name.
        open_rows: rows to compare, shape (N,) bool; all others are alone.
    """
    parent = np.arange(len(open_rows))
    queried = np.random.default_rng(0).permutation(np.flatnonzero(open_rows))

    def pairs(rows: NDArray[np.int64]) -> Links:
        return joined([search.links(rows, open_rows) for search in searches.values()])

    for links in in_chunks(pairs, queried, most=max(LARGEST, len(queried) // CHUNKS), many=MANY):
        join(parent, links.query, links.row)
    return roots(parent)


def join(parent: NDArray[np.int64], a: NDArray[np.int64], b: NDArray[np.int64]) -> None:
    """Merge the groups of pairs of rows, in place: the lower root becomes the root of both."""
    while True:
        parent[:] = roots(parent)
        low, high = np.minimum(parent[a], parent[b]), np.maximum(parent[a], parent[b])
        apart = low != high
        if not apart.any():
            return
        np.minimum.at(parent, high[apart], low[apart])
        a, b = a[apart], b[apart]
