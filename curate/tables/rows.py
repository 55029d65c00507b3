"""Reading of columns: a table of any size in one pass, as the few arrays needed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE, STATUS
from curate.manifest.store_path import AnyPath
from curate.tables.arrays import TRUE, coded, exact_numbers, has_value, is_ok, texts
from curate.tables.classes import refuse_measured
from curate.tables.digests import RowDigest, key_array, numpy_type, tie_breaks
from curate.tables.keys import check_unique, key_hashes
from curate.tables.needs import PHASH, SHA256, Needs
from curate.tables.provenance import model_of, signature_of
from curate.tables.table import Table
from curate.tables.vectors import EMBEDDING_PROBLEMS, Embeddings
from scoring.arrays import zeros_or_memmap
from scoring.errors import InputError

NO_NUMBER = "no value (null, NaN or infinite)"


@dataclass(frozen=True)
class Numbers:
    """A numeric column in its precision; float32 for float16, float64 for decimals of at most 15 digits.

    Attributes:
        values: shape (N,); undefined if not ``valid``.
        valid: shape (N,) bool: neither null nor NaN.
        is_decimal: whether the column holds decimals.
    """

    values: NDArray[Any]
    valid: NDArray[np.bool_]
    is_decimal: bool = False


@dataclass(frozen=True)
class Codes:
    """A column whose values represent groups or classes.

    Attributes:
        codes: shape (N,) int32, an index into ``names``; -1 for none.
        names: the values, as text.
    """

    codes: NDArray[np.int32]
    names: list[str] = field(default_factory=list)

    def largest(self, none: str = "") -> list[tuple[int, str, int]]:
        """Return code, name and number of rows of each value, most rows first; -1 and ``none`` for missing values."""
        counts, names = np.bincount(self.codes + 1, minlength=len(self.names) + 1), [none, *self.names]
        order = np.argsort(-counts, kind="stable").tolist()
        return [(at - 1, names[at], int(counts[at])) for at in order if counts[at]]


@dataclass
class Rows:
    """N rows of a table as arrays, in table order or sorted by key hash; requested columns by name.

    Attributes:
        ok: shape (N,) bool, whether the image was scored; all True without a status column.
        hashes: of the keys, shape (N,) uint64; break ties.
        place: row in the table, shape (N,) int64; empty in table order.
        exact: numbers in their precision.
        numbers: shape (N,) float64, NaN if missing.
        groups: values in order of appearance; null is a group.
        names: values as text, in natural order; -1 for null and blank text.
        texts: N texts, null if missing.
        present: shape (N,) bool, False for missing values.
        truths: by condition as typed, shape (N,) int8: 1 true, 0 false, -1 null.
        phash: shape (N,) uint64, valid where ``has_phash``, shape (N,) bool; None if not read.
        signature: shape (N, 255) int8, zero if absent; None if not read.
        chroma: shape (N, 32) int8, colours of the signatures; None if not read, or in an older table.
        flat: shape (N,) bool, whether a scored image has a zero signature; None if not read.
        embedding: shape (N, D) float16 or float32, zero if absent; None if not read.
        embedding_problem: shape (N,) uint8: 0, or 1 + an index into ``vectors.EMBEDDING_PROBLEMS``.
        model: digest of the model of the embeddings; empty if unknown.
        digest: of key, status and all columns read, independent of the row order.
    """

    ok: NDArray[np.bool_]
    hashes: NDArray[np.uint64]
    place: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    exact: dict[str, Numbers] = field(default_factory=dict)
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    groups: dict[str, Codes] = field(default_factory=dict)
    names: dict[str, Codes] = field(default_factory=dict)
    texts: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    present: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    truths: dict[str, NDArray[np.int8]] = field(default_factory=dict)
    phash: NDArray[np.uint64] | None = None
    has_phash: NDArray[np.bool_] | None = None
    signature: NDArray[np.int8] | None = None
    chroma: NDArray[np.int8] | None = None
    flat: NDArray[np.bool_] | None = None
    embedding: NDArray[np.floating] | None = None
    embedding_problem: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    model: str = ""
    digest: str = ""

    def __len__(self) -> int:
        return len(self.ok)

    def holds(self, condition: str | None) -> NDArray[np.bool_] | None:
        """Return a mask of the rows where a condition is true, shape (N,); None without a condition."""
        return self.truths[condition] == TRUE if condition else None

    def array(self, name: str) -> NDArray[Any]:
        """Return a requested array, such as ``embedding``; ValueError if it was not read."""
        array: NDArray[Any] | None = getattr(self, name)
        if array is None:
            raise ValueError(f"rows were read without {name}")
        return array

    def compared(self) -> NDArray[np.int64]:
        """Return the rows with comparable (scored, non-zero) embeddings, ascending."""
        self.array(EMBEDDING)
        return np.flatnonzero(self.ok & (self.embedding_problem == 0))

    def not_compared(self) -> dict[str, int]:
        """Return fault of embeddings -> number of scored images."""
        counts = (
            np.bincount(self.embedding_problem[self.ok], minlength=1 + len(EMBEDDING_PROBLEMS))[1:]
            if len(self.embedding_problem)
            else ()
        )
        return {what: int(n) for what, n in zip(EMBEDDING_PROBLEMS, counts, strict=False) if n}

    def in_table(self, values: NDArray[Any], at: NDArray[np.int64] | None = None, empty: float = 0) -> NDArray[Any]:
        """Return values of rows ``at`` (None for all) as an array of all rows in table order, ``empty`` elsewhere."""
        spread = np.full(len(self), empty, values.dtype)
        spread[self.place if at is None else self.place[at]] = values
        return spread

    def first_lacking(self, lacking: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.int8]:
        """Return the index of the first reason why each row is incomplete, -1 for none, shape (N,).

        ``lacking``: reason -> mask of rows, shape (N,).
        """
        first = np.full(len(self), -1, np.int8)
        for number, rows in reversed([*enumerate(lacking.values())]):
            first[rows] = number
        return first

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each key hash, shape (M,), among rows sorted by hash; -1 if absent."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        nearest = np.searchsorted(self.hashes, hashes).clip(max=len(self.hashes) - 1)
        return np.where(self.hashes[nearest] == hashes, nearest, -1)


def read_rows(table: Table, needs: Needs, *, by_hash: bool = False, unique: bool = True) -> Rows:
    """Read the needed columns of a table, in batches.

    Memory: the requested arrays; signatures and embeddings of more than 2 GB are in a file.

    Args:
        table: without ``status`` all rows are ok.
        needs: columns to read.
        by_hash: sort rows by key hash; costs a second pass over keys.
        unique: whether to refuse repeated keys.

    Raises:
        InputError: for a missing column or one of the wrong type, a null or repeated key, or embeddings or signatures
            of several kinds.
    """
    names = needs.columns(table)
    hashes = key_hashes(table) if by_hash else None
    if hashes is not None and unique:
        check_unique(table, hashes)
    batches = table.batches(names, compact=True)
    rows = collect(batches, table.schema, table.n_rows, needs, names, path=table.path, hashes=hashes)
    if hashes is None and needs.keys and unique:
        check_unique(table, rows.hashes)
    rows.model = model_of(table) if EMBEDDING in needs.representations else ""
    if SIGNATURE in needs.representations:
        signature_of(table)
    return rows


def collect(
    batches: Iterable[pa.RecordBatch],
    schema: pa.Schema,
    n: int,
    needs: Needs,
    names: Sequence[str],
    *,
    path: AnyPath,
    hashes: NDArray[np.uint64] | None = None,
) -> Rows:
    """Return the columns of ``needs`` for n rows from batches.

    Args:
        batches: n rows in total, with at least the columns ``names``.
        schema: of the batches.
        n: number of rows.
        needs: columns to read.
        names: columns included in the digest, with the key.
        path: of the table, for messages.
        hashes: of the keys, shape (n,), to sort the rows by; None for the order of the batches.
    """
    reading = _Reading(schema, n, needs, names, path, hashes)
    for batch in batches:
        reading.add(batch)
    return reading.done()


class _Reading:
    """Arrays under construction; each row is written at its final position."""

    def __init__(
        self,
        schema: pa.Schema,
        n: int,
        needs: Needs,
        names: Sequence[str],
        path: AnyPath,
        hashes: NDArray[np.uint64] | None,
    ) -> None:
        self.n, self.needs, self.path, self.start = n, needs, path, 0
        self.has_status = STATUS in names
        self.chroma_width: int | None = None
        self.order = np.zeros(0, np.int64) if hashes is None else np.argsort(hashes, kind="stable")
        self.rank: NDArray[np.int64] | None = None
        if hashes is not None:
            self.rank = np.empty(n, np.int64)
            self.rank[self.order] = np.arange(n)
        # a choice counts the whole embedding also where only a condition reads it
        full_lists = [EMBEDDING] if EMBEDDING in needs.representations or hashes is not None else []
        self.digest = (
            RowDigest(pa.schema([schema.field(name) for name in names]), full_lists=full_lists) if needs.keys else None
        )
        self.conditions = needs.parsed(schema)
        text_columns = [*needs.texts, *({SHA256} & needs.representations)]
        self.pieces: dict[str, list[pa.Array]] = {name: [] for name in text_columns}
        self.seen: dict[str, dict[Any, int]] = {name: {} for name in needs.groups}
        self.named: dict[str, dict[Any, int]] = {name: {} for name in needs.names}
        of_classes = {*needs.groups, *needs.names, *needs.texts}
        self.floats = sorted(name for name in of_classes if pa.types.is_floating(schema.field(name).type))
        self.embeddings = Embeddings(n, path) if EMBEDDING in needs.representations else None
        rows = Rows(np.ones(n, bool), np.zeros(n if needs.keys else 0, np.uint64), self.order)
        if hashes is not None:
            rows.hashes = hashes[self.order]
        rows.exact = {name: _room(n, schema.field(name).type) for name in needs.exact}
        rows.numbers = {name: np.empty(n) for name in needs.numbers}
        rows.groups = {name: Codes(np.empty(n, np.int32)) for name in needs.groups}
        rows.names = {name: Codes(np.empty(n, np.int32)) for name in needs.names}
        rows.present = {name: np.zeros(n, bool) for name in needs.present}
        rows.truths = {condition.text: np.empty(n, np.int8) for condition in self.conditions}
        if PHASH in needs.representations:
            rows.phash, rows.has_phash = np.zeros(n, np.uint64), np.zeros(n, bool)
        if SIGNATURE in needs.representations:
            from scoring.images.signature import WIDTH  # loads torch, which a filter has no need of

            rows.signature = zeros_or_memmap((n, WIDTH), np.dtype(np.int8))
        if needs.flat and SIGNATURE in schema.names:
            rows.flat = np.zeros(n, bool)
        self.rows = rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows."""
        stop = self.start + batch.num_rows
        self._check_length(stop, is_last=False)
        to = slice(self.start, stop) if self.rank is None else self.rank[self.start : stop]
        rows = self.rows
        if self.digest is not None:
            hashes = tie_breaks(key_array(batch.column(KEY), self.path, self.start))
            self.digest.update(hashes, batch)
            if self.rank is None:
                rows.hashes[to] = hashes
        if self.has_status:
            rows.ok[to] = is_ok(batch.column(STATUS))
        self._add_columns(batch, to)
        for condition in self.conditions:
            rows.truths[condition.text][to] = condition(batch)
        if rows.phash is not None and rows.has_phash is not None:
            column = batch.column(PHASH)
            bits = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
            rows.phash[to] = bits.astype(np.uint64) if column.type.bit_width == 64 else bits
            rows.has_phash[to] = column.is_valid().to_numpy(zero_copy_only=False)
        if rows.signature is not None or rows.flat is not None:
            self._add_signatures(batch.column(SIGNATURE), to)
        if self.embeddings is not None:
            self.embeddings.add(batch.column(EMBEDDING), to)
        self.start = stop

    def _add_signatures(self, column: pa.Array, to: slice | NDArray[np.int64]) -> None:
        from curate.tables.signatures import stored_matrix
        from scoring.images.signature import WIDTH

        stored = stored_matrix(column)
        if self.rows.signature is not None:
            self.rows.signature[to] = stored[:, :WIDTH]
            if column.null_count < len(column):  # else nothing shows how wide it is
                values = stored[:, WIDTH:]
                if self.chroma_width is None and values.shape[1]:
                    self.rows.chroma = zeros_or_memmap((self.n, values.shape[1]), np.dtype(np.int8))
                if self.chroma_width not in (None, values.shape[1]):
                    raise InputError(f"{self.path} holds `{SIGNATURE}` of two lengths; score the images again together")
                self.chroma_width = values.shape[1]
                if self.rows.chroma is not None:
                    self.rows.chroma[to] = values
        if self.rows.flat is not None:
            self.rows.flat[to] = ~stored[:, :WIDTH].any(1) & column.is_valid().to_numpy(zero_copy_only=False)

    def _add_columns(self, batch: pa.RecordBatch, to: slice | NDArray[np.int64]) -> None:
        rows = self.rows
        for name, numbers in rows.exact.items():
            numbers.values[to], numbers.valid[to] = exact_numbers(batch.column(name), f"column {name!r} of {self.path}")
        for name, values in rows.numbers.items():
            values[to] = pc.cast(batch.column(name), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        for name, groups in rows.groups.items():
            groups.codes[to] = coded(batch.column(name), self.seen[name])
        for name, classes in rows.names.items():
            classes.codes[to] = coded(batch.column(name), self.named[name], texts)
        for name, pieces in self.pieces.items():
            pieces.append(texts(batch.column(name)))
        for name, is_present in rows.present.items():
            is_present[to] = has_value(batch.column(name)).to_numpy(zero_copy_only=False)

    def done(self) -> Rows:
        """Return the finished rows."""
        self._check_length(self.start, is_last=True)
        rows = self.rows
        for name in self.floats:
            parts = self.pieces.get(name, ())
            values = {value for part in parts for value in part.unique().to_pylist()}
            refuse_measured(name, values.union(self.seen.get(name, ()), self.named.get(name, ())), self.n, self.path)
        rows.texts = {name: pa.chunked_array(parts, pa.large_string()) for name, parts in self.pieces.items()}
        if self.rank is not None:
            rows.texts = {name: column.take(pa.array(self.order)) for name, column in rows.texts.items()}
        rows.groups = {
            name: Codes(
                groups.codes,
                [
                    repr(each) if isinstance(each, str) else "null" if each is None else str(each)
                    for each in self.seen[name]
                ],
            )
            for name, groups in rows.groups.items()
        }
        rows.names = {name: _in_order(classes.codes, list(self.named[name])) for name, classes in rows.names.items()}
        rows.digest = self.digest.hexdigest() if self.digest is not None else ""
        if self.embeddings is not None:
            rows.embedding, rows.embedding_problem = self.embeddings.done()
        return rows

    def _check_length(self, n: int, *, is_last: bool) -> None:
        if n > self.n or (is_last and n != self.n):
            raise InputError(f"{self.path} changed while it was being read; run the command again")


def _room(n: int, kind: pa.DataType) -> Numbers:
    if pa.types.is_decimal(kind):
        return Numbers(np.zeros(n), np.zeros(n, bool), is_decimal=True)
    return Numbers(np.zeros(n, np.float32 if pa.types.is_float16(kind) else numpy_type(kind)), np.zeros(n, bool))


def _in_order(codes: NDArray[np.int32], names: list[str | None]) -> Codes:
    """Return codes renumbered by the natural order of the names; -1 stays."""
    ordered = sorted(name for name in names if name)
    place = {name: code for code, name in enumerate(ordered)}
    again = np.array([place.get(name or "", -1) for name in names], np.int32)
    return Codes(again[codes] if len(codes) else codes, ordered)
