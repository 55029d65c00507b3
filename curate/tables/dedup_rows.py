"""What deduplication needs to know of a table, read once: contents, representations, and what decides who stays."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, SIGNATURE, STATUS
from curate.tables.digests import RowDigest, is_text, key_bytes, plain, tie_breaks
from curate.tables.gather import is_ok
from curate.tables.provenance import model_of, signature_of
from curate.tables.signatures import signature_matrix
from curate.tables.table import Table
from curate.tables.vectors import BLOCK, Embeddings, space
from curate.tables.where import Condition, parse_condition
from scoring.errors import InputError


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

    def compared(self) -> NDArray[np.int64]:
        """Return the rows whose embeddings can be compared: of scored images, and not zero; ascending."""
        if self.embedding is None:
            raise ValueError("rows were read without embedding")
        has = np.zeros(len(self), bool)
        for start in range(0, len(self), BLOCK):
            has[start : start + BLOCK] = self.embedding[start : start + BLOCK].any(1)
        return np.flatnonzero(has & self.ok)


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
        condition = _protection(self.protect, table.schema).columns if self.protect else ()
        names = [KEY, *([STATUS] if STATUS in table.schema.names else []), *sorted(self.representations)]
        names += [*self.numbers, *self.present, *self.texts, *condition]
        table.require(names)
        for name in self.numbers:
            kind = table.schema.field(name).type
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise InputError(
                    f"expected numbers in column {name!r} of {table.path}, got {kind}; name another column"
                )
        for name in [*self.texts, *({STATUS, "sha256"} & set(names))]:
            kind = table.schema.field(name).type
            if not is_plain(kind) or (name == STATUS and not is_text(kind)):
                raise InputError(
                    f"expected text in column {name!r} of {table.path}, got {kind}; name another column, or rename it"
                )
        return list(dict.fromkeys(names))


def is_plain(kind: pa.DataType) -> bool:
    """Return whether values of an Arrow type can be read as text, which lists and bytes cannot."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
    return not (binary or pa.types.is_binary_view(kind) or pa.types.is_nested(kind))


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
    condition = _protection(needs.protect, schema) if needs.protect else None
    digest = RowDigest(pa.schema([schema.field(name) for name in names]), whole=needs.representations)
    rows = Rows(np.zeros(n, bool), np.zeros(n, np.uint64), protected=np.zeros(n, bool) if condition else None)
    texts = dict.fromkeys([*needs.texts, *(["sha256"] if "sha256" in needs.representations else [])])
    pieces: dict[str, list[pa.Array]] = {name: [] for name in texts}
    rows.numbers = {name: np.empty(n) for name in needs.numbers}
    rows.present = {name: np.zeros(n, bool) for name in needs.present}
    _make_room(rows, schema, needs, path)
    embeddings = Embeddings(n, path) if EMBEDDING in needs.representations else None
    start = 0
    for batch in batches:
        here = slice(start, start + batch.num_rows)
        keys = key_bytes(batch.column(KEY), path, start)
        digest.update(keys, batch)
        rows.ties[here] = tie_breaks(keys)
        rows.ok[here] = is_ok(plain(batch.column(STATUS))) if STATUS in names else True
        for name, parts in pieces.items():
            parts.append(_texts(batch.column(name)))
        for name, values in rows.numbers.items():
            values[here] = pc.cast(batch.column(name), pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        for name, there in rows.present.items():
            there[here] = has_value(batch.column(name)).to_numpy(zero_copy_only=False)
        if condition is not None and rows.protected is not None:
            rows.protected[here] = pc.fill_null(condition(batch), False).to_numpy(zero_copy_only=False)
        _representations(rows, batch, here)
        if embeddings is not None:
            embeddings.add(batch.column(EMBEDDING), here)
        start += batch.num_rows
    rows.texts = {name: pa.chunked_array(parts, pa.large_string()) for name, parts in pieces.items()}
    rows.digest = digest.hexdigest()
    if embeddings is not None:
        rows.embedding, rows.odd = embeddings.done(rows.ok)
    return rows


def has_value(column: pa.Array) -> pa.BooleanArray:
    """Return whether there is a value: not null, not NaN, and not a text without a letter, as of an empty CSV cell."""
    values = plain(column)
    if is_text(values.type):
        return pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(values), ""), False)
    return pc.invert(pc.is_null(values, nan_is_null=True))


def _texts(column: pa.Array) -> pa.Array:
    """Values as text; null where there is none, so that two rows without one are not the same."""
    return pc.if_else(has_value(column), plain(column).cast(pa.large_string()), pa.scalar(None, pa.large_string()))


def _protection(text: str, schema: pa.Schema) -> Condition:
    try:
        return parse_condition(text, schema)
    except InputError as error:
        raise InputError(str(error).replace("--where", "--protect", 1)) from None


def _make_room(rows: Rows, schema: pa.Schema, needs: Needs, path: Path) -> None:
    """Arrays for what is compared, but for embeddings."""
    n = len(rows)
    if "phash" in needs.representations:
        kind = schema.field("phash").type
        if not pa.types.is_integer(kind):
            raise InputError(
                f"expected a `phash` column of whole numbers in {path}, got {kind}; score the images again"
            )
        rows.phash, rows.has_phash = np.zeros(n, np.uint64), np.zeros(n, bool)
    if SIGNATURE in needs.representations:
        rows.signature = space(n, 255, np.dtype(np.int8))


def _representations(rows: Rows, batch: pa.RecordBatch, here: slice) -> None:
    if rows.phash is not None and rows.has_phash is not None:
        column = batch.column("phash")
        bits = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
        rows.phash[here] = bits.astype(np.uint64) if column.type.bit_width == 64 else bits
        rows.has_phash[here] = column.is_valid().to_numpy(zero_copy_only=False)
    if rows.signature is not None:
        rows.signature[here] = signature_matrix(batch.column(SIGNATURE))
