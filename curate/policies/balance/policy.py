"""Balancing a table by class or cluster: uniformly, by a power of the sizes, or to given shares."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY
from curate.counted import counted
from curate.options.function import callable_of
from curate.options.values import part_of
from curate.policies.balance import amounts
from curate.policies.balance.amounts import target_of
from curate.policies.balance.options import BalanceOptions
from curate.policies.contract import apply
from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, Decided, Result, decision_rows
from curate.policies.filter.ranked import places
from curate.policies.outputs import Files
from curate.tables.amount import Amount
from curate.tables.digests import redrawn
from curate.tables.needs import Signal, default_column
from curate.tables.provenance import fitted_apart
from curate.tables.rows import NO_NUMBER, Codes, Rows, read_rows
from curate.tables.table import Table, open_table
from curate.tables.vectors import EMBEDDING_PROBLEMS, rows_of
from scoring.errors import InputError

MEANINGS: dict[str, str] = {
    "decision": "keep, drop, undecided (a value or an embedding is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided",
    "score": "the value that ranks the row in its cell; null if that is the hash of its key",
    "threshold": "the last value that stayed in its cell",
    "margin": "not used: the place in the cell decides",
    "cell": "value of the column, or number of the cluster",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("cell", pa.string())])
OVER, NO_SHARE = "beyond the share of its cell", "in a cell without a share"


@dataclass(frozen=True)
class BalanceWords:
    """Writes the reasons of the decisions, a slice of rows at a time.

    Attributes:
        outcome: codes of ``curate.policies.decided``, shape (N,).
        cell: of each row, shape (N,), an index into ``names``; -1 for none.
        place: rank of each row in its cell, from 0, shape (N,).
        score: value of the column, shape (N,); NaN if absent.
        lacks: index into ``reasons`` of a missing value, shape (N,); -1 for none.
        names: of the cells.
        sizes: rows of each cell.
        taken: kept rows of each cell.
        cuts: last kept score of each cell; NaN if absent.
        reasons: texts on missing values.
        what: the column of the cells, or ``cluster``.
        within: the order of rows in a cell.
    """

    outcome: NDArray[np.uint8]
    cell: NDArray[np.int32]
    place: NDArray[np.int64]
    score: NDArray[np.float64]
    lacks: NDArray[np.int8]
    names: list[str]
    sizes: NDArray[np.int64]
    taken: NDArray[np.int64]
    cuts: NDArray[np.float64]
    reasons: tuple[str, ...]
    what: str
    within: str

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        outcome, cell, score = self.outcome[part], self.cell[part], self.score[part]
        judged = (outcome == KEEP) | (outcome == DROP)
        reason = np.full(len(keys), "", object)
        at = np.flatnonzero(judged)
        codes = cell[at]
        columns = (self.taken[codes], self.sizes[codes], self.place[part][at] + 1)
        who = amounts.WITHIN[self.within]
        reason[at] = [
            f"number {place:,} of {self.what} {self.names[code]}, which gives {quota:,} of {size:,} rows, {who}"
            for code, quota, size, place in zip(codes.tolist(), *(each.tolist() for each in columns), strict=True)
        ]
        lacking = np.flatnonzero(outcome == UNDECIDED)
        reason[lacking] = np.array([*self.reasons, ""], object)[self.lacks[part][lacking]]
        cuts = np.full(len(keys), np.nan)
        cuts[at] = self.cuts[codes]
        rule = pa.array([f"--per {self.what}"], pa.string()).take(
            pa.array(np.zeros(len(keys), np.int64), mask=outcome == FAILED)
        )
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            outcome,
            reason,
            rule=rule,
            score=pa.array(np.where(judged, score, np.nan), from_pandas=True),
            threshold=pa.array(cuts, from_pandas=True),
            cell=pa.array(self.names, pa.string()).take(pa.array(cell, mask=cell < 0)),
        )


@dataclass(frozen=True)
class BalanceResult(Result):
    """The result of a balance, as ``curate balance`` prints it.

    Attributes:
        cells: name -> input rows, kept rows, target rows; in the order of names.
        limit: the cell with the fewest rows relative to its share.
        most: largest total that all cells can fulfil.
        short: total number of rows missing in cells.
        apart: total variation distance between actual and target shares, in [0, 1].
    """

    cells: dict[str, tuple[int, int, int]] = field(default_factory=dict)
    limit: str = ""
    most: int = 0
    short: int = 0
    apart: float = 0.0

    IN_RECEIPT: ClassVar[tuple[str, ...]] = ("cells", "limit", "most", "short", "apart", "notes")


def result_of(request: amounts.BalanceRequest, words: BalanceWords, plan: amounts.Amounts) -> BalanceResult:
    """Return the counts and notes.

    Args:
        request: of the balance.
        words: the decisions.
        plan: numbers of rows of the cells.
    """
    dropped = words.cell[words.outcome == DROP]
    without = int((plan.quota[dropped] + plan.taken[dropped] == 0).sum())
    dropped_by = {OVER: len(dropped) - without, NO_SHARE: without}
    lacking = np.bincount(words.lacks[words.outcome == UNDECIDED], minlength=len(words.reasons)).tolist()
    names = words.names
    columns = (words.sizes.tolist(), plan.taken.tolist(), plan.quota.tolist())
    return BalanceResult(
        dropped_by={why: n for why, n in dropped_by.items() if n or why == OVER},
        undecided_by={reason: n for reason, n in zip(words.reasons, lacking, strict=True) if n},
        cells=dict(zip(names, zip(*columns, strict=True), strict=True)),
        limit=names[plan.limit],
        most=plan.most,
        short=int(plan.short.sum()),
        apart=plan.apart,
        notes=_notes(request, words, plan),
    )


def _notes(request: amounts.BalanceRequest, words: BalanceWords, plan: amounts.Amounts) -> list[str]:
    limit = f"{words.what} {words.names[plan.limit]}, with {counted(int(words.sizes[plan.limit]), 'row')}"
    if request.rows is None:
        option = "--rows AMOUNT --nearest" if request.shares else "--rows AMOUNT"
        more = f"; {option} keeps more, and all rows of cells with too few" if 2 * plan.most < words.sizes.sum() else ""
        notes = [f"as many rows as meet every share: {plan.most:,}; the limit is {limit}{more}"]
    elif plan.short.any():
        n_short = counted(int((plan.short > 0).sum()), "cell has", "cells have")
        notes = [
            f"{n_short} {int(plan.short.sum()):,} rows too few for their shares and keep all; the others keep "
            f"more: {plan.apart:.2%} of the rows differ from the request. Up to {plan.most:,} rows every share is met; "
            f"the limit is {limit}"
        ]
    else:
        notes = []
    idle = int(((plan.taken == 0) & (plan.quota == 0)).sum())
    if idle and not request.shares:
        notes.append(
            f"{counted(idle, 'cell')} of {len(words.names):,} get no row: fewer rows are kept than there are cells"
        )
    return notes


@dataclass(frozen=True)
class Balance(amounts.BalanceRequest):
    """A balance of the cells of a table towards a distribution; a ``Policy``."""

    files: ClassVar[Files] = Files()

    def decide(self, table: Table) -> Decided[BalanceResult]:
        """Decide every row of a table; InputError for an invalid column, key, share or amount."""
        request, signal = self, self.signal(table)
        needs = request.needs(table)
        needs.refuse_unread_embeddings(table, f"--per {amounts.CLUSTERS} and --within {amounts.TYPICAL}")
        rows = read_rows(table, needs, by_hash=True)  # so that k-means starts from the same rows
        by_clusters = request.by_clusters(table)
        lacks, reasons = _exclusions(request, rows, signal, by_clusters=by_clusters)
        inside = np.flatnonzero(rows.ok & (lacks < 0))
        if not len(inside):
            counts = [int((rows.ok & (lacks == number)).sum()) for number in range(len(reasons))]
            why = ", ".join(f"{n:,} whose row {reason}" for n, reason in zip(counts, reasons, strict=True) if n)
            got = f"none of {len(rows):,}: {why}" if why else "none that was scored"
            raise InputError(f"expected rows to balance in {table.path}, got {got}")
        cells = _cells(request, rows, inside, by_clusters=by_clusters)
        sizes = np.bincount(cells.codes, minlength=len(cells.names))
        plan = amounts.planned(request, cells.names, sizes)
        score = _score(request, rows, inside, cells, signal)
        first = None if score is None else score if signal is None else signal.sign * score
        ties = ~redrawn(rows.hashes[inside], request.seed, "balance")
        values = np.zeros(len(inside)) if first is None else first
        place = places(values, cells.codes, sizes, ties, low_is_best=False)
        stays = place < plan.taken[cells.codes]
        cuts = np.full(len(sizes), np.nan)
        last = place == plan.taken[cells.codes] - 1
        if score is not None:
            cuts[cells.codes[last]] = score[last]
        decided = np.where(rows.ok, UNDECIDED, FAILED).astype(np.uint8)
        decided[inside] = np.where(stays, KEEP, DROP)
        outcome = rows.in_table(decided)
        words = BalanceWords(
            outcome=outcome,
            cell=rows.in_table(cells.codes, inside, -1),
            place=rows.in_table(place, inside, 0),
            score=rows.in_table(np.full(len(inside), np.nan) if score is None else score, inside, np.nan),
            lacks=rows.in_table(lacks),
            names=cells.names,
            sizes=sizes,
            taken=plan.taken,
            cuts=cuts,
            reasons=reasons,
            what="cluster" if by_clusters else request.per,
            within=request.within,
        )
        result = result_of(request, words, plan)
        apart = fitted_apart(table, [] if signal is None else [signal.column])
        return Decided(
            table=table,
            policy=[request.to_json()],
            outcome=outcome,
            hashes=rows.in_table(rows.hashes),
            digest=rows.digest,
            words=words.rows,
            schema=SCHEMA,
            meanings=MEANINGS,
            result=replace(result, notes=[*result.notes, *apart]),
        )


def _exclusions(
    request: amounts.BalanceRequest, rows: Rows, signal: Signal | None, *, by_clusters: bool
) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """Return the index of the reason for which each row is excluded, shape (N,), -1 for none; and the reasons."""
    lacking: dict[str, NDArray[np.bool_]] = {}
    if rows.embedding is not None:
        problems = enumerate(EMBEDDING_PROBLEMS, 1)
        lacking = {f"has {what}": rows.embedding_problem == number for number, what in problems}
    if not by_clusters:
        lacking[f"{request.per} has no value"] = rows.names[request.per].codes < 0
    if signal is not None:
        lacking[f"{signal.column} has {NO_NUMBER}"] = ~np.isfinite(rows.numbers[signal.column])
    return rows.first_lacking(lacking), tuple(lacking)


def _cells(request: amounts.BalanceRequest, rows: Rows, inside: NDArray[np.int64], *, by_clusters: bool) -> Codes:
    """Return the cell of each usable row, and the names of the cells."""
    if by_clusters:
        return amounts.clustered(rows_of(rows.array(EMBEDDING), inside), request.clusters, request.seed)
    column = rows.names[request.per]
    used, codes = np.unique(column.codes[inside], return_inverse=True)
    return Codes(codes.astype(np.int32), [column.names[code] for code in used.tolist()])


def _score(
    request: amounts.BalanceRequest, rows: Rows, inside: NDArray[np.int64], cells: Codes, signal: Signal | None
) -> NDArray[np.float64] | None:
    """Return the values that order the rows of a cell, shape (M,); None for the hash of the key alone."""
    if request.within == amounts.TYPICAL:
        return amounts.typical(rows_of(rows.array(EMBEDDING), inside), cells.codes, request.seed)
    return rows.numbers[signal.column][inside] if signal is not None else None


def run_balance(options: BalanceOptions) -> BalanceResult:
    """Keep rows of each cell according to the target shares; write subset, decisions and receipt.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for an unusable table, option or output; nothing is written.
    """
    power, shares = target_of(options.to, options.alpha)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    if options.per != amounts.CLUSTERS:
        opened.require([options.per])
    column = options.column
    if options.within == amounts.CERTAIN and column is None:
        column = default_column(opened)
    amount = None if options.rows is None else str(options.rows)
    policy = part_of(Balance, options, alpha=power, shares=shares, rows=amount, column=column)
    result = apply(policy, opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite)
    other = Amount.parse(amount, "--rows").other_reading("--rows", result.kept, result.n_rows) if amount else None
    return result if other is None else replace(result, notes=[*result.notes, other])


balance = callable_of(BalanceOptions, run_balance)
