"""Rows with the highest and lowest values of a column, and rows on both sides of a filter's threshold."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curate.columns import KEY
from curate.tables.digests import key_texts
from curate.tables.keys import rows_with_keys
from curate.tables.needs import Needs, default_column
from curate.tables.rows import read_rows
from curate.tables.table import Table
from scoring.errors import InputError

RANK = "rank"  # rank of a pick in a batch, from 1
N_SIDE = 20  # rows of each side of a cut
KEEP, DROP = "keep", "drop"  # as they are in decisions


@dataclass(frozen=True)
class Extremes:
    """Row indices with the highest values first, and with the lowest first; of ``n`` rows with a value."""

    column: str
    top: list[int]
    bottom: list[int]
    n: int


@dataclass(frozen=True)
class Cut:
    """Rows on both sides of a filter's threshold.

    Attributes:
        dropped: indices of dropped rows, nearest to the threshold first.
        kept: indices of kept rows, nearest to the threshold first.
        n_dropped: number of dropped rows.
        n_kept: number of kept rows.
        decision: row index -> decision, for these and the requested rows.
    """

    dropped: list[int]
    kept: list[int]
    n_dropped: int
    n_kept: int
    decision: dict[int, str]


def extremes(table: Table, column: str | None, *, top: int, bottom: int) -> Extremes:
    """Return the ends of a column, without missing values; ties go to the earlier row.

    Args:
        table: any table.
        column: of numbers; None for the default score, or the rank in a table without a score.
        top: rows at the high end, >= 0; in a small table, each row is only at one end.
        bottom: rows at the low end, >= 0.

    Raises:
        InputError: if there is no such column of numbers.
    """
    name = column or (RANK if _has_rank_alone(table) else default_column(table))
    needs = Needs(numbers=(name,), keys=False, advice="choose another --column")
    values = read_rows(table, needs).numbers[name]
    rows = np.flatnonzero(~np.isnan(values))
    order = rows[np.argsort(values[rows], kind="stable")]
    descending = rows[np.argsort(-values[rows], kind="stable")]
    top = 0 if name == RANK and column is None else top
    top = min(top, max(len(rows) - bottom, (len(rows) + 1) // 2))  # each row once, balanced between both ends
    bottom = min(bottom, len(rows) - top)
    return Extremes(name, descending[:top].tolist(), order[:bottom].tolist(), len(rows))


def around_cut(table: Table, decisions: Table, rows: Sequence[int]) -> Cut:
    """Return the rows nearest to the threshold of a filter, on either side.

    Args:
        table: the filtered table.
        decisions: of that filter.
        rows: further rows to return the decision of.

    Raises:
        InputError: if the decisions belong to another table, or not to a filter.
    """
    decisions.require([KEY, "decision", "margin"])
    read = decisions.read([KEY, "decision", "margin"])
    keys, decision = key_texts(read[KEY], decisions.path), np.asarray(read["decision"].to_pylist(), object)
    margin = read["margin"].to_numpy().astype(np.float64)
    sides = {}
    for name, sign in ((DROP, -1), (KEEP, 1)):
        judged = np.flatnonzero((decision == name) & ~np.isnan(margin))
        sides[name] = judged[np.argsort(sign * margin[judged], kind="stable")][:N_SIDE].tolist()
    near = [*sides[DROP], *sides[KEEP]]
    row_of = rows_with_keys(table, [keys[at] for at in near])
    by_key = dict(zip(keys, decision.tolist(), strict=True))
    all_rows = [*rows, *row_of.values()]
    named = (
        dict(zip(all_rows, key_texts(table.take(all_rows, [KEY]).column(0), table.path), strict=True))
        if all_rows
        else {}
    )
    if len(row_of) < len(near) or any(key not in by_key for key in named.values()):
        raise InputError(f"expected the decisions of {table.path}, got decisions of other rows in {decisions.path}")
    counts = Counter(decision.tolist())
    return Cut(
        dropped=[row_of[keys[at]] for at in sides[DROP]],
        kept=[row_of[keys[at]] for at in sides[KEEP]],
        n_dropped=counts[DROP],
        n_kept=counts[KEEP],
        decision={row: by_key[key] for row, key in named.items()},
    )


def _has_rank_alone(table: Table) -> bool:
    names = table.schema.names
    return RANK in names and not any(name.startswith(("kappa_", "unc_")) for name in names)
