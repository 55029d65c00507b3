"""Hashes of rows that do not depend on row order, machine or library version."""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate import columns
from curate.tables.xxhash64 import xxh64
from scoring.errors import InputError

HASH = "xxh64 of keys and rows"  # a receipt notes it: another one breaks ties otherwise, or digests rows otherwise
LANES = (np.uint64(0), np.uint64(0x9E3779B97F4A7C15))  # what the two hashes of a row begin with
LOOKED_AT = 256  # texts that show whether most differ
ABSENT = np.uint64(0xD1B54A32D192ED03)  # instead of a value that is null
Keys: TypeAlias = "Sequence[bytes] | pa.LargeBinaryArray"


def key_array(keys: pa.Array, where: object = "the table", first_row: int = 0) -> pa.LargeBinaryArray:
    """Return keys (N texts or integers) as UTF-8 bytes in an Arrow array; InputError for null or other types.

    ``where`` and ``first_row`` are the file and the index of the first row, for messages.
    """
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise InputError(
            f"expected a key in every row of {where}, got none in row {first_row + row} (from 0); add one, or "
            "remove the row"
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


def shown_keys(keys: pa.Array | pa.ChunkedArray, where: object = "the table") -> list[str]:
    """Return keys as text for display, for any bytes; InputError as ``key_array``."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return [key.decode("utf-8", "replace") for key in key_bytes(array, where)]


def key_texts(keys: pa.Array | pa.ChunkedArray, where: object = "the table", first_row: int = 0) -> list[str]:
    """Return keys as text; InputError as ``key_array``."""
    array = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    return [key.decode() for key in key_bytes(array, where, first_row)]


def tie_breaks(keys: Keys, *, seed: int | None = None) -> NDArray[np.uint64]:
    """Return the 64-bit ``HASH`` of each key, shape (N,) uint64, which breaks ties and draws samples.

    It is not cryptographic: keys can be crafted to win, or to collide. Samples use a 64-bit ``seed``.
    """
    return xxh64(keys if isinstance(keys, pa.Array) else pa.array(keys, pa.large_binary()), seed or 0)


def text_hashes(keys: Iterable[str]) -> NDArray[np.uint64]:
    """Return ``tie_breaks`` of keys as text, shape (N,)."""
    return tie_breaks([key.encode("utf-8", "surrogateescape") for key in keys])


def redrawn(hashes: np.ndarray, seed: int, purpose: str) -> np.ndarray:
    """Return new hashes (N,) uint64 by a 64-bit seed; distinct inputs stay distinct.

    ``purpose`` names the sample: two commands with the same purpose would draw the same rows, so the second sample,
    from the rest of the first, would not be random.
    """
    return mixed(hashes ^ tie_breaks([purpose.encode()], seed=seed)[0])


def mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return a pseudorandom bijection of 64-bit numbers, shape (N,), in place.

    Source: the last step of SplitMix64, Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators".
    """
    for bits, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(bits)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    return z


def value_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, also of dictionaries of them."""
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def is_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds text, in any of its layouts."""
    kind = value_type(kind)
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists, of one length or not."""
    return bool(pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind))


def is_vector(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds lists of numbers."""
    return is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def numpy_type(kind: pa.DataType) -> np.dtype[Any]:
    """Return NumPy's type for such values; ``to_pandas_dtype`` would need pandas in pyarrow 25."""
    dtype: np.dtype[Any] = pa.array([], kind).to_numpy(zero_copy_only=False).dtype
    return dtype


def plain(array: pa.Array) -> pa.Array:
    """Return the array without dictionary encoding."""
    return array.cast(array.type.value_type) if pa.types.is_dictionary(array.type) else array


class RowDigest:
    """A digest of a set of rows: two sums, modulo 2^64, of 64-bit hashes of every row.

    It is independent of the row order, and changes with every value, missing or repeated row. A row's hash combines the
    hash of its key with each column by name: the stored bits of a number, the ``HASH`` of text or bytes. It detects
    accidents, not forgery.

    Args:
        schema: types of the included columns, in addition to the key.
        full_lists: lists included with all their numbers; other nested columns are included as present or missing.
    """

    def __init__(self, schema: pa.Schema, full_lists: Collection[str] = ()) -> None:
        self.full_lists = frozenset(full_lists)
        self.names = sorted(name for name in set(schema.names) if name != columns.KEY)
        kinds = [schema.field(name).type for name in self.names]
        self.kinds = ["text" if is_text(kind) else str(kind) for kind in kinds]
        self._sums = [np.uint64(0)] * len(LANES)
        self.n_rows = 0

    def update(self, keys: NDArray[np.uint64], batch: pa.RecordBatch) -> None:
        """Add rows: the hashes of their keys (``tie_breaks``, N) and a batch with the columns."""
        with np.errstate(over="ignore"):
            self._sums = [
                old + lane.sum() for old, lane in zip(self._sums, self._hashes_from(keys, batch, LANES), strict=True)
            ]
        self.n_rows += len(keys)

    def hashes(self, keys: NDArray[np.uint64], batch: pa.RecordBatch) -> NDArray[np.uint64]:
        """Return a hash of each row, shape (N,), without adding it; arguments are as in ``update``."""
        return self._hashes_from(keys, batch, LANES[:1])[0]

    def _hashes_from(
        self, keys: NDArray[np.uint64], batch: pa.RecordBatch, first: Sequence[np.uint64]
    ) -> list[NDArray[np.uint64]]:
        """Return hashes of N rows for several initial values, shape (N,) each."""
        if len(keys) != batch.num_rows:
            raise ValueError(f"{len(keys)} keys for {batch.num_rows} rows")
        lanes = [mixed(keys ^ number) for number in first]
        for name in self.names:
            values = _hashed(batch.column(name), full=name in self.full_lists)
            lanes = [mixed(lane ^ values) for lane in lanes]
        return lanes

    def hexdigest(self) -> str:
        """Return the digest: SHA-256 of the sums, the number of rows and the columns' names and types."""
        header = json.dumps([self.n_rows, self.names, self.kinds]).encode()
        return hashlib.sha256(header + b"".join(int(each).to_bytes(8, "little") for each in self._sums)).hexdigest()


def _hashed(column: pa.Array, *, full: bool) -> NDArray[np.uint64]:
    """Return 64 bits for each value of a column, shape (N,): the number itself, otherwise a hash."""
    if pa.types.is_dictionary(column.type) and not column.null_count and len(column.dictionary) <= len(column):
        return np.asarray(_hashed(column.dictionary, full=full)[column.indices.to_numpy(zero_copy_only=False)])
    column = plain(column)
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        numbers = (column.fill_null(0) if column.null_count else column).to_numpy(zero_copy_only=False)
        hashes = numbers.view(f"u{numbers.dtype.itemsize}").astype(np.uint64)
    elif full and is_list(kind):
        hashes = xxh64(_list_bytes(column))
    else:
        if not is_text(kind) and not is_bytes(kind):
            is_nested = pa.types.is_nested(kind)  # of nested values only their presence counts
            column = pc.if_else(column.is_valid(), "value", None) if is_nested else column.cast(pa.string())
        texts = column.cast(pa.large_binary())
        texts = texts.fill_null(b"") if texts.null_count else texts
        if len(texts) <= LOOKED_AT or len(texts[:LOOKED_AT].unique()) > LOOKED_AT // 2:
            hashes = xxh64(texts)
        else:  # a sample shows few distinct texts
            codes = texts.dictionary_encode()
            hashes = xxh64(codes.dictionary)[codes.indices.to_numpy(zero_copy_only=False)]
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = ABSENT
    return np.asarray(hashes)


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether an Arrow type holds bytes, in any of its layouts: Polars writes the large one."""
    is_plain = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    return bool(is_plain or pa.types.is_fixed_size_binary(kind))


def _list_bytes(column: pa.Array) -> pa.LargeBinaryArray:
    """Return the little-endian numbers of each list, N byte strings; none for null."""
    kind = column.type
    number = numpy_type(kind.value_type).newbyteorder("<")
    if pa.types.is_fixed_size_list(kind) and kind.list_size:
        values = column.values.slice(column.offset * kind.list_size, len(column) * kind.list_size)
        rows = np.ascontiguousarray(values.to_numpy(zero_copy_only=False), number)
        ends = np.arange(len(column) + 1, dtype=np.int64) * (kind.list_size * number.itemsize)
        return pa.Array.from_buffers(pa.large_binary(), len(column), [None, pa.py_buffer(ends), pa.py_buffer(rows)])
    lists = (row or () for row in column.to_pylist())
    return pa.array(
        [repr(row).encode() if None in row else np.asarray(row, number).tobytes() for row in lists], pa.large_binary()
    )


def salted(hashes: NDArray[np.uint64], seed: int) -> NDArray[np.uint64]:
    """Return a pseudorandom bijection of hashes, by the seed."""
    return mixed(hashes + np.uint64((seed * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) % 2**64))
