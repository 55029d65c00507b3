"""Hashes of rows that do not depend on their order, on the machine or on the version of a library."""

import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate import columns
from curate.tables.xxhash64 import xxh64
from scoring.errors import InputError

HASH = "xxh64"  # of keys; a receipt notes it, for another one breaks ties otherwise
Keys: TypeAlias = "Sequence[bytes] | pa.LargeBinaryArray"


def key_array(keys: pa.Array, where: object = "the table", first_row: int = 0) -> pa.LargeBinaryArray:
    """Return keys (text or whole numbers, N) as UTF-8 bytes in an Arrow array.

    Args:
        keys: of some rows.
        where: the file they are from, for messages.
        first_row: the number of the first of them there, from 0.

    Raises:
        InputError: for a null key, or keys of another type.
    """
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"expected a key in every row of {where}, got none in row {first_row + row} (from 0); give it one, or take "
            "the row out"
        )
    if not is_text(keys.type) and not pa.types.is_integer(keys.type):
        raise InputError(
            f"expected a `key` column of text or whole numbers in {where}, got {keys.type}; cast it to text"
        )
    text = keys if is_text(keys.type) else keys.cast(pa.string())
    return plain(text).cast(pa.large_binary())


def key_bytes(keys: pa.Array, where: object = "the table", first_row: int = 0) -> list[bytes]:
    """Return ``key_array`` as a list."""
    values: list[bytes] = key_array(keys, where, first_row).to_pylist()
    return values


def key_texts(keys: pa.Array | pa.ChunkedArray, where: object = "the table", first_row: int = 0) -> list[str]:
    """Return keys as text; raises as ``key_bytes``."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return [key.decode() for key in key_bytes(array, where, first_row)]


def tie_breaks(keys: Keys, *, seed: int | None = None) -> NDArray[np.uint64]:
    """Return the 64-bit ``HASH`` of each key, shape (N,) uint64: who wins when scores are equal, or is drawn.

    It is no secret: who makes up keys can choose ones that win, or whose hashes are equal.

    Args:
        keys: as bytes.
        seed: of 64 bits, for a draw; another seed gives other hashes.
    """
    return xxh64(_array(keys), seed or 0)


def _array(keys: Keys) -> pa.LargeBinaryArray:
    return keys if isinstance(keys, pa.Array) else pa.array(keys, pa.large_binary())


def redrawn(hashes: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Return other hashes of the same things, drawn again by a seed; things that differ still do.

    Args:
        hashes: shape (N,) uint64.
        seed: of 64 bits.
        purpose: what is drawn; two commands that draw for the same would draw the same rows, and the second, from what
            the first left, would not draw at random.

    Returns:
        Shape (N,) uint64.

    Source: the last step of SplitMix64, Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    z = hashes ^ tie_breaks([purpose.encode()], seed=seed)[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds text, in any of its layouts."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists, of one length or not."""
    return pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return NumPy's type of such values; ``to_pandas_dtype``, which says it too, needs pandas in pyarrow 25."""
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def plain(array: pa.Array) -> pa.Array:
    """Return the array without dictionary encoding."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


class RowDigest:
    """A digest of a set of rows: the sum, modulo 2^256, of the SHA-256 of every row.

    The order of the rows does not matter; every value, every missing or repeated row does. A row's bytes are
    its key and then each column by name: a byte that says null or not, then little-endian numbers as stored,
    or anything else as UTF-8 text with its length.

    Args:
        schema: types of the columns that count, in addition to the key.
        full_lists: lists that count with all their numbers; other nested columns count by whether there is a value.
    """

    def __init__(self, schema: pa.Schema, full_lists: Collection[str] = ()) -> None:
        self.full_lists = frozenset(full_lists)
        self.names = sorted(name for name in set(schema.names) if name != columns.KEY)
        self.kinds = [str(schema.field(name).type) for name in self.names]
        self.kinds = [
            "text" if is_text(schema.field(n).type) else k for n, k in zip(self.names, self.kinds, strict=True)
        ]
        self._sum = 0
        self.n_rows = 0

    def update(self, keys: Keys, batch: pa.RecordBatch) -> None:
        """Add rows: their keys (N) and a batch that holds the columns."""
        words = np.frombuffer(self._hashed(keys, batch), "<u4").reshape(-1, 8).sum(axis=0, dtype=np.uint64)
        self._sum = (self._sum + sum(int(word) << (32 * i) for i, word in enumerate(words))) % (1 << 256)
        self.n_rows += len(keys)

    def hashes(self, keys: Keys, batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """Return 8 bytes of the SHA-256 of each row, shape (N,), and add nothing; arguments as of ``update``."""
        return np.frombuffer(self._hashed(keys, batch), "<u8").reshape(-1, 4)[:, 0]

    def _hashed(self, keys: Keys, batch: pa.RecordBatch) -> bytes:
        """Return the SHA-256 of each row, 32 bytes each: columns are put together by Arrow, and hashed one by one."""
        texts = _array(keys)
        if len(texts) != batch.num_rows:
            raise ValueError(f"{len(texts)} keys for {batch.num_rows} rows")
        parts = [_lengths(texts), texts]
        for name in self.names:
            parts += (_encoded_lists if name in self.full_lists else _encoded)(batch.column(name))
        rows = pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.large_binary())).to_pylist()
        return b"".join([digest.digest() for digest in map(hashlib.sha256, rows)])

    def hexdigest(self) -> str:
        """Return the digest: SHA-256 of the sum, the number of rows and the columns' names and types."""
        header = json.dumps([self.n_rows, self.names, self.kinds]).encode()
        return hashlib.sha256(header + self._sum.to_bytes(32, "little")).hexdigest()


def _encoded(column: pa.Array) -> list[pa.LargeBinaryArray]:
    """Each value of a column as bytes that cannot be confused with another's: what follows one another, N of each."""
    column = plain(column)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        values = column.fill_null(0) if column.null_count else column
        numbers = values.to_numpy(zero_copy_only=False)
        little = np.ascontiguousarray(numbers.astype(numbers.dtype.newbyteorder("<"), copy=False))
        packed = np.empty((len(column), 1 + numbers.dtype.itemsize), np.uint8)
        packed[:, 0] = column.is_valid().to_numpy(zero_copy_only=False)
        packed[:, 1:] = little.view(np.uint8).reshape(len(column), -1)
        return [_fixed(packed)]
    if not is_text(kind) and not is_bytes(kind):
        column = column.cast(pa.string()) if not pa.types.is_nested(kind) else _counted(column)
    return _with_length(column.cast(pa.large_binary()))


def _with_length(values: pa.LargeBinaryArray) -> list[pa.LargeBinaryArray]:
    """Bytes with a byte that says that they are there, and their length; a zero byte alone for null."""
    filled = values.fill_null(b"") if values.null_count else values
    present, zero = _fixed(np.ones((len(values), 1), np.uint8)), pa.scalar(b"", pa.large_binary())
    head = pc.binary_join_element_wise(present, _lengths(filled), zero)
    return [
        pc.if_else(values.is_valid(), head, pa.scalar(b"\0", pa.large_binary())) if values.null_count else head,
        filled,
    ]


def _lengths(values: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """The length of each value, as four little-endian bytes."""
    lengths = pc.binary_length(values).to_numpy(zero_copy_only=False).astype("<u4")
    return _fixed(lengths.view(np.uint8).reshape(-1, 4))


def _fixed(rows: NDArray[np.uint8]) -> pa.LargeBinaryArray:
    """Rows of bytes, shape (N, W), as an Arrow array, without a copy."""
    ends = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.large_binary(), len(rows), buffers)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds bytes, in any of its layouts: Polars writes the large one."""
    types = pa.types
    return any(
        is_kind(kind)
        for is_kind in (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary)
    )


def _encoded_lists(column: pa.Array) -> list[pa.LargeBinaryArray]:
    """Each list of numbers as its little-endian bytes; other columns as ``_encoded``."""
    kind = column.type
    if not is_list(kind):
        return _encoded(column)
    number = numpy_type(kind.value_type)
    if pa.types.is_fixed_size_list(kind) and kind.list_size:
        values = column.values.slice(column.offset * kind.list_size, len(column) * kind.list_size)
        rows = np.ascontiguousarray(values.to_numpy(zero_copy_only=False), number)
        lists = _fixed(rows.view(np.uint8).reshape(len(column), -1))
    else:
        lists = pa.array([np.asarray(row or (), number).tobytes() for row in column.to_pylist()], pa.large_binary())
    if column.null_count:
        lists = pc.if_else(column.is_valid(), lists, pa.scalar(None, pa.large_binary()))
    return _with_length(lists)


def _counted(column: pa.Array) -> pa.Array:
    """A nested column counts only by whether it has a value: conditions ask no more of it."""
    return pc.if_else(column.is_valid(), pa.scalar("value"), pa.scalar(None, pa.string()))


def salted(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return other numbers instead of hashes, by the seed: a bijection that leaves no order."""
    z = hashes + np.uint64((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))
