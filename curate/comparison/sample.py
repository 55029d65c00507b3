"""The compared rows of two tables, and which of them show the same image."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, STATUS
from curate.counted import counted
from curate.statistics.two_sample import Counts
from curate.tables.arrays import is_ok
from curate.tables.digests import plain
from curate.tables.images import drawn_rows
from curate.tables.needs import SHA256
from curate.tables.table import Table, embedding_matrix
from curate.tables.vectors import shortened, unit_rows, vector_hashes
from scoring.errors import InputError

FEWEST_ROWS = 20


@dataclass(frozen=True)
class TableSample:
    """Sampled rows of one table.

    Attributes:
        table: their table.
        index: row numbers in the table, ascending, shape (N,).
        columns: the columns read, N rows.
    """

    table: Table
    index: NDArray[np.int64]
    columns: pa.Table

    def __len__(self) -> int:
        return len(self.index)


def sampled(table: Table, columns: Sequence[str], n: int, *, seed: int) -> TableSample:
    """Return up to n rows with the lowest hash of their key (or number, without keys), in table order.

    Memory: a batch, and the columns of n rows.

    Raises:
        InputError: if the table has fewer than ``FEWEST_ROWS`` rows.
    """
    if table.n_rows < FEWEST_ROWS:
        raise InputError(
            f"expected at least {FEWEST_ROWS} rows to compare in {table.path}, got {table.n_rows}; pass a larger table"
        )
    index = np.arange(table.n_rows)
    if n < table.n_rows:
        index = np.sort(drawn_rows(table, n, seed=seed, scored=False))
    return TableSample(table, index, table.take(index, list(columns)))


def key_notes(sample: TableSample) -> list[str]:
    """Return notes on unusual keys of a sample, one sentence each: no keys, some null, some equal.

    Rows are sampled by the hashes of their keys, so a sample contains equal keys together.
    """
    path, n = sample.table.path, len(sample)
    if KEY not in sample.columns.column_names:
        return [f"{path} has no column {KEY!r}: its rows are sampled, and identified, by their numbers"]
    keys = plain(sample.columns[KEY].combine_chunks())
    if pa.types.is_nested(keys.type):
        return []
    notes = []
    if keys.null_count:
        notes.append(f"{path}: {keys.null_count:,} of {counted(n, 'row')} compared without a key")
    twice = len(keys) - keys.null_count - pc.count_distinct(keys, mode="only_valid").as_py()
    if twice:
        notes.append(f"{path}: {twice:,} of {counted(n, 'row')} compared with a key that is not unique")
    return notes


def contents(samples: Sequence[TableSample]) -> NDArray[np.int64]:
    """Return an image number for each row of both samples, shape (M,): equal for equal images.

    Images are equal if their ``sha256`` is, or without it if their embeddings are bit-identical; a row with neither is
    unique.
    """
    names = [set(sample.columns.column_names) for sample in samples]
    n = sum(map(len, samples))
    if all(SHA256 in columns for columns in names):
        digests = [plain(sample.columns[SHA256].combine_chunks()).cast(pa.string()) for sample in samples]
        ranks = pl.Series(pa.chunked_array(digests), dtype=pl.String).rank("dense")  # independent of the order of rows
        codes = (ranks.cast(pl.Int64).fill_null(0) - 1).to_numpy(writable=True)
    elif all(EMBEDDING in columns for columns in names):
        vectors = [embedding_matrix(sample.columns[EMBEDDING]) for sample in samples]
        hashes = np.concatenate([vector_hashes(each) for each in vectors])
        codes = np.unique(hashes, return_inverse=True)[1].astype(np.int64)
        codes[~np.concatenate([np.isfinite(each).all(1) for each in vectors])] = -1
    else:
        codes = np.full(n, -1)
    is_unknown = codes < 0
    codes[is_unknown] = codes.max(initial=-1) + 1 + np.arange(is_unknown.sum())
    return codes


@dataclass(frozen=True)
class Items:
    """The distinct images of both samples that have an embedding, in an order independent of the sides.

    Attributes:
        vectors: float32, unit length, shape (N, D).
        counts: number of rows of each sample that show each image.
        of_row: item number of each row of both samples, shape (M,); -1 without an embedding.
    """

    vectors: NDArray[np.float32]
    counts: Counts
    of_row: NDArray[np.int64]


def items(samples: Sequence[TableSample], content: NDArray[np.int64], *, seed: int) -> Items | str:
    """Return the distinct embedded images of two samples, or why embeddings cannot be compared.

    Raises:
        InputError: if embeddings have different lengths.
    """
    for sample in samples:
        if EMBEDDING not in sample.columns.column_names:
            return f"{sample.table.path} has no embedding column"
    parts = [embedding_matrix(sample.columns[EMBEDDING]) for sample in samples]
    widths = [part.shape[1] for part in parts if part.shape[1]]
    if len(set(widths)) > 1:
        raise InputError(
            f"expected embeddings of one length, got {widths[0]} in {samples[0].table.path} and {widths[1]} in "
            f"{samples[1].table.path}; score both with one model"
        )
    vectors, is_usable = [], []
    for sample, part in zip(samples, parts, strict=True):
        scored = np.ones(len(sample), bool)
        if STATUS in sample.columns.column_names:
            scored = is_ok(sample.columns[STATUS].combine_chunks())
        usable = scored & np.isfinite(part).all(1) & part.any(1)
        if usable.sum() < FEWEST_ROWS:
            return (
                f"{sample.table.path} has {usable.sum():,} rows with an embedding, and at least "
                f"{FEWEST_ROWS} are needed"
            )
        vectors.append(unit_rows(shortened(part[usable]) if part.itemsize > 4 else part[usable]))
        is_usable.append(usable)
    usable = np.concatenate(is_usable)
    is_b = np.repeat([False, True], [len(each) for each in samples])[usable]
    _, first, code = np.unique(content[usable], return_index=True, return_inverse=True)
    place = np.random.default_rng([seed, 3]).permutation(
        len(first)
    )  # otherwise the first table's rows would come first
    code = np.argsort(place)[code]
    of_row = np.full(len(usable), -1)
    of_row[usable] = code
    b = np.bincount(code[is_b], minlength=len(first))
    return Items(np.concatenate(vectors)[first[place]], Counts(np.bincount(code, minlength=len(first)) - b, b), of_row)
