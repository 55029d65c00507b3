"""Keys of a table: hashes, uniqueness, and lookup in both directions; hashes of the values of whole rows."""

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY
from curate.tables.digests import RowDigest, is_vector, key_array, key_bytes, key_texts, shown_keys, tie_breaks
from curate.tables.table import Table
from scoring.errors import InputError

SORTED_AT_ONCE = 1 << 26  # hashes, of 8 bytes each


def key_hashes(table: Table) -> NDArray[np.uint64]:
    """Return the hash of each key, in table order, (N,); InputError for null or types other than text and integer."""
    hashes = np.empty(table.n_rows, np.uint64)
    for start, batch in table.numbered([KEY]):
        if start + batch.num_rows > table.n_rows:
            raise InputError(f"{table.path} changed while it was being read; run the command again")
        hashes[start : start + batch.num_rows] = tie_breaks(key_array(batch.column(KEY), table.path, start))
    return hashes


def key_ranks(table: Table) -> NDArray[np.int64]:
    """Return the rank of each key, from 0, shape (N,): by number of UTF-8 bytes, then by bytes.

    So ``x.jpg`` comes before ``x (1).jpg`` and ``Copy of x.jpg``, independent of the row order.
    """
    import polars as pl

    batches = [key_array(batch.column(KEY), table.path) for batch in table.batches([KEY])]
    keys = pl.Series("key", pa.chunked_array(batches, pa.large_binary()))
    order = keys.to_frame().select(pl.arg_sort_by(pl.col("key").bin.size(), "key")).to_series().to_numpy()
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def check_unique(table: Table, hashes: NDArray[np.uint64]) -> None:
    """Raise InputError for a table with repeated keys; keys with equal hashes are read again to compare them."""
    suspects = _repeated(hashes)
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
            f"expected unique keys in {table.path}, got some more than once, such as {names}; make them unique"
        )


class HashIndex:
    """The places of N key hashes, by binary search; for few keys at a time, unlike ``places``."""

    def __init__(self, hashes: NDArray[np.uint64]) -> None:
        self._order = np.argsort(hashes, kind="stable")
        self._sorted = hashes[self._order]

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the place of each hash, shape (M,); -1 if absent."""
        if not len(self._sorted):
            return np.full(len(hashes), -1)
        at = np.searchsorted(self._sorted, hashes).clip(max=len(self._sorted) - 1)
        return np.where(self._sorted[at] == hashes, self._order[at], -1)


def places(sought: NDArray[np.integer], known: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return the index of each value among the known ones, the first of equal ones, shape (M,); else -1."""
    import polars as pl

    rows, some = pl.LazyFrame({"hash": sought}), pl.LazyFrame({"hash": known}).with_row_index("place")
    # those that are sought are few where the known ones are many
    some = some.join(rows, on="hash", how="semi").unique("hash", keep="first")
    joined = rows.join(some, on="hash", how="left", maintain_order="left").collect()
    return joined["place"].cast(pl.Int64).fill_null(-1).to_numpy()


def _repeated(hashes: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the hashes that occur more than once, computed by ranges of their first bits."""
    bits = min(8, (len(hashes) // SORTED_AT_ONCE).bit_length())
    first_bytes = hashes.astype("<u8", copy=False).view(np.uint8)[7::8] >> np.uint8(8 - bits)
    repeated = [np.zeros(0, np.uint64)]
    for first in range(1 << bits):
        ordered = hashes[first_bytes == first] if bits else hashes.copy()
        ordered.sort()
        again = ordered[1:][ordered[1:] == ordered[:-1]]
        if len(again):
            repeated.append(np.unique(again))
    return np.concatenate(repeated)


def row_hashes(table: Table, names: Mapping[str, str], inside: NDArray[np.bool_] | None = None) -> NDArray[np.uint64]:
    """Return a hash of the values of each row, or of each row ``inside``, shape (N,).

    ``names`` maps the columns to their names in the hash, which is the same for columns that were renamed.
    """
    parts = [np.empty(0, np.uint64)]
    kinds = {new: table.schema.field(old).type for old, new in names.items()}
    texts = [new for new, kind in kinds.items() if pa.types.is_nested(kind) and not is_vector(kind)]
    fields = [pa.field(new, pa.string() if new in texts else kind) for new, kind in kinds.items()]
    digest = RowDigest(pa.schema(fields), full_lists=[new for new, kind in kinds.items() if is_vector(kind)])
    for start, batch in table.numbered(list(dict.fromkeys([KEY, *names]))):
        rows = batch if inside is None else batch.filter(pa.array(inside[start : start + batch.num_rows]))
        values = {new: rows.column(old) for old, new in names.items()}
        values |= {new: _as_json(values[new]) for new in texts}
        hashed = pa.RecordBatch.from_arrays(list(values.values()), names=list(values))
        parts.append(digest.hashes(tie_breaks(key_array(rows.column(KEY))), hashed))
    return np.concatenate(parts)


def _as_json(column: pa.Array) -> pa.Array:
    texts = (None if value is None else json.dumps(value, default=str, sort_keys=True) for value in column.to_pylist())
    return pa.array(texts, pa.string())


def keys_at(table: Table, rows: NDArray[np.int64]) -> NDArray[np.object_]:
    """Return the key at each row index as text; None for negative ones."""
    has_row = rows >= 0
    keys = np.full(len(rows), None, object)
    keys[has_row] = key_texts(table.take(rows[has_row], [KEY]).column(KEY), table.path)
    return keys


def named(table: Table, rows: NDArray[np.int64]) -> list[str]:
    """Return the keys of rows as text for display, for any bytes."""
    return shown_keys(table.take(rows, [KEY]).column(KEY), table.path)


def rows_with_keys(table: Table, keys: Sequence[str]) -> dict[str, int]:
    """Return the row of each key, without missing ones; InputError for null or other types than text and integers."""
    key_set = pa.array(sorted(set(keys)), pa.string())
    row_of_key: dict[str, int] = {}
    for start, batch in table.numbered([KEY]):
        table_keys = pa.array(key_texts(batch.column(0), table.path, start), pa.string())
        inside = np.flatnonzero(pc.is_in(table_keys, value_set=key_set).to_numpy(zero_copy_only=False))
        row_of_key.update(zip(table_keys.take(pa.array(inside)).to_pylist(), (start + inside).tolist(), strict=True))
    return row_of_key
