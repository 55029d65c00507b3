"""Samples of two tables, the images in both, and the differences of each column between them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, ERROR, KEY, MTIME, SIGNATURE, STATUS, THUMBNAIL, URI
from curate.counted import counted
from curate.evaluation.comparison.results import NUMBERS, VALUES, ColumnShift, ValueShare
from curate.statistics.two_sample import (
    Counts,
    Units,
    holm,
    kolmogorov_smirnov,
    standardised_difference,
    total_variation,
    units,
)
from curate.tables.arrays import is_ok, numbers_of
from curate.tables.digests import plain
from curate.tables.images import drawn_rows
from curate.tables.needs import PHASH, SHA256, is_number, is_plain
from curate.tables.table import Table, embedding_matrix
from curate.tables.vectors import shortened, unit_rows, vector_hashes
from scoring.errors import InputError
from scoring.relative.columns import CLUSTER, UNLIKE

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


ROW_NAMING = frozenset(
    {KEY, URI, ERROR, SHA256, PHASH, SIGNATURE, THUMBNAIL, EMBEDDING, MTIME}
)  # columns that identify a row or its file
GROUP_NUMBERS = frozenset({CLUSTER, UNLIKE})  # group numbers, which differ between fits
MOST_VALUES = 10_000
N_MOVED = 3
PERMUTATIONS_A_COLUMN = 40  # minimum, so that one of many columns can be significant
ENOUGH = 50  # permutations reaching the distance, after which p is accurate enough
NO_VALUE = "no value"


def unlike(first: pa.DataType, second: pa.DataType, *, classes: bool) -> str:
    """Return why columns of these two types are not compared; empty if they are.

    ``classes`` states whether numbers represent classes.
    """
    kinds = {is_number(kind) or pa.types.is_temporal(kind) for kind in (first, second)}
    if not all(is_plain(kind) for kind in (first, second)):
        return f"holds {first if not is_plain(first) else second}"
    if len(kinds) > 1 and not classes:
        return f"is {first} in one table and {second} in the other"
    return ""


def names_rows(parts: Sequence[pa.Array]) -> str:
    """Return why a column of values that identify single rows is not compared; empty if it is."""
    for part in parts:
        n = 0 if pa.types.is_null(part.type) else pc.count_distinct(part).as_py()
        if 2 * n > len(part):
            return f"has {n:,} values in {len(part):,} rows, so it identifies rows rather than groups them"
    return ""


def shifts(
    samples: Sequence[TableSample],
    names: Sequence[str],
    content: NDArray[np.int64],
    label: str | None,
    *,
    repeats: int,
    seed: int,
) -> tuple[list[ColumnShift], dict[str, str]]:
    """Return the differences of columns, most significant first, and why others were not compared, by column.

    Args:
        samples: of both tables.
        names: columns that both have.
        content: image number of each row of both samples.
        label: column whose numbers represent classes.
        repeats: minimum number of permutations of a test.
        seed: of the permutations.
    """
    is_b = np.repeat([False, True], [len(each) for each in samples])
    repeats = max(repeats, PERMUTATIONS_A_COLUMN * len(names))
    compared, left_out = [], {}
    for name in names:
        parts = [plain(each.columns[name].combine_chunks()) for each in samples]
        numeric = name not in (label, *GROUP_NUMBERS) and all(
            is_number(p.type) or pa.types.is_temporal(p.type) for p in parts
        )
        compare = _numbers if numeric else _values
        shift = (
            unlike(parts[0].type, parts[1].type, classes=name == label)
            or (not numeric and name != label and names_rows(parts))
            or compare(name, parts, content, is_b, repeats=repeats, seed=seed)
        )
        if isinstance(shift, str):
            left_out[name] = shift
        else:
            compared.append(shift)
    adjusted = holm(np.array([each.p for each in compared]))
    compared = [replace(each, adjusted_p=float(p)) for each, p in zip(compared, adjusted, strict=True)]
    return sorted(compared, key=lambda each: (each.adjusted_p, -each.distance, each.name)), left_out


def _numbers(
    name: str, parts: list[pa.Array], content: NDArray[np.int64], is_b: NDArray[np.bool_], *, repeats: int, seed: int
) -> ColumnShift | str:
    kinds = {part.type: pa.int64() if part.type.bit_width == 64 else pa.int32() for part in parts}
    numbers = [part.cast(kinds[part.type]) if pa.types.is_temporal(part.type) else part for part in parts]
    values = np.concatenate([numbers_of(part) for part in numbers])  # times as numbers
    is_known = ~np.isnan(values)
    if not is_known[is_b].any() or not is_known[~is_b].any():
        return "has no value in one of the tables" if is_known.any() else "has no value in either table"
    of = units(values[is_known], content[is_known], is_b[is_known])
    tested = kolmogorov_smirnov(of, repeats=repeats, seed=seed, enough=ENOUGH)
    p = float(tested.p)
    if not is_known.all():  # the shares of missing values may differ too
        known = total_variation(units(is_known, content, is_b), repeats=repeats, seed=seed, enough=ENOUGH)
        p = min(1.0, 2 * min(p, float(known.p)))
    first, second = values[is_known & ~is_b], values[is_known & is_b]
    with np.errstate(invalid="ignore", over="ignore"):
        means = float(first.mean()), float(second.mean())
    standardised = standardised_difference(values[is_known], is_b[is_known])
    return ColumnShift(
        name, NUMBERS, float(tested.value), p, p, _missing(is_known, is_b), means=means, standardised=standardised
    )


def _values(
    name: str, parts: list[pa.Array], content: NDArray[np.int64], is_b: NDArray[np.bool_], *, repeats: int, seed: int
) -> ColumnShift | str:
    texts = pl.concat([pl.Series(part.cast(pa.large_string()), dtype=pl.String) for part in parts])
    values = texts.drop_nulls().unique().sort()  # independent of the order of rows
    if len(values) > MOST_VALUES:
        return f"has {len(values):,} values, more than the {MOST_VALUES:,} that can be compared"
    codes = texts.cast(pl.Enum(values)).to_physical().cast(pl.Int64).fill_null(len(values)).to_numpy()
    of = units(codes, content, is_b)
    tested = total_variation(of, repeats=repeats, seed=seed, enough=ENOUGH)
    is_known = codes < len(values)
    p = float(tested.p)
    return ColumnShift(
        name, VALUES, float(tested.value), p, p, _missing(is_known, is_b), moved=_changes(of, [*values, NO_VALUE])
    )


def _changes(of: Units, names: list[str]) -> tuple[ValueShare, ...]:
    """Return the values whose shares differ most."""
    first, second = of.shares()
    most = np.argsort(-np.abs(second - first), kind="stable")[:N_MOVED]
    codes = of.values.astype(np.int64)
    return tuple(
        ValueShare(names[codes[place]], float(first[place]), float(second[place]))
        for place in most.tolist()
        if first[place] != second[place]
    )


def _missing(is_known: NDArray[np.bool_], is_b: NDArray[np.bool_]) -> tuple[float, float]:
    return float(1 - is_known[~is_b].mean()), float(1 - is_known[is_b].mean())
