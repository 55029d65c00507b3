"""Differences of each column between two samples: numbers by their distributions, other values by their shares."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, ERROR, KEY, MTIME, SIGNATURE, THUMBNAIL, URI
from curate.comparison.results import NUMBERS, VALUES, ColumnShift, ValueShare
from curate.comparison.sample import TableSample
from curate.statistics.two_sample import (
    Units,
    holm,
    kolmogorov_smirnov,
    standardised_difference,
    total_variation,
    units,
)
from curate.tables.arrays import numbers_of
from curate.tables.digests import plain
from curate.tables.needs import PHASH, SHA256, is_number, is_plain
from scoring.relative.columns import CLUSTER, UNLIKE

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
    values = np.concatenate([_floats(part) for part in parts])
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


def _floats(part: pa.Array) -> NDArray[np.float64]:
    """Return numbers, or times as numbers, with NaN for null."""
    if pa.types.is_temporal(part.type):
        small = pa.types.is_date32(part.type) or pa.types.is_time32(part.type)
        part = part.cast(pa.int32() if small else pa.int64())
    return numbers_of(part)


def _missing(is_known: NDArray[np.bool_], is_b: NDArray[np.bool_]) -> tuple[float, float]:
    return float(1 - is_known[~is_b].mean()), float(1 - is_known[is_b].mean())
