"""The rows that two tables share, why others are missing, and the columns in which shared rows differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from curate.columns import KEY
from curate.policies.chain import Link
from curate.policies.decided import KEEP, OUTCOMES
from curate.tables.arrays import unequal
from curate.tables.digests import key_array, plain, shown_keys, tie_breaks
from curate.tables.keys import check_unique, key_hashes, places, row_hashes
from curate.tables.table import Table, open_table

N_NAMED = 10
MOST_LOOKED_AT = 10_000  # maximum rows whose differences are listed
NOTED = ("decision", "reason", "rule")  # of the decisions
WHY = ("policy", *NOTED)


@dataclass(frozen=True)
class SharedRows:
    """The rows of two tables, matched by key.

    Attributes:
        pairs: row numbers in the first and in the second with equal keys, shape (M, 2), in the order of the first.
        only: for each table, row numbers missing in the other, ascending.
        hashes: for each table, the key hash of every row.
    """

    pairs: NDArray[np.int64]
    only: tuple[NDArray[np.int64], NDArray[np.int64]]
    hashes: tuple[NDArray[np.uint64], NDArray[np.uint64]]

    @property
    def in_order(self) -> bool:
        """Whether the shared rows are in the same order in both."""
        return bool((np.diff(self.pairs[:, 1]) > 0).all())


def shared_rows(first: Table, second: Table) -> SharedRows:
    """Match the rows of two tables by key, with 16 bytes per row in memory.

    Raises:
        InputError: for a null key, or a key that a table has twice.
    """
    hashes = key_hashes(first), key_hashes(second)
    for table, table_hashes in zip((first, second), hashes, strict=True):
        check_unique(table, table_hashes)
    place = places(*hashes)
    rows = np.flatnonzero(place >= 0)
    others = place[rows]
    missing = np.ones(len(hashes[1]), bool)
    missing[others] = False
    return SharedRows(np.stack([rows, others], axis=1), (np.flatnonzero(place < 0), np.flatnonzero(missing)), hashes)


def why_missing(hashes: NDArray[np.uint64], steps: Sequence[Link]) -> pl.DataFrame:
    """Return the first step that dropped each of M rows, by the hashes of their keys, shape (M,); nulls if none did.

    The columns are step (from 1), policy, decision, reason and rule.
    """
    rows = pl.DataFrame({"hash": hashes})
    met = [pl.DataFrame(schema={"hash": pl.UInt64, **dict.fromkeys(WHY, pl.String), "step": pl.Int32})]
    for number, step in enumerate(steps, 1):
        decisions = step.output("decisions")
        if decisions is None or not decisions.is_file() or not len(rows):
            continue
        for batch in open_table(decisions, require=[KEY, *NOTED]).batches([KEY, *NOTED]):
            columns = {name: pl.Series(plain(batch.column(name)), dtype=pl.String) for name in NOTED}
            noted = pl.DataFrame({"hash": tie_breaks(key_array(batch.column(KEY))), **columns})
            noted = noted.filter(pl.col("decision").is_in(OUTCOMES[KEEP + 1 :])).join(rows, on="hash", how="semi")
            about = {"step": pl.lit(number, pl.Int32), "policy": pl.lit(step.policy)}
            met.append(noted.with_columns(**about).select(met[0].columns))
    first = pl.concat(met).unique("hash", keep="first", maintain_order=True)
    return rows.join(first, on="hash", how="left", maintain_order="left").select("step", *WHY)


@dataclass(frozen=True)
class Values:
    """The differing values of shared rows.

    Attributes:
        rows: number of differing rows.
        looked_at: number of these that were compared column by column.
        columns: number of these that differ, by column, largest first.
        named: key, column, first and second value of the first differences.
    """

    rows: int
    looked_at: int
    columns: dict[str, int]
    named: list[tuple[str, str, Any, Any]]


def compare_values(first: Table, second: Table, shared: SharedRows, names: Sequence[str]) -> Values:
    """Compare the columns of shared rows, lists element by element; NaN equals NaN; needs 16 bytes per row."""
    rows = np.empty(0, np.int64)
    if names and len(shared.pairs):
        hashes = [
            row_hashes(table, dict(zip(names, names, strict=True)))[shared.pairs[:, side]]
            for side, table in enumerate((first, second))
        ]
        rows = np.flatnonzero(hashes[0] != hashes[1])
    pairs = shared.pairs[rows[:MOST_LOOKED_AT]]
    old_rows, new_rows = first.take(pairs[:, 0], [KEY, *names]), second.take(pairs[:, 1], [KEY, *names])
    columns: dict[str, int] = {}
    named: list[tuple[str, str, Any, Any]] = []
    keys = shown_keys(old_rows.column(KEY))
    for name in names:
        old, new = old_rows.column(name), new_rows.column(name)
        if differing := unequal(old, new):
            columns[name] = len(differing)
        for row in differing[: N_NAMED - len(named)]:
            named.append((keys[row], name, _short(old[row].as_py()), _short(new[row].as_py())))
    return Values(len(rows), len(pairs), dict(sorted(columns.items(), key=lambda each: -each[1])), named)


def compare_decisions(
    first: Table, second: Table, shared: SharedRows
) -> tuple[int, dict[str, int], list[tuple[str, str]]]:
    """Compare the decisions of shared rows, in memory.

    Returns:
        Number of rows whose decision, rule or reason differs; number of rows by both decisions and the second rule,
        largest first; key and second reason of the first rows, different decisions first.
    """
    names = [KEY, *NOTED]
    old, new = (
        pl.DataFrame(table.read(names))[shared.pairs[:, side]].with_columns(pl.col(NOTED).cast(pl.String))
        for side, table in enumerate((first, second))
    )
    both = pl.concat([old.drop(KEY).select(pl.all().name.suffix("_old")), new], how="horizontal")
    differs = pl.any_horizontal(pl.col(name).ne_missing(pl.col(f"{name}_old")) for name in NOTED)
    rule = pl.when(pl.col("rule").is_null()).then(pl.lit("")).otherwise(pl.concat_str(pl.lit(", "), "rule"))
    line = pl.format("{} | {}{}", "decision_old", "decision", rule)
    rows = both.filter(differs).sort(pl.col("decision") == pl.col("decision_old"), maintain_order=True)
    rows = rows.with_columns(line=line.fill_null("?"))
    counts = rows["line"].value_counts().sort("count", "line", descending=[True, False])
    named = rows.head(N_NAMED).select(
        pl.col(KEY).cast(pl.String), pl.format("{}: {}", "line", pl.col("reason").fill_null("?"))
    )
    return len(rows), dict(counts.iter_rows()), list(named.iter_rows())


def _short(value: Any) -> Any:
    """Return a value for display; of a list only its length."""
    return f"{len(value):,} values" if isinstance(value, list) else value
