"""What deduplication needs to know of a table, read once: contents, representations, and what decides who stays."""

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE, STATUS
from curate.decisions import is_ok
from curate.digests import RowDigest, key_bytes, plain, tie_breaks
from curate.models import model_of, signature_of
from curate.signatures import signature_matrix
from curate.table import Table, embedding_matrix
from curate.where import parse_condition
from scoring.errors import InputError

IN_MEMORY = 2 << 30  # bytes of one kind of vectors; more of them live in a file that is gone when the run is


@dataclass
class Rows:
    """N rows of a table, as arrays.

    Attributes:
        ok: shape (N,) bool, whether the image was scored.
        ties: shape (N,) uint64, hash of the key.
        texts: columns of text kept whole, such as ``sha256``, by name.
        phash: shape (N,) uint64; None where not read, as are the next two.
        signature: shape (N, 255) int8; zero rows have none.
        embedding: shape (N, D) float16 or float32; rows without one, or with one that is zero or not finite, are zero.
        numbers: columns of numbers, shape (N,) float64, NaN where without a value.
        present: columns, shape (N,) bool: whether there is a value.
        protected: shape (N,) bool, or None.
        odd: what was found on the way and is no error: sentence -> rows.
        model: digest of the model that made the embeddings; empty where the table does not say.
        digest: of the key, the status and all columns read.
    """

    ok: NDArray[np.bool_]
    ties: NDArray[np.uint64]
    texts: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    phash: NDArray[np.uint64] | None = None
    has_phash: NDArray[np.bool_] | None = None
    signature: NDArray[np.int8] | None = None
    embedding: NDArray[np.floating] | None = None
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    present: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    protected: NDArray[np.bool_] | None = None
    odd: dict[str, int] = field(default_factory=dict)
    model: str = ""
    digest: str = ""

    def __len__(self) -> int:
        return len(self.ok)


@dataclass(frozen=True)
class Needs:
    """Which columns to read, and as what."""

    representations: frozenset[str]  # of sha256, phash, signature, embedding
    numbers: tuple[str, ...] = ()
    present: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    protect: str | None = None

    def columns(self, table: Table) -> list[str]:
        """Return the columns to read, key first.

        Raises:
            InputError: for one that the table lacks, or one of the wrong type.
        """
        condition = parse_condition(self.protect, table.schema).columns if self.protect else ()
        names = [KEY, *([STATUS] if STATUS in table.schema.names else []), *sorted(self.representations)]
        names += [*self.numbers, *self.present, *self.texts, *condition]
        table.require(names)
        for name in self.numbers:
            kind = table.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise InputError(
                    f"expected numbers in column {name!r} of {table.path}, got {kind}; name another column"
                )
        return list(dict.fromkeys(names))


def read_rows(table: Table, needs: Needs) -> Rows:
    """Read what deduplication needs, in one pass and in batches.

    Raises:
        InputError: for a column that is missing or of the wrong type, a null key, or embeddings or signatures of more
            than one kind.
    """
    names = needs.columns(table)
    rows = collect(table.batches(names), table.schema, table.n_rows, needs, names, table.path)
    rows.model = model_of(table) if EMBEDDING in needs.representations else ""
    if SIGNATURE in needs.representations:
        signature_of(table)
    return rows


def collect(
    batches: Iterable[pa.RecordBatch], schema: pa.Schema, n: int, needs: Needs, names: Sequence[str], path: Path
) -> Rows:
    """Return what ``needs`` asks for, of n rows that come in batches with at least the columns ``names``.

    Args:
        batches: n rows in all.
        schema: theirs.
        n: rows.
        needs: what to read.
        names: columns that count in the digest, key first.
        path: of the table, for messages.
    """
    condition = parse_condition(needs.protect, schema) if needs.protect else None
    digest = RowDigest(pa.schema([schema.field(name) for name in names]), whole=needs.representations)
    rows = Rows(np.zeros(n, bool), np.zeros(n, np.uint64), protected=np.zeros(n, bool) if condition else None)
    texts = dict.fromkeys([*needs.texts, *(["sha256"] if "sha256" in needs.representations else [])])
    pieces: dict[str, list[pa.Array]] = {name: [] for name in texts}
    rows.numbers = {name: np.empty(n) for name in needs.numbers}
    rows.present = {name: np.zeros(n, bool) for name in needs.present}
    start = 0
    for batch in batches:
        here = slice(start, start + batch.num_rows)
        keys = key_bytes(batch.column(KEY))
        digest.update(keys, batch)
        rows.ties[here] = tie_breaks(keys)
        rows.ok[here] = is_ok(plain(batch.column(STATUS))) if STATUS in names else True
        for name, parts in pieces.items():
            parts.append(plain(batch.column(name)).cast(pa.large_string()))
        for name, values in rows.numbers.items():
            values[here] = pc.cast(batch.column(name), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        for name, there in rows.present.items():
            there[here] = batch.column(name).is_valid().to_numpy(zero_copy_only=False)
        if condition is not None and rows.protected is not None:
            rows.protected[here] = pc.fill_null(condition(batch), False).to_numpy(zero_copy_only=False)
        _representations(path, rows, needs, batch, here)
        start += batch.num_rows
    rows.texts = {name: pa.chunked_array(parts, pa.large_string()) for name, parts in pieces.items()}
    rows.digest = digest.hexdigest()
    if rows.embedding is not None:
        _note_odd(rows)
    return rows


def _representations(path: Path, rows: Rows, needs: Needs, batch: pa.RecordBatch, here: slice) -> None:
    n = len(rows)
    if "phash" in needs.representations:
        column = batch.column("phash")
        if not pa.types.is_integer(column.type):
            raise InputError(f"expected a `phash` column of whole numbers in {path}, got {column.type}")
        if rows.phash is None or rows.has_phash is None:
            rows.phash, rows.has_phash = np.zeros(n, np.uint64), np.zeros(n, bool)
        bits = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        rows.phash[here] = bits.astype(np.uint64) if column.type.bit_width == 64 else bits
        rows.has_phash[here] = column.is_valid().to_numpy(zero_copy_only=False)
    if SIGNATURE in needs.representations:
        if rows.signature is None:
            rows.signature = space(n, 255, np.dtype(np.int8))
        rows.signature[here] = signature_matrix(batch.column(SIGNATURE))
    if EMBEDDING in needs.representations:
        matrix = embedding_matrix(batch.column(EMBEDDING))
        if rows.embedding is None:
            rows.embedding = space(n, matrix.shape[1], np.dtype(np.float16 if matrix.itemsize == 2 else np.float32))
        if matrix.shape[1] != rows.embedding.shape[1]:
            raise InputError(
                f"expected embeddings of one length in {path}, got {rows.embedding.shape[1]} and {matrix.shape[1]}"
            )
        rows.embedding[here] = matrix


def space(n: int, width: int, kind: np.dtype) -> NDArray:
    """Return zeros, shape (n, width): in memory or, where they are many, in a file without a name."""
    if n * width * kind.itemsize <= IN_MEMORY:
        return np.zeros((n, width), kind)
    with tempfile.TemporaryFile() as file:  # the mapping keeps it alive
        return np.memmap(file, kind, "w+", shape=(n, width))


def _note_odd(rows: Rows, block: int = 65536) -> None:
    """Zero the embeddings that are not finite; count those of scored rows that cannot be compared."""
    n_zero = n_wild = 0
    for start in range(0, len(rows), block):
        part = rows.embedding[start : start + block]  # type: ignore[index]
        ok = rows.ok[start : start + block]
        wild = ~np.isfinite(part).all(1)
        if wild.any():
            part[wild] = 0
        n_wild += int((wild & ok).sum())
        n_zero += int((ok & ~wild & ~part.any(1)).sum())
    if n_wild:
        rows.odd["an embedding that is missing, NaN or infinite"] = n_wild
    if n_zero:
        rows.odd["an embedding of zeros"] = n_zero
