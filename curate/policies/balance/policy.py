"""Balance a table by class or cluster: uniformly, by a power of the sizes, or to given shares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY
from curate.options.function import callable_of
from curate.options.values import part_of
from curate.policies.apply import apply
from curate.policies.balance.amounts import planned
from curate.policies.balance.cells import CERTAIN, CLUSTERS, TYPICAL, clustered, typical
from curate.policies.balance.explain import MEANINGS, SCHEMA, BalanceResult, BalanceWords, result_of
from curate.policies.balance.options import BalanceOptions
from curate.policies.balance.request import BalanceRequest
from curate.policies.balance.target import target_of
from curate.policies.decided import Decided
from curate.policies.filter.ranked import places
from curate.policies.outcomes import DROP, FAILED, KEEP, UNDECIDED
from curate.policies.outputs import Files
from curate.tables.amount import Amount
from curate.tables.digests import redrawn
from curate.tables.fits import fitted_apart
from curate.tables.rows import NO_NUMBER, Codes, Rows, read_rows
from curate.tables.signals import Signal, default_column
from curate.tables.table import Table, open_table
from curate.tables.vectors import EMBEDDING_PROBLEMS, rows_of
from scoring.errors import InputError


@dataclass(frozen=True)
class Balance:
    """Rows of each cell of a table, towards a distribution; a ``Policy``."""

    request: BalanceRequest
    files: ClassVar[Files] = Files()

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, object]]) -> Self:
        """Return the balance that a receipt holds; InputError if it holds something else."""
        return cls(BalanceRequest.from_json(rules[0]))

    def decide(self, table: Table) -> Decided[BalanceResult]:
        """Decide every row of a table; InputError for a column, key, share or amount that cannot be used."""
        request, signal = self.request, self.request.signal(table)
        needs = request.needs(table)
        needs.refuse_unread_embeddings(table, f"--per {CLUSTERS} and --within {TYPICAL}")
        rows = read_rows(table, needs, by_hash=True)  # so that k-means starts from the same rows
        by_clusters = request.by_clusters(table)
        lacks, reasons = _lacking(request, rows, signal, by_clusters=by_clusters)
        inside = np.flatnonzero(rows.ok & (lacks < 0))
        if not len(inside):
            counts = [int((rows.ok & (lacks == number)).sum()) for number in range(len(reasons))]
            why = ", ".join(f"{n:,} whose row {reason}" for n, reason in zip(counts, reasons, strict=True) if n)
            got = f"none of {len(rows):,}: {why}" if why else "none that was scored"
            raise InputError(f"expected rows to balance in {table.path}, got {got}")
        cells = _cells(request, rows, inside, by_clusters=by_clusters)
        sizes = np.bincount(cells.codes, minlength=len(cells.names))
        plan = planned(request, cells.names, sizes)
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


def _lacking(
    request: BalanceRequest, rows: Rows, signal: Signal | None, *, by_clusters: bool
) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """Return the reason for which each row is excluded, shape (N,), as an index, -1 for none; and the reasons."""
    lacking: dict[str, NDArray[np.bool_]] = {}
    if rows.embedding is not None:
        problems = enumerate(EMBEDDING_PROBLEMS, 1)
        lacking = {f"has {what}": rows.embedding_problem == number for number, what in problems}
    if not by_clusters:
        lacking[f"{request.per} has no value"] = rows.names[request.per].codes < 0
    if signal is not None:
        lacking[f"{signal.column} has {NO_NUMBER}"] = ~np.isfinite(rows.numbers[signal.column])
    return rows.first_lacking(lacking), tuple(lacking)


def _cells(request: BalanceRequest, rows: Rows, inside: NDArray[np.int64], *, by_clusters: bool) -> Codes:
    """Return the cell of each row that can be used, and the cells that have such a row."""
    if by_clusters:
        return clustered(_vectors(rows, inside), request.clusters, request.seed)
    column = rows.names[request.per]
    used, codes = np.unique(column.codes[inside], return_inverse=True)
    return Codes(codes.astype(np.int32), [column.names[code] for code in used.tolist()])


def _score(
    request: BalanceRequest, rows: Rows, inside: NDArray[np.int64], cells: Codes, signal: Signal | None
) -> NDArray[np.float64] | None:
    """Return the values that order the rows of a cell, shape (M,); None for the hash of the key alone."""
    if request.within == TYPICAL:
        return typical(_vectors(rows, inside), cells.codes, request.seed)
    return rows.numbers[signal.column][inside] if signal is not None else None


def _vectors(rows: Rows, inside: NDArray[np.int64]) -> NDArray[np.floating]:
    return rows_of(rows.array(EMBEDDING), inside)


def run_balance(options: BalanceOptions) -> BalanceResult:
    """Keep rows of each cell according to the target shares; write subset, decisions and receipt.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, option or output that cannot be used; nothing is written then.
    """
    power, shares = target_of(options.to, options.alpha)
    opened = open_table(options.table, require=[KEY], embedding=options.embedding)
    if options.per != CLUSTERS:
        opened.require([options.per])
    column = options.column
    if options.within == CERTAIN and column is None:
        column = default_column(opened)
    amount = None if options.rows is None else str(options.rows)
    request = part_of(BalanceRequest, options, alpha=power, shares=shares, rows=amount, column=column)
    result = apply(Balance(request), opened, options.out, dry_run=options.dry_run, overwrite=options.overwrite)
    other = Amount.parse(amount, "--rows").other_reading("--rows", result.kept, result.n_rows) if amount else None
    return result if other is None else replace(result, notes=[*result.notes, other])


balance = callable_of(BalanceOptions, run_balance)
