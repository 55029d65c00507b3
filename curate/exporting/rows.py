"""Exported rows: their source, and batches of them as items and records."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from json.encoder import encode_basestring
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, OK, STATUS, URI
from curate.exporting.item import Item
from curate.tables.arrays import texts
from curate.tables.classes import NO_CLASSES, ClassList
from curate.tables.digests import is_bytes, key_texts
from curate.tables.moved import Moved
from curate.tables.table import Table

RECORD_STEP = 1024  # rows converted to Python objects at a time


@dataclass(frozen=True)
class Source:
    """A table whose rows are exported.

    Attributes:
        table: on disk, or in memory.
        path: as the user named it.
        moved: current locations of images that moved together with it; or None.
    """

    table: Table | pa.Table
    path: Any = "the batch"
    moved: Moved | None = None

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self.table.schema

    def batches(self, columns: Sequence[str], rows: int = 65536) -> Iterator[pa.RecordBatch]:
        """Yield some columns in order, at most ``rows`` rows at a time."""
        table, names = self.table, list(columns)
        held = table.batches(names, rows) if isinstance(table, Table) else table.select(names).to_batches(rows)
        for batch in held:
            if self.moved is None:
                yield batch
            else:
                yield from self.moved.current_rows(pa.Table.from_batches([batch])).combine_chunks().to_batches()


@dataclass(frozen=True)
class Rows:
    """A batch of exported rows.

    Attributes:
        start: number of the first among the exported rows.
        table: their columns.
        label: class column.
        classes: names of its values.
        extra: further columns, which are read but not exported.
    """

    start: int
    table: pa.Table
    label: str | None = None
    classes: ClassList = NO_CLASSES
    extra: pa.Table | None = None

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def keys(self) -> list[str]:
        """Keys of the rows."""
        return key_texts(self.table[KEY])

    @cached_property
    def uris(self) -> list[str | None]:
        """Image paths or URLs of the rows; None for embedded images."""
        return self.table[URI].to_pylist() if URI in self.table.column_names else [None] * len(self)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of numbers and text, without key, uri and label."""
        others = (KEY, URI, self.label)
        return tuple(field.name for field in self.table.schema if field.name not in others and is_plain(field.type))

    @cached_property
    def items(self) -> list[Item]:
        """The rows as items of a batch."""
        columns = {name: json_values(self.table[name]) for name in self.columns}
        return [
            Item(key, uri, {name: value for name in columns if (value := columns[name][row]) is not None}, label)
            for row, (key, uri, label) in enumerate(zip(self.keys, self.uris, self.labels, strict=True))
        ]

    @cached_property
    def labels(self) -> list[str | None]:
        """The class of each row; None without a label."""
        if self.label not in self.table.column_names:
            return [None] * len(self)
        labels: list[str | None] = self.classes.texts(self.table[self.label]).to_pylist()
        return labels

    def texts(self, column: str) -> list[str | None]:
        """Return a column's values as text; None for missing values."""
        values: list[str | None] = texts(self.column(column).combine_chunks()).to_pylist()
        return values

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column, exported or not."""
        held = self.table if self.extra is None or name in self.table.column_names else self.extra
        return held[name]

    def has(self, name: str) -> bool:
        """Return whether a column was read."""
        return name in self.table.column_names or (self.extra is not None and name in self.extra.column_names)

    def take(self, rows: Sequence[int]) -> "Rows":
        """Return some of the rows, by their position in the batch."""
        indices = pa.array(rows, pa.int64())
        extra = None if self.extra is None else self.extra.take(indices)
        return replace(self, table=self.table.take(indices), extra=extra)

    def records(self, start: int, stop: int) -> list[dict[str, Any]]:
        """Return all columns except bytes of some rows as JSON values: NaN and infinity become null."""
        some = self.table.slice(start, stop - start)
        columns = {field.name: json_values(some[field.name]) for field in some.schema}
        return [{name: values[row] for name, values in columns.items()} for row in range(some.num_rows)]


def is_plain(kind: pa.DataType) -> bool:
    """Return whether CSV and JSON can represent the values of a type: numbers and text."""
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    return bool(numbers or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_dictionary(kind))


def is_json(kind: pa.DataType) -> bool:
    """Return whether JSON can represent the values of a type: no bytes, also in no field of a struct."""
    if pa.types.is_struct(kind):
        return all(is_json(kind.field(i).type) for i in range(kind.num_fields))
    return not is_bytes(kind)


def is_any(kind: pa.DataType) -> bool:
    """Return True: Parquet represents the values of every type."""
    return True


def json_values(column: pa.ChunkedArray) -> list[Any]:
    """Return ``json_value`` of each value of a column, computed by whole columns for numbers and text."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type) and not column.null_count:
        flat = pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type)
        numbers = flat.to_numpy().astype(np.float64)  # NaN instead of null
        if np.isfinite(numbers).all():
            values: list[Any] = numbers.reshape(len(column), kind.list_size).tolist()
            return values
    if pa.types.is_floating(kind):
        doubles = column.cast(pa.float64())
        values = pc.if_else(pc.is_finite(doubles), doubles, pa.scalar(None, pa.float64())).to_pylist()
    else:
        values = column.to_pylist()
        if not is_plain(kind) or pa.types.is_dictionary(kind):
            values = [json_value(value) for value in values]
    return values


def json_texts(column: pa.ChunkedArray) -> list[str]:
    """Return ``json_value`` of the values of a column as JSON text."""
    kind = column.type
    if pa.types.is_fixed_size_list(kind) and pa.types.is_float16(kind.value_type) and not column.null_count:
        bits = (
            pa.chunked_array([chunk.flatten() for chunk in column.chunks], kind.value_type).to_numpy().view(np.uint16)
        )
        rows = _half_texts()[bits].reshape(len(column), kind.list_size).tolist()
        return [f"[{', '.join(row)}]" for row in rows]
    as_text: Callable[[Any], str] = partial(json.dumps, ensure_ascii=False, allow_nan=False)
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        as_text = repr
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        as_text = encode_basestring
    return ["null" if value is None else as_text(value) for value in json_values(column)]


@cache
def _half_texts() -> NDArray[np.object_]:
    """Return the JSON text of each float16 by its bits, shape (65536,)."""
    numbers = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float64).tolist()
    return np.array([repr(number) if math.isfinite(number) else "null" for number in numbers], object)


def json_value(value: Any) -> Any:
    """Return a value as JSON; times and the like as text.

    >>> json_value([1.0, float("nan")])
    [1.0, None]
    """
    if isinstance(value, list | tuple):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(name): json_value(each) for name, each in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def ok_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows whose image was scored; all if the table has no status."""
    return batch.filter(pc.equal(batch[STATUS], OK)) if STATUS in batch.schema.names else batch


def parts(
    source: Source,
    columns: Sequence[str],
    extra: Sequence[str],
    starts: Sequence[int],
    label: str | None,
    classes: ClassList,
) -> Iterator[tuple[int, Rows]]:
    """Yield the number and the rows of each part.

    Args:
        source: the table.
        columns: exported.
        extra: read in addition.
        starts: row number of the table at which each part begins, shape (parts,).
        label: class column.
        classes: names of its values.
    """
    reads_status = STATUS in source.schema.names
    to_read = list(dict.fromkeys([*columns, *extra, *([STATUS] if reads_status else [])]))
    read = list(dict.fromkeys([*columns, *extra]))
    schema = pa.schema([source.schema.field(name) for name in read])

    def rows_of(held: list[pa.RecordBatch]) -> Rows:
        table = pa.Table.from_batches(held, schema)
        return Rows(gone_out, table.select(columns), label, classes, table.select(extra))

    held: list[pa.RecordBatch] = []
    number = row = gone_out = 0
    for batch in source.batches(to_read, rows=RECORD_STEP * 8):
        first = 0
        while number + 1 < len(starts) and starts[number + 1] < row + batch.num_rows:
            cut = starts[number + 1] - row
            held.append(ok_rows(batch.slice(first, cut - first)).select(read))
            rows = rows_of(held)
            yield number, rows
            number, first, held, gone_out = number + 1, cut, [], gone_out + len(rows)
        held.append(ok_rows(batch.slice(first)).select(read))
        row += batch.num_rows
    yield number, rows_of(held)
