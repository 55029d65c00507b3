"""Where a rule cuts, and on which side of the cut a row lies."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.policies.filter.even import even_best
from curate.policies.filter.ranked import best, best_of_groups
from curate.policies.filter.rule import ScoreRule
from curate.policies.filter.ruling import Ruling
from curate.tables.rows import Rows
from scoring.relative.columns import CLUSTER, FITTED, LOCAL
from scoring.relative.rule import PICTURE

Flags = NDArray[np.bool_]
MOST = Fraction(5, 4)  # times the average share that a class may lose by its junk; a cluster may be all junk


def judge_cut(rule: ScoreRule, bound: Fraction, table_rows: Rows, rows: slice, *, high: bool) -> Ruling:
    """Judge M rows in a row by a cut that is given, in the precision of each column.

    Args:
        rule: whose cut it is.
        bound: the cut.
        table_rows: with its columns.
        rows: which.
        high: whether values of at least the cut are kept, or of at most.
    """
    column = table_rows.exact[rule.column]
    values, valid = column.values[rows], column.valid[rows]
    cut = _in_type(bound, values.dtype, up=high)
    shown = _to_float(bound) if np.issubdtype(values.dtype, np.integer) else float(cut)
    return Ruling((values >= cut if high else values <= cut) & valid, valid, np.array([shown]))


def judge_rank(
    rule: ScoreRule, table_rows: Rows, rows: slice, inside: Flags, n_kept: Callable[[int], int], *, high: bool
) -> Ruling:
    """Keep the best ``n_kept(n)`` of each group's n rows that are in and have a value.

    Args:
        rule: an amount.
        table_rows: with its columns.
        rows: all of them.
        inside: shape (M,), the rows that compete.
        n_kept: how many stay, from how many compete.
        high: whether high values are the best.
    """
    if rule.even is not None:
        return _judge_evenly(rule, table_rows, rows, inside, n_kept, high=high)
    column = table_rows.exact[rule.column]
    values, valid = column.values[rows], column.valid[rows]
    competing, ties = inside & valid, table_rows.hashes[rows]
    if rule.per is None:
        keep, cut = best(values, competing, n_kept, ties, low_is_best=not high)
        return Ruling(keep, valid, np.array([cut]))
    groups = table_rows.groups[rule.per]
    codes, judged = groups.codes[rows], np.flatnonzero(competing)
    stays, cuts = best_of_groups(
        values[judged], codes[judged], len(groups.names), n_kept, ties[judged], low_is_best=not high
    )
    keep = np.zeros(len(valid), bool)
    keep[judged] = stays
    return Ruling(keep, valid, cuts)


def _judge_evenly(
    rule: ScoreRule, table_rows: Rows, rows: slice, inside: Flags, n_kept: Callable[[int], int], *, high: bool
) -> Ruling:
    """Keep the best rows of every group of ``rule.even``; junk is dropped first."""
    column, groups = table_rows.exact[rule.column], table_rows.groups[str(rule.even)]
    values, valid = column.values[rows], column.valid[rows]
    cut = even_best(
        values,
        inside & valid,
        n_kept,
        table_rows.hashes[rows],
        groups.codes[rows],
        groups.names,
        column=str(rule.even),
        junk=values > PICTURE if rule.column in (FITTED, LOCAL) else np.zeros(len(values), bool),
        most=None if rule.even == CLUSTER else MOST,
        low_is_best=not high,
    )
    return Ruling(cut.keep, valid, cut.cuts, cut)


def _in_type(bound: Fraction, kind: np.dtype, *, up: bool) -> Any:
    """A bound in the precision of the column, so that ``--min 0.1`` keeps a float32 0.1."""
    if np.issubdtype(kind, np.integer):
        return -(-bound.numerator // bound.denominator) if up else bound.numerator // bound.denominator
    with np.errstate(over="ignore"):
        return kind.type(_to_float(bound))


def _to_float(bound: Fraction) -> float:
    try:
        return float(bound)
    except OverflowError:
        return float("inf") if bound > 0 else float("-inf")
