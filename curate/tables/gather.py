"""The first pass of a policy: from a table of any size, the few numbers a row that its rules need."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from curate.columns import KEY, OK, STATUS
from curate.policies.filter.rules import Rule, Scores, Where
from curate.tables.digests import RowDigest, is_text, key_bytes, plain, tie_breaks
from curate.tables.table import Table
from curate.tables.where import Condition, parse_condition
from scoring.errors import InputError


def gather(table: Table, rules: Sequence[Rule]) -> tuple[Scores, str]:
    """Read what ``rules`` need, in batches.

    Args:
        table: must have a ``key`` column, unique and without nulls; without ``status`` all rows are ok.
        rules: name the columns.

    Returns:
        the scores of all rows, and the digest of key, status and the columns that the rules read; it does
        not depend on the order of the rows.

    Raises:
        InputError: for an unknown column, one of the wrong type, a null or repeated key.
    """
    table.require([KEY])
    conditions = [parse_condition(rule.condition, table.schema) for rule in rules if isinstance(rule, Where)]
    value_columns = _unique(rule.column for rule in rules)
    group_columns = _unique(rule.per for rule in rules)
    table.require(value_columns)
    table.require(group_columns)
    for name in value_columns:
        _check_number(table, name)
    read = [name for condition in conditions for name in condition.columns]
    has_status = STATUS in table.schema.names
    if has_status and not is_text(table.schema.field(STATUS).type):
        kind = table.schema.field(STATUS).type
        raise InputError(
            f"expected text in column {STATUS!r} of {table.path} ('ok' or the kind of failure), got {kind}; rename it"
        )
    wanted = _unique([KEY, *([STATUS] if has_status else []), *value_columns, *group_columns, *read])
    digest = RowDigest(pa.schema([table.schema.field(name) for name in wanted]))
    pass_ = _Pass(value_columns, {name: {} for name in group_columns}, conditions)
    for batch in table.batches(wanted):
        keys = key_bytes(batch.column(KEY), table.path, digest.n_rows)
        digest.update(keys, batch)
        pass_.ok.append(is_ok(plain(batch.column(STATUS))) if has_status else np.ones(len(keys), bool))
        pass_.ties.append(tie_breaks(keys))
        pass_.add(batch)
    scores = pass_.scores()
    check_unique(table, scores.tie_breaks)
    return scores, digest.hexdigest()


class _Pass:
    """Arrays under construction, a piece a batch."""

    def __init__(
        self, columns: Sequence[str], codes: dict[str, dict[Any, int]], conditions: Sequence[Condition]
    ) -> None:
        self.ok: list[np.ndarray] = []
        self.ties: list[np.ndarray] = []
        self.values: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        self.valid: dict[str, list[np.ndarray]] = {name: [] for name in columns}
        self.groups: dict[str, list[np.ndarray]] = {name: [] for name in codes}
        self.codes = codes
        self.conditions = conditions
        self.truths: dict[str, list[np.ndarray]] = {condition.text: [] for condition in conditions}

    def add(self, batch: pa.RecordBatch) -> None:
        for name in self.values:
            values, valid = _numbers(batch.column(name))
            self.values[name].append(values)
            self.valid[name].append(valid)
        for name, codes in self.codes.items():
            self.groups[name].append(_codes(batch.column(name), codes))
        for condition in self.conditions:
            self.truths[condition.text].append(_truth(condition(batch)))

    def scores(self) -> Scores:
        return Scores(
            ok=_joined(self.ok, np.bool_),
            tie_breaks=_joined(self.ties, np.uint64),
            values={name: _joined(parts, np.float64) for name, parts in self.values.items()},
            valid={name: _joined(parts, np.bool_) for name, parts in self.valid.items()},
            groups={name: _joined(parts, np.int32) for name, parts in self.groups.items()},
            group_names={name: [_group_name(value) for value in codes] for name, codes in self.codes.items()},
            truths={text: _joined(parts, np.int8) for text, parts in self.truths.items()},
        )


def _joined(parts: list[np.ndarray], kind: Any) -> np.ndarray:
    joined = np.concatenate(parts) if parts else np.empty(0, kind)
    parts.clear()
    return joined


def _unique(names: Any) -> list[str]:
    return [name for name in dict.fromkeys(names) if name is not None]


def _check_number(table: Table, name: str) -> None:
    kind = table.schema.field(name).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        hint = f"use --where for other columns, --column for another score (numbers: {', '.join(_numeric(table))})"
        raise InputError(f"expected numbers in column {name!r} of {table.path}, got {kind}; {hint}")


def _numeric(table: Table) -> list[str]:
    return [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]


def _numbers(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Values in the column's own precision (float32 for float16), and which of them are neither null nor NaN."""
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    filled = pc.fill_null(column, 0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False)
    if np.issubdtype(values.dtype, np.floating):
        valid &= ~np.isnan(values)
    return values.copy(), valid


def _codes(column: pa.Array, known: dict[Any, int]) -> np.ndarray:
    """Whole numbers for the values of a column, the same over all batches; null and NaN have one of their own."""
    if pa.types.is_nested(column.type):
        raise InputError(f"--per takes a column of single values, got {column.type}; name another column")
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)
    encoded = plain(column).dictionary_encode(null_encoding="encode")
    codes = [known.setdefault(value, len(known)) for value in encoded.dictionary.to_pylist()]
    return np.array(codes, np.int32)[encoded.indices.to_numpy(zero_copy_only=False)]


def _group_name(value: Any) -> str:
    if value is None:
        return "null"
    return repr(value) if isinstance(value, str) else str(value)


def _truth(condition: pa.Array) -> np.ndarray:
    flags = pc.if_else(condition, pa.scalar(1, pa.int8()), pa.scalar(0, pa.int8()))
    return np.asarray(pc.fill_null(flags, -1).to_numpy(zero_copy_only=False), np.int8)


def check_unique(table: Table, hashes: np.ndarray) -> None:
    """Refuse a table with repeated keys; equal hashes are only a suspicion, so the keys behind them are read again."""
    ordered = np.sort(hashes)
    suspects = np.unique(ordered[1:][ordered[1:] == ordered[:-1]])
    if not len(suspects):
        return
    seen: set[bytes] = set()
    repeated: dict[bytes, None] = {}
    for batch in table.batches([KEY]):
        keys = key_bytes(batch.column(KEY))
        for row in np.flatnonzero(np.isin(tie_breaks(keys), suspects)).tolist():
            if keys[row] in seen and len(repeated) < 3:
                repeated[keys[row]] = None
            seen.add(keys[row])
    if repeated:
        names = ", ".join(repr(key.decode("utf-8", "replace")) for key in repeated)
        raise InputError(
            f"expected unique keys in {table.path}, got some more than once, such as {names}; make them differ"
        )


def is_ok(status: pa.Array) -> np.ndarray:
    """Return which statuses are ``ok``, shape (N,) bool; null is not."""
    return np.asarray(pc.fill_null(pc.equal(status, OK), False).to_numpy(zero_copy_only=False), bool)
