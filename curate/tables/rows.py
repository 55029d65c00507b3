"""What choosing needs to know of a table: its rows in the order of the hashes of their keys, as arrays."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, STATUS
from curate.tables.digests import RowDigest, is_text, key_bytes, plain, tie_breaks
from curate.tables.gather import check_unique, is_ok
from curate.tables.provenance import model_of
from curate.tables.table import Table, embedding_matrix
from curate.tables.vectors import shortened, space
from curate.tables.where import Condition, parse_condition
from scoring.errors import InputError

NO_EMBEDDING = "an embedding that is missing, NaN or infinite"
ZERO_EMBEDDING = "an embedding of zeros"


@dataclass(frozen=True)
class Needs:
    """Which columns to read, and as what.

    Attributes:
        vectors: whether embeddings are read.
        numbers: columns of numbers.
        texts: columns whose values are names: classes, groups.
        condition: which rows it holds for, or None.
    """

    vectors: bool = False
    numbers: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    condition: str | None = None


@dataclass
class Codes:
    """A column of names: shape (N,) int32 codes, -1 for null, and the names of the codes."""

    codes: NDArray[np.int32]
    names: list[str] = field(default_factory=list)


@dataclass
class Rows:
    """N rows of a table, sorted by the hash of their keys.

    Attributes:
        place: row of the table, shape (N,) int64.
        hashes: of the keys, shape (N,) uint64, ascending.
        ok: shape (N,) bool, whether the image was scored.
        vectors: shape (N, D), float16 or float32; zero where there is no usable embedding; None where not read.
        odd: what is wrong with an embedding, shape (N,) uint8: 0 nothing, else 1 + its place in ``ODD``.
        numbers: columns of numbers, shape (N,) float64, NaN without a finite value.
        texts: columns of names.
        truths: where the condition holds, shape (N,) bool; None without one.
        digest: of the key, the status and all columns read.
        model: digest of the model that made the embeddings; empty where the table does not say.
    """

    place: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    ok: NDArray[np.bool_]
    vectors: NDArray[np.floating] | None = None
    odd: NDArray[np.uint8] = field(default_factory=lambda: np.zeros(0, np.uint8))
    numbers: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    texts: dict[str, Codes] = field(default_factory=dict)
    truths: NDArray[np.bool_] | None = None
    digest: str = ""
    model: str = ""

    def __len__(self) -> int:
        return len(self.place)

    def find(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of each hash of a key, shape (M,); -1 where there is none."""
        if not len(self.hashes):
            return np.full(len(hashes), -1)
        at = np.searchsorted(self.hashes, hashes).clip(max=len(self.hashes) - 1)
        return np.where(self.hashes[at] == hashes, at, -1)


ODD = (NO_EMBEDDING, ZERO_EMBEDDING)


def read_rows(table: Table, needs: Needs) -> Rows:
    """Read what choosing needs, in two passes: the keys, then everything, each row to where its key belongs.

    Memory: the embeddings (in a file where they are more than 2 GB) and some 100 bytes a row.

    Raises:
        InputError: for a column that is missing or of the wrong type, or a null or repeated key.
    """
    names = _columns(table, needs)
    hashes = _hashes(table)
    check_unique(table, hashes)
    order = np.argsort(hashes, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    n = len(order)
    rows = Rows(order, hashes[order], np.ones(n, bool), odd=np.zeros(n, np.uint8))
    rows.numbers = {name: np.empty(n) for name in needs.numbers}
    rows.texts = {name: Codes(np.empty(n, np.int32)) for name in needs.texts}
    known: dict[str, dict[str, int]] = {name: {} for name in needs.texts}
    condition = _condition(table, needs)
    rows.truths = np.zeros(n, bool) if condition else None
    digest = RowDigest(pa.schema([table.schema.field(name) for name in names]), whole=[EMBEDDING])
    start = 0
    for batch in table.batches(names):
        to = rank[start : start + batch.num_rows]
        if len(to) != batch.num_rows:
            raise InputError(f"{table.path} changed while it was being read; run the command again")
        digest.update(key_bytes(batch.column(KEY)), batch)
        if STATUS in names:
            rows.ok[to] = is_ok(plain(batch.column(STATUS)))
        for name, values in rows.numbers.items():
            values[to] = _finite(batch.column(name))
        for name, codes in rows.texts.items():
            codes.codes[to] = _codes(batch.column(name), known[name])
        if condition is not None and rows.truths is not None:
            rows.truths[to] = pc.fill_null(condition(batch), False).to_numpy(zero_copy_only=False)
        if needs.vectors:
            _add_vectors(table, rows, to, batch.column(EMBEDDING))
        start += batch.num_rows
    for name, codes in rows.texts.items():
        _sort_names(codes, list(known[name]))
    rows.digest = digest.hexdigest()
    rows.model = model_of(table) if needs.vectors else ""
    return rows


def _condition(table: Table, needs: Needs) -> Condition | None:
    try:
        return parse_condition(needs.condition, table.schema) if needs.condition else None
    except InputError as error:
        raise InputError(str(error).replace("--where", "--labelled-where")) from None


def _columns(table: Table, needs: Needs) -> list[str]:
    if needs.vectors and EMBEDDING not in table.schema.names:
        raise InputError(
            f"{table.path} has no {EMBEDDING!r} column, and this strategy goes by how alike images are; score the "
            "images with embeddings, or choose by a column with --strategy score --score COLUMN"
        )
    condition = _condition(table, needs)
    names = [KEY, *([STATUS] if STATUS in table.schema.names else []), *([EMBEDDING] if needs.vectors else [])]
    names += [*needs.numbers, *needs.texts, *(condition.columns if condition else ())]
    table.require(names)
    if STATUS in names and not is_text(table.schema.field(STATUS).type):
        raise InputError(f"expected text in column {STATUS!r} of {table.path}, got {table.schema.field(STATUS).type}")
    for name in needs.numbers:
        kind = table.schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
            raise InputError(f"expected numbers in column {name!r} of {table.path}, got {kind}; name another column")
    for name in needs.texts:
        kind = table.schema.field(name).type
        if pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            raise InputError(
                f"expected names or numbers in column {name!r} of {table.path}, got {kind}; name another column"
            )
    return list(dict.fromkeys(names))


def _hashes(table: Table) -> NDArray[np.uint64]:
    hashes = np.empty(table.n_rows, np.uint64)
    start = 0
    for batch in table.batches([KEY]):
        hashes[start : start + batch.num_rows] = tie_breaks(key_bytes(batch.column(KEY), table.path, start))
        start += batch.num_rows
    return hashes


def _finite(column: pa.Array) -> NDArray[np.float64]:
    values = pc.cast(column, pa.float64(), safe=False).to_numpy(zero_copy_only=False).copy()
    values[~np.isfinite(values)] = np.nan
    return np.asarray(values, np.float64)


def _codes(column: pa.Array, known: dict[str, int]) -> NDArray[np.int32]:
    """Whole numbers for the values of a column, the same over all batches; -1 for null and for empty text."""
    encoded = plain(column).cast(pa.large_string()).dictionary_encode(null_encoding="encode")
    names = encoded.dictionary.to_pylist()
    codes = np.array([known.setdefault(name, len(known)) if name else -1 for name in names], np.int32)
    at = encoded.indices.to_numpy(zero_copy_only=False)
    return codes[at] if len(names) else np.zeros(0, np.int32)


def _sort_names(codes: Codes, names: list[str]) -> None:
    """Number the names in their own order, whatever row came first."""
    codes.names = sorted(names)
    place = {name: code for code, name in enumerate(codes.names)}
    again = np.array([*(place[name] for name in names), -1], np.int32)
    codes.codes[:] = again[codes.codes]


def _add_vectors(table: Table, rows: Rows, to: NDArray[np.int64], column: pa.Array) -> None:
    matrix = embedding_matrix(column)
    if rows.vectors is None:
        if not matrix.shape[1]:
            raise InputError(f"expected embeddings of at least one number in {table.path}, got none in any row")
        rows.vectors = space(len(rows), matrix.shape[1], np.dtype(np.float16 if matrix.itemsize == 2 else np.float32))
    if matrix.shape[1] != rows.vectors.shape[1]:
        raise InputError(
            f"expected embeddings of one length in {table.path}, got {rows.vectors.shape[1]} and {matrix.shape[1]}"
        )
    wild = ~np.isfinite(matrix).all(1)
    rows.odd[to] = np.where(wild, 1, np.where(matrix.any(1), 0, 2))
    if wild.any():
        matrix = np.where(wild[:, None], 0, matrix)
    rows.vectors[to] = matrix if matrix.itemsize < 8 else shortened(matrix)
