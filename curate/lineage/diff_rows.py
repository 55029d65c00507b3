"""Which rows two tables share, why the others are missing, and in which columns the shared ones differ."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.lineage.chain import Link
from curate.policies.outcomes import KEEP, OUTCOMES
from curate.tables.digests import RowDigest, is_list, key_array, key_bytes, plain, tie_breaks
from curate.tables.keys import check_unique, key_hashes, places
from curate.tables.table import Table, open_table

MOST_LOOKED_AT = 10_000  # rows that differ, whose differences are listed
MOST_STEPS = 127


@dataclass(frozen=True)
class SharedRows:
    """The rows of two tables, by their keys.

    Attributes:
        pairs: rows of the first and of the second with one key, shape (M, 2), in the order of the first.
        only: rows that the other table has not, ascending, of each.
        hashes: of the keys of all rows, of each.
    """

    pairs: NDArray[np.int64]
    only: tuple[NDArray[np.int64], NDArray[np.int64]]
    hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]]

    @property
    def in_order(self) -> bool:
        """Whether the shared rows are in one order in both."""
        return bool((np.diff(self.pairs[:, 1]) > 0).all())


def shared_rows(first: Table, second: Table) -> SharedRows:
    """Match the rows of two tables by their keys: 16 bytes a row in memory.

    Raises:
        InputError: for a key that a table has twice, or a null.
    """
    hashes = key_hashes(first), key_hashes(second)
    for table, table_hashes in zip((first, second), hashes, strict=True):
        check_unique(table, table_hashes)
    place = places(*hashes)
    rows = np.flatnonzero(place >= 0)
    others = place[rows]
    missing = np.ones(len(hashes[1]), bool)
    missing[others] = False
    return SharedRows(np.stack([rows, others], axis=1), (np.flatnonzero(place < 0), np.flatnonzero(missing)), hashes)


@dataclass(frozen=True)
class Why:
    """Why rows are missing.

    Attributes:
        step: the step that dropped each row, shape (M,), from 0; -1 where no step has met it.
        decision: of that step, codes of ``OUTCOMES``.
        reason: in words; empty where no step has met it.
        rule: as typed, too.
    """

    step: NDArray[np.int8]
    decision: NDArray[np.int8]
    reason: NDArray[np.object_]
    rule: NDArray[np.object_]


def why_missing(hashes: NDArray[np.uint64], steps: Sequence[Link]) -> Why:
    """Return the first step that dropped each row.

    Args:
        hashes: of the keys, shape (M,).
        steps: from the first.
    """
    n = len(hashes)
    why = Why(np.full(n, -1, np.int8), np.zeros(n, np.int8), np.full(n, "", object), np.full(n, "", object))
    for number, step in enumerate(steps[:MOST_STEPS]):
        decisions = step.output("decisions")
        if decisions is None or not decisions.is_file() or not n:
            continue
        table = open_table(decisions, require=[KEY, "decision", "reason", "rule"])
        for batch in table.batches([KEY, "decision", "reason", "rule"]):
            _take(batch, hashes, number, why)
    return why


def _take(batch: pa.RecordBatch, hashes: NDArray[np.uint64], number: int, why: Why) -> None:
    batch_hashes = tie_breaks(key_array(batch.column(KEY)))
    rows = places(batch_hashes, hashes)
    codes = pc.fill_null(pc.index_in(plain(batch.column("decision")), pa.array(OUTCOMES)), -1)
    code = codes.to_numpy(zero_copy_only=False)
    dropped = np.flatnonzero((rows >= 0) & (code > KEEP) & (why.step[rows] < 0))
    rows = rows[dropped]
    why.step[rows], why.decision[rows] = number, code[dropped]
    for name, texts in (("reason", why.reason), ("rule", why.rule)):
        texts[rows] = pc.fill_null(plain(batch.column(name)), "").take(pa.array(dropped)).to_pylist()


def differing_rows(first: Table, second: Table, shared: SharedRows, names: Sequence[str]) -> NDArray[np.int64]:
    """Return which of the shared pairs differ in some column, as numbers of ``shared.pairs``: 16 bytes a row."""
    if not names or not len(shared.pairs):
        return np.empty(0, np.int64)
    first_hashes, second_hashes = _row_hashes(first, names), _row_hashes(second, names)
    return np.flatnonzero(first_hashes[shared.pairs[:, 0]] != second_hashes[shared.pairs[:, 1]])


def _row_hashes(table: Table, names: Sequence[str]) -> NDArray[np.uint64]:
    """A hash of the values of each row, shape (N,)."""
    parts = [np.empty(0, np.uint64)]
    kinds = {name: table.schema.field(name).type for name in names}
    texts = [name for name, kind in kinds.items() if pa.types.is_nested(kind) and not _is_vector(kind)]
    fields = [pa.field(name, pa.string() if name in texts else kind) for name, kind in kinds.items()]
    digest = RowDigest(pa.schema(fields), full_lists=[name for name, kind in kinds.items() if _is_vector(kind)])
    for batch in table.batches([KEY, *names]):
        columns = [_as_text(batch.column(name)) if name in texts else batch.column(name) for name in names]
        keys = tie_breaks(key_array(batch.column(KEY)))
        parts.append(digest.hashes(keys, pa.record_batch(columns, names=list(names))))
    return np.concatenate(parts)


def _is_vector(kind: pa.DataType) -> bool:
    return is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _as_text(column: pa.Array) -> pa.Array:
    texts = (None if value is None else json.dumps(value, default=str, sort_keys=True) for value in column.to_pylist())
    return pa.array(texts, pa.string())


@dataclass(frozen=True)
class Values:
    """In what shared rows differ.

    Attributes:
        rows: how many differ.
        looked_at: how many of these were compared column by column.
        columns: of each column, how many of these differ in it, the most first.
        named: key, column, value in the first, value in the second, of the first ones.
    """

    rows: int
    looked_at: int
    columns: dict[str, int]
    named: list[tuple[str, str, Any, Any]]


def compare_values(first: Table, second: Table, shared: SharedRows, names: Sequence[str], n_named: int) -> Values:
    """Compare the columns of shared rows, lists by all their numbers; NaN is like NaN."""
    rows = differing_rows(first, second, shared, names)
    pairs = shared.pairs[rows[:MOST_LOOKED_AT]]
    old_rows, new_rows = first.take(pairs[:, 0], [KEY, *names]), second.take(pairs[:, 1], [KEY, *names])
    columns: dict[str, int] = {}
    named: list[tuple[str, str, Any, Any]] = []
    keys = [key.decode("utf-8", "replace") for key in key_bytes(old_rows.column(KEY).combine_chunks())]
    for name in names:
        n = 0
        for key, old, new in zip(
            keys, old_rows.column(name).to_pylist(), new_rows.column(name).to_pylist(), strict=True
        ):
            if old != new and repr(old) != repr(new):  # the second is for NaN, which equals nothing
                n += 1
                if len(named) < n_named:
                    named.append((key, name, _short(old), _short(new)))
        if n:
            columns[name] = n
    return Values(len(rows), len(pairs), dict(sorted(columns.items(), key=lambda each: -each[1])), named)


def _short(value: Any) -> Any:
    """A value for display; of a list only how long it is."""
    return f"{len(value):,} values" if isinstance(value, list) else value
