"""A choice derived again, compared with the batch that was written."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.decided import Differ, Problem
from curate.policies.findings import LATER_VALUE, OTHER_COLUMNS, RANK, VALUE, Difference, Finding
from curate.policies.select.batch import passed_through
from curate.policies.select.decide import Picked
from curate.tables.digests import RowDigest, key_bytes, tie_breaks
from curate.tables.table import Table

CLOSE = 1e-5  # numbers of another machine may differ by their last bits
BATCH = "batch"
N_LOOKED_AT = 16_384  # rows of a batch that are compared one by one, to name those that differ


def compare_batch(source: Table, picked: Picked, batch: Table, differ: Differ, problem: Problem) -> None:
    """Compare a batch with the choice: its order, what it says of each pick, and the table's own columns.

    Args:
        source: the input, its rows in any order.
        picked: the choice, derived again.
        batch: as written.
        differ: told of each row that differs.
        problem: told of what differs and is no row.
    """
    expected, _ = picked.pick_columns()
    own = passed_through(source.schema, expected.schema.names)
    if [(field.name, field.type) for field in batch.schema] != [(f.name, f.type) for f in (*own, *expected.schema)]:
        problem(Finding(OTHER_COLUMNS, "batch"))
        return
    noted = batch.read([KEY, *expected.schema.names])
    keys = key_bytes(noted.column(KEY).combine_chunks())
    hashes = picked.rows.hashes[picked.ready.table_row[picked.chosen.rows]]
    place = {int(value): at for at, value in enumerate(hashes.tolist())}
    then = tie_breaks(keys).tolist()
    rows = [place.get(int(value), -1) for value in then]
    for at, row in enumerate(rows):
        if row not in (-1, at):
            differ(Difference(RANK, _name(keys[at]), row + 1, at + 1))
    for name in expected.schema.names:
        wrong = unlike(expected.column(name), noted.column(name), np.array(rows, np.int64))
        for at in wrong.tolist():
            differ(Difference(VALUE, _name(keys[at]), column=name, file=BATCH))
    _compare_own(source, picked, batch, [field.name for field in own], differ)


def _name(key: bytes) -> str:
    return key.decode("utf-8", "replace")


def unlike(now: pa.ChunkedArray, then: pa.ChunkedArray, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the rows of a batch whose value is not that of their row now; numbers may differ by rounding.

    Args:
        now: a column as derived.
        then: the same, as written, shape (M,).
        rows: the row of ``now`` of each of ``then``, shape (M,); -1 where there is none, which is not looked at.
    """
    found = np.flatnonzero(rows >= 0)
    mine, theirs = now.take(pa.array(rows[found])), then.take(pa.array(found))
    if pa.types.is_floating(now.type):
        same = np.isclose(mine.to_numpy(), theirs.to_numpy(), rtol=CLOSE, atol=CLOSE, equal_nan=True)
    else:
        same = np.array([a == b for a, b in zip(mine.to_pylist(), theirs.to_pylist(), strict=True)], bool)
    return found[~same]


def _compare_own(source: Table, picked: Picked, batch: Table, names: Sequence[str], differ: Differ) -> None:
    """Compare the table's own columns by their digest over all picks; only where that differs, row by row."""
    renamed = dict(zip(names, source.schema.names, strict=True))
    schema = pa.schema([source.schema.field(old).with_name(new) for new, old in renamed.items()])
    lists = [field.name for field in schema if _numbers(field.type)]
    now, then = RowDigest(schema, whole=lists), RowDigest(schema, whole=lists)
    kept = np.zeros(source.n_rows, bool)
    kept[picked.picks] = True
    start = 0
    for piece in source.batches():
        mine = piece.filter(pa.array(kept[start : start + piece.num_rows])).rename_columns(list(names))
        start += piece.num_rows
        if mine.num_rows:
            now.update(key_bytes(mine.column(KEY)), mine)
    for piece in batch.batches(names):
        then.update(key_bytes(piece.column(KEY)), piece)
    if now.hexdigest() != then.hexdigest():
        _name_rows(source, batch, names, differ)


def _numbers(kind: pa.DataType) -> bool:
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return lists and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _name_rows(source: Table, batch: Table, names: Sequence[str], differ: Differ) -> None:
    wanted = next(batch.batches(names, rows=N_LOOKED_AT), None)
    if wanted is None:
        return  # no row is left: each that is missing is named as such
    by_key = {key: at for at, key in enumerate(key_bytes(wanted.column(KEY)))}
    named = 0
    for piece in source.batches():
        keys = key_bytes(piece.column(source.schema.names[list(names).index(KEY)]))
        for row, at in ((row, by_key[key]) for row, key in enumerate(keys) if key in by_key):
            for number, name in enumerate(names):
                new, old = piece.column(number)[row].as_py(), wanted.column(number)[at].as_py()
                if new != old and repr(new) != repr(old):
                    differ(Difference(VALUE, _name(keys[row]), column=name, file=BATCH))
                    named += 1
    if not named and wanted.num_rows < batch.n_rows:  # else a row is missing, new or twice, which is told as such
        differ(Difference(LATER_VALUE, "", wanted.num_rows, file=BATCH))


PASSED_THROUGH = ("uri", "width", "height")  # the table's own, which nothing was chosen by


PLACE = "rank"


def compare_batches(now: pa.Table, then: pa.Table, *, as_written: bool) -> tuple[list[str], list[str]]:
    """Say which rows of a batch are not as derived, and what else is not.

    Args:
        now: as derived, each key once.
        then: on disk.
        as_written: whether the file is, byte for byte, what was written. Then other places or sizes of images are the
            table's new ones, and no difference.

    Returns:
        one text a row that differs, and one a finding that is no row.
    """
    if [(one.name, one.type) for one in now.schema] != [(one.name, one.type) for one in then.schema]:
        return [], ["the batch has other columns or types than what is chosen now"]
    keys, noted = now[KEY].to_pylist(), then[KEY].to_pylist()
    place = {key: at for at, key in enumerate(keys)}
    rows = np.array([place.get(key, -1) for key in noted], np.int64)
    found: dict[Any, list[str]] = {key: ["not chosen then"] for key in keys if key not in set(noted)}
    for at, row in enumerate(rows.tolist()):
        if row < 0:
            found[noted[at]] = ["not chosen now"]
        elif row != at:
            found[noted[at]] = [f"number {row + 1:,} now, number {at + 1:,} then"]
    for name in now.schema.names:
        if name in (KEY, PLACE) or (as_written and name in PASSED_THROUGH):
            continue
        for at in unlike(now[name], then[name], rows).tolist():
            found.setdefault(noted[at], []).append(f"another {name}")
    problems = [f"{len(noted) - len(set(noted)):,} rows are there twice"] if len(set(noted)) < len(noted) else []
    return [f"{key}: {', '.join(texts)}" for key, texts in found.items()], problems
