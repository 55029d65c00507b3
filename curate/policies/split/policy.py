"""Splitting a table into sides, such as train, validation and test, without separating groups of rows or copies."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE
from curate.counted import counted
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.policies.arranged import Expected, Ranked, compare_arranged
from curate.policies.contract import apply
from curate.policies.decided import DECISION_SCHEMA, FAILED, KEEP, Decided, Result, decision_rows
from curate.policies.dedup.request import WITH_EMBEDDINGS
from curate.policies.outputs import Files
from curate.policies.split.groups import (
    PURPOSE,
    SplitRequest,
    Together,
    by_hash,
    commonest,
    copies,
    in_strata,
    percent,
    shares_of,
    sides_of,
    thresholds_in,
    together,
)
from curate.policies.split.options import SplitOptions
from curate.tables.digests import redrawn, tie_breaks
from curate.tables.keys import keys_at
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError

SPLIT = "split"
MEANINGS: dict[str, str] = {
    "decision": "keep (on a side), or failed (not scored)",
    "reason": "the side and the reason, in words",
    "rule": "what decided",
    "score": "position of the row or its group in [0, 1), of which each side owns an interval",
    "threshold": "not used: the boundaries of the sides are in the receipt",
    "margin": "not used",
    SPLIT: "the side",
    "group": "number of the rows that are kept together; null for a row without a group",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field(SPLIT, pa.string()), pa.field("group", pa.int64())])
N_NAMED = 3
COPIES = "copies"
NO_VALUE = "(no value)"
MEANING = "side of the split"


@dataclass(frozen=True)
class SplitWords:
    """Writes the reasons of the decisions, a slice of rows at a time.

    Attributes:
        outcome: codes of ``curate.policies.decided``, shape (N,).
        side: of each row, shape (N,), an index into ``names``; -1 if failed.
        group: of each row, shape (N,); -1 if failed.
        sizes: rows of each group, shape (G,).
        place: position of each group in [0, 1), shape (G,).
        names: of the sides.
        basis: description of the groups, such as ``patient or copies``.
    """

    outcome: NDArray[np.uint8]
    side: NDArray[np.int64]
    group: NDArray[np.int64]
    sizes: NDArray[np.int64]
    place: NDArray[np.float64]
    names: tuple[str, ...]
    basis: str

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        outcome, side, group = self.outcome[part], self.side[part], self.group[part]
        failed = outcome == FAILED
        sizes = np.where(failed, 0, self.sizes[np.maximum(group, 0)]) if len(self.sizes) else np.zeros(len(keys), int)
        place = np.where(failed, np.nan, self.place[np.maximum(group, 0)]) if len(self.place) else np.zeros(len(keys))
        reason = np.full(len(keys), "", object)
        assigned = np.flatnonzero(~failed)
        reason[assigned] = [
            f"{self.names[at]}: by the hash of its key"
            if size == 1
            else f"{self.names[at]}: with {size - 1:,} more of the same {self.basis}"
            for at, size in zip(side[assigned].tolist(), sizes[assigned].tolist(), strict=True)
        ]
        names = pa.array(self.names, pa.string()).take(pa.array(side, mask=failed))
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            reason,
            rule=pa.array([SPLIT], pa.string()).take(pa.array(np.zeros(len(keys), np.int64), mask=failed)),
            score=pa.array(place, mask=failed),
            split=names,
            group=pa.array(group, mask=failed | (sizes < 2)),
        )


@dataclass(frozen=True)
class SplitResult(Result):
    """The result of a split, as ``curate split`` prints it.

    Attributes:
        sides: name -> number of rows.
        shares: name -> requested share.
        strata: combination of values -> rows on each side, in the order of ``sides``.
        n_groups: groups of at least two rows.
        largest: rows of the largest group.
        n_copies: number of groups of copies.
        would_leak: rows whose copies would be on another side if copies were not kept together; None if they are not.
        leaks: rows whose copies are on another side; None if copies were not compared.
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
        *("sides", "shares", "n_groups", "largest", "n_copies", "would_leak", "leaks", "notes"),
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
    """Return the counts and notes.

    Args:
        request: with its parameters.
        table: the input.
        rows: as read.
        held: groups of the M rows with a side.
        strata: of these rows.
        side: of these rows, shape (M,).
        owner: row that each is a copy of, shape (M,).
        alone: side if copies were not kept together, shape (M,).
    """
    shares = shares_of(request.sides)
    n = len(shares)
    counts = np.bincount(side, minlength=n)
    by_stratum = np.bincount(strata.codes * n + side, minlength=n * len(strata.names)).reshape(-1, n)
    notes = []
    for name in [*request.per, *([request.group] if request.group else [])]:
        n_without = int((rows.ok & (rows.names[name].codes < 0)).sum())
        then = "each stands alone" if name == request.group else "they are their own stratum"
        notes += [f"{counted(n_without, 'row')} without {name}: {then}"] if n_without else []
    notes += _too_large(request, table, rows, held, side)
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
    """Return notes on groups that are larger than the target size of a side, and their sides."""
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
    return [f"{groups} larger than the requested {smallest} ({room:,.0f} of {n:,} rows): {listed}; got {got}{advice}"]


def _names(request: SplitRequest, table: Table, rows: Rows, first: NDArray[np.int64]) -> list[str]:
    """Return the names of groups: the value of their column, else the key of the first row."""
    keys = [f"key {key!r}" for key in keys_at(table, first).tolist()]
    if request.group is None:
        return keys
    column = rows.names[request.group]
    codes = column.codes[first].tolist()
    named = [f"{request.group} {column.names[code]!r}" if code >= 0 else "" for code in codes]
    return [name or key for name, key in zip(named, keys, strict=True)]


def crossing(owner: NDArray[np.int64], side: NDArray[np.int64]) -> int:
    """Return the number of rows with a copy on another side, from ``owner``, the row each is a copy of, shape (M,)."""
    low, high = (bound.over("owner") for bound in (pl.col("side").min(), pl.col("side").max()))
    return int(pl.DataFrame({"owner": owner, "side": side}).select((low < high).sum()).item())


@dataclass(frozen=True)
class Split:
    """A split of a table; a ``Policy``.

    Attributes:
        request: with its parameters.
        notes: notes known before the table is read.
    """

    request: SplitRequest
    notes: tuple[str, ...] = ()
    files: ClassVar[Files] = Files()

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the split in a receipt; InputError for another policy."""
        return cls(SplitRequest.from_json(rules[0]))

    def decide(self, table: Table) -> Decided[SplitResult]:
        """Decide every row of a table; InputError for an unusable column or key."""
        request = self.request
        needs = request.needs()
        needs.refuse_unread_embeddings(table, f"--finder {', '.join(WITH_EMBEDDINGS)}")
        rows = read_rows(table, needs)
        kept = np.flatnonzero(rows.ok)
        shares = shares_of(request.sides)
        owner = copies(rows, request, rows.ok)
        column = rows.names[request.group] if request.group else None
        strata = strata_of(rows, request.per, kept)
        held = together(kept, rows.hashes, column, owner, request.seed)
        if len(held.sizes) < len(shares):
            raise InputError(_too_few(table, held, len(kept), shares))
        of_group, place = assigned(request, held, strata)
        side, group = np.full(len(rows), -1), np.full(len(rows), -1)
        group[kept] = held.of_row
        side[kept] = of_group[held.of_row]
        apart = together(kept, rows.hashes, column, np.arange(len(rows)), request.seed)
        alone = assigned(request, apart, strata)[0][apart.of_row]
        result = result_of(request, table, rows, held, strata, side[kept], owner[kept], alone)
        result.notes[:0] = self.notes
        outcome = np.where(rows.ok, KEEP, FAILED).astype(np.uint8)
        basis = " or ".join([*([request.group] if request.group else []), *([COPIES] if request.thresholds else [])])
        words = SplitWords(outcome, side, group, held.sizes, place, tuple(shares), basis)
        names = pa.array(list(shares), pa.string())
        columns = pa.table({SPLIT: names.take(pa.array(side[kept]))})
        expected = Expected(columns, rows.hashes[kept], kept, ordered=False)
        first = {name: np.flatnonzero(side == number)[:1] for number, name in enumerate(shares)}
        return Decided(
            table=table,
            policy=[request.to_json()],
            outcome=outcome,
            hashes=rows.hashes,
            digest=rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=result,
            examples={name: at for name, at in first.items() if len(at)},
            arranged=Ranked(table.stored.schema, kept, columns, {SPLIT: MEANING}),
            compare=partial(compare_arranged, table, expected),
        )


def assigned(request: SplitRequest, held: Together, strata: Codes) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the side of each group, shape (G,), and its position in [0, 1)."""
    numbers = [float(share) for share in shares_of(request.sides).values()]
    if not request.in_strata:
        return by_hash(held.hashes, numbers)
    stratum = commonest(held.of_row, strata.codes.astype(np.int64))
    starts = np.full(1, 0.5)
    if request.per:
        named = tie_breaks([name.encode("utf-8", "backslashreplace") for name in strata.names])
        starts = redrawn(named, request.seed, PURPOSE) / 2.0**64
    return in_strata(held.hashes, held.sizes, stratum, starts, numbers)


def strata_of(rows: Rows, per: Sequence[str], kept: NDArray[np.int64]) -> Codes:
    """Return the combination of values of each row in ``kept``, with names; a single one without columns."""
    codes, names = np.zeros(len(kept), np.int64), [""]
    for column in per:
        values = rows.names[column]
        width = len(values.names) + 1
        codes = codes * width + np.where(values.codes[kept] < 0, width - 1, values.codes[kept])
        used, codes = np.unique(codes, return_inverse=True)
        texts = [*values.names, NO_VALUE]
        parts = [(names[number // width], texts[number % width]) for number in used.tolist()]
        names = [", ".join(part for part in pair if part) for pair in parts]
    return Codes(codes.astype(np.int32), names)


def _too_few(table: Table, held: Together, n: int, shares: Mapping[str, Any]) -> str:
    if not n:
        return f"expected rows to split in {table.path}, got none that was scored"
    most = f": the largest has {int(held.sizes.max()):,} of {n:,} rows" if held.sizes.max() > 1 else ""
    return (
        f"{counted(len(held.sizes), 'group')} of rows cannot fill {len(shares)} sides ({', '.join(shares)}){most}; "
        "split by another column, or into fewer sides"
    )


def run_split(options: SplitOptions) -> SplitResult:
    """Give every row of a table a side, in a column ``split``; write table, decisions and receipt.

    By default the hash of the key decides: a row keeps its side when other rows are added or removed, and shares hold
    in expectation. With ``per`` or ``exact``, shares are exact to within a row if groups allow, and rows near a cut may
    change sides as the table grows. Copies, and rows of one ``group``, are always on one side.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for an unusable table, option or output; nothing is written.
    """
    sides = sides_of({"train": options.train, "val": options.val, "test": options.test}, several(options.side))
    shares_of(sides)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    columns = several(options.per)
    opened.require([*columns, *([options.group] if options.group else [])])
    thresholds, notes = thresholds_in(opened, options.finder, duplicates=options.duplicates, mirrored=options.mirrored)
    flat = EMBEDDING in thresholds and SIGNATURE in opened.schema.names
    request = part_of(SplitRequest, options, sides=sides, per=columns, thresholds=thresholds, without_flat=flat)
    return apply(
        Split(request, tuple(notes)), opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite
    )


split = callable_of(SplitOptions, run_split)
