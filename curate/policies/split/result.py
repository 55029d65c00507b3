"""What a split did, and what has to be reported of it."""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.result import Result
from curate.policies.split.groups import Together
from curate.policies.split.request import SplitRequest
from curate.policies.split.sides import percent, shares_of
from curate.tables.keys import keys_at
from curate.tables.rows import Codes, Rows
from curate.tables.table import Table

N_NAMED = 3


@dataclass(frozen=True)
class SplitResult(Result):
    """What a split did; what ``curate split`` prints.

    Attributes:
        sides: name -> rows there.
        shares: name -> share requested.
        strata: combination of values -> rows on each side, in the order of ``sides``.
        n_groups: groups of two rows or more that stay together.
        largest: rows of the largest.
        n_copies: groups of copies among them.
        would_leak: rows whose copies would be on another side had copies not been looked for; None if they were not.
        leaks: rows whose copies are on another side; None if copies were not looked for.
    """

    sides: dict[str, int] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    strata: dict[str, list[int]] = field(default_factory=dict)
    n_groups: int = 0
    largest: int = 0
    n_copies: int = 0
    would_leak: int | None = None
    leaks: int | None = None

    IN_RECEIPT: ClassVar[tuple[str, ...]] = (
        "sides",
        "shares",
        "n_groups",
        "largest",
        "n_copies",
        "would_leak",
        "leaks",
        "notes",
    )


def result_of(
    request: SplitRequest,
    table: Table,
    rows: Rows,
    held: Together,
    strata: Codes,
    side: NDArray[np.int64],
    owner: NDArray[np.int64],
    alone: NDArray[np.int64],
) -> SplitResult:
    """Return the counts, and what has to be reported.

    Args:
        request: what was requested.
        table: that is split.
        rows: as read.
        held: groups of the rows that have a side, M of them.
        strata: of these.
        side: of these, shape (M,).
        owner: row that each is a copy of, shape (M,).
        alone: side had copies not been looked for, shape (M,).
    """
    shares = shares_of(request.sides)
    n = len(shares)
    counts = np.bincount(side, minlength=n)
    by_stratum = np.bincount(strata.codes * n + side, minlength=n * len(strata.names)).reshape(-1, n)
    notes = [
        *_without(request, rows),
        *_too_large(request, table, rows, held, side),
    ]
    notes += [f"no row is on the side {name}" for name, count in zip(shares, counts.tolist(), strict=True) if not count]
    sought = bool(request.thresholds)
    sizes_of_copies = np.bincount(np.unique(owner, return_inverse=True)[1]) if sought else np.zeros(0, np.int64)
    return SplitResult(
        sides=dict(zip(shares, counts.tolist(), strict=True)),
        shares={name: float(share) for name, share in shares.items()},
        strata={name: row.tolist() for name, row in zip(strata.names, by_stratum, strict=True)} if request.per else {},
        n_groups=int((held.sizes > 1).sum()),
        largest=int(held.sizes.max(initial=0)),
        n_copies=int((sizes_of_copies > 1).sum()),
        would_leak=crossing(owner, alone) if sought else None,
        leaks=crossing(owner, side) if sought else None,
        notes=notes,
    )


def _too_large(request: SplitRequest, table: Table, rows: Rows, held: Together, side: NDArray[np.int64]) -> list[str]:
    """Say which groups are larger than a whole side was to be, and where they went."""
    shares, n = shares_of(request.sides), len(side)
    names, counts = list(shares), np.bincount(side, minlength=len(shares))
    smallest = min(names, key=lambda name: shares[name])
    room = float(shares[smallest]) * n
    large = np.flatnonzero((held.sizes > room) & (held.sizes > 1))
    if not len(large):
        return []
    named = large[np.argsort(-held.sizes[large], kind="stable")][:N_NAMED]
    of_group = np.zeros(len(held.sizes), np.int64)
    of_group[held.of_row] = side
    listed = ", ".join(
        f"{held.sizes[at]:,} rows of {what} on {names[of_group[at]]}"
        for at, what in zip(named, _names(request, table, rows, held.first[named]), strict=True)
    )
    got = ", ".join(
        f"{name} {percent(count / n)} of {percent(shares[name])}"
        for name, count in zip(names, counts.tolist(), strict=True)
    )
    advice = "" if request.in_strata else "; add --exact to put large groups on the largest side"
    groups = counted(len(large), "group that cannot be divided is", "groups that cannot be divided are")
    return [f"{groups} larger than {smallest} was to be ({room:,.0f} of {n:,} rows): {listed}; got {got}{advice}"]


def _names(request: SplitRequest, table: Table, rows: Rows, first: NDArray[np.int64]) -> list[str]:
    """Return what groups are called: by the value of their column, else by the key of a row."""
    keys = [f"key {key!r}" for key in keys_at(table, first).tolist()]
    if request.group is None:
        return keys
    column = rows.names[request.group]
    codes = column.codes[first].tolist()
    named = [f"{request.group} {column.names[code]!r}" if code >= 0 else "" for code in codes]
    return [name or key for name, key in zip(named, keys, strict=True)]


def crossing(owner: NDArray[np.int64], side: NDArray[np.int64]) -> int:
    """Return how many rows have a copy on another side.

    Args:
        owner: row that each is a copy of, shape (M,).
        side: of each, shape (M,).
    """
    low, high = (bound.over("owner") for bound in (pl.col("side").min(), pl.col("side").max()))
    return int(pl.DataFrame({"owner": owner, "side": side}).select((low < high).sum()).item())


def _without(request: SplitRequest, rows: Rows) -> list[str]:
    """Say how many rows have no value in the columns that are named."""
    notes = []
    for name in [*request.per, *([request.group] if request.group else [])]:
        n = int((rows.ok & (rows.names[name].codes < 0)).sum())
        then = "each stands alone" if name == request.group else "they are their own stratum"
        if n:
            notes.append(f"{counted(n, 'row')} without {name}: {then}")
    return notes
