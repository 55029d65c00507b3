"""What policies decided for the rows of a table: decisions found by key; a drop counts before all others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY
from curate.facts.dataset import Dataset
from curate.facts.results import Applied
from curate.policies.outcomes import DROP, OUTCOMES
from curate.tables.arrays import coded
from curate.tables.digests import key_array, plain, tie_breaks
from scoring.errors import InputError

OPEN = len(OUTCOMES)  # the code of a row that nothing decided
NO_RULE = "no rule"
NEEDED = (KEY, "decision", "rule", "margin", "threshold")


@dataclass
class Decisions:
    """The M decisions of one policy, in their own order.

    Attributes:
        applied: the policy.
        row: of the table, shape (M,).
        outcome: codes of ``OUTCOMES``, shape (M,) uint8.
        rule: which decided, shape (M,) int32, a place in ``rules``.
        rules: as typed.
        margin: of the score to the rule's threshold, shape (M,); negative was dropped, NaN if absent.
        thresholds: lowest and highest of each rule that has any.
    """

    applied: Applied
    row: NDArray[np.int64]
    outcome: NDArray[np.uint8]
    rule: NDArray[np.int32]
    rules: list[str]
    margin: NDArray[np.float64]
    thresholds: dict[str, tuple[float, float]] = field(default_factory=dict)

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where the decision of each row of the table stands, shape of ``rows``; -1 if absent."""
        if not len(self.row):
            return np.full(len(rows), -1)
        order = self._order
        place = np.searchsorted(self.row, rows, sorter=order).clip(max=len(self.row) - 1)
        at = place if order is None else order[place]
        return np.where(self.row[at] == rows, at, -1)

    @property
    def _order(self) -> NDArray[np.int64] | None:
        return None if (np.diff(self.row) > 0).all() else np.argsort(self.row, kind="stable")


@dataclass
class Decided:
    """What became of the N rows of a table.

    Attributes:
        outcome: codes of ``OUTCOMES``, ``OPEN`` where nothing decided, shape (N,) uint8.
        by: whose decision that is, shape (N,) int16; -1 for none.
        policies: with decisions, in the order applied.
    """

    outcome: NDArray[np.uint8]
    by: NDArray[np.int16]
    policies: list[Decisions]

    def reasons(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Return why each row was decided as it was; None where nothing decided it."""
        texts = np.full(len(rows), None, object)
        for number, decisions in enumerate(self.policies):
            places = np.flatnonzero(self.by[rows] == number)
            if len(places) and decisions.applied.decisions is not None:
                at = decisions.positions(rows[places])
                texts[places] = decisions.applied.decisions.take(at, ["reason"]).column(0).to_pylist()
        reasons: list[str | None] = texts.tolist()
        return reasons

    def words(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Return what became of each row, as in decisions; None where nothing decided it."""
        names = [*OUTCOMES, None]
        return [names[code] for code in self.outcome[rows].tolist()]


def decide_all(dataset: Dataset, results: Sequence[Applied]) -> Decided:
    """Join the decisions of policies to the rows of a table.

    Policies may follow one another or stand side by side on one table. A row that any of them drops is dropped, by the
    last that drops it; any other row has the decision of the last that saw it.

    Args:
        dataset: the table.
        results: in the order applied; those whose decisions are gone are passed over.

    Raises:
        InputError: for decisions of other rows than the table's, or that contradict their receipt.
    """
    decided = Decided(np.full(dataset.n, OPEN, np.uint8), np.full(dataset.n, -1, np.int16), [])
    for applied in results:
        if applied.decisions is None:
            continue
        policy = _read(dataset, applied)
        counts = (policy.outcome == DROP) | (decided.outcome[policy.row] != DROP)
        decided.outcome[policy.row[counts]] = policy.outcome[counts]
        decided.by[policy.row[counts]] = len(decided.policies)
        decided.policies.append(policy)
    return decided


def _read(dataset: Dataset, applied: Applied) -> Decisions:
    table = applied.decisions
    if table is None:
        raise ValueError("a policy without decisions")
    table.require(NEEDED)
    n = table.n_rows
    row, outcome, rule = np.empty(n, np.int64), np.empty(n, np.uint8), np.empty(n, np.int32)
    margin, seen = np.empty(n), {}  # type: ignore[var-annotated]
    low, high = np.full(0, np.inf), np.full(0, -np.inf)
    start = 0
    for batch in table.batches(NEEDED):
        part = slice(start, start + batch.num_rows)
        row[part] = dataset.find(tie_breaks(key_array(batch.column(KEY), table.path, start)))
        outcome[part] = _outcomes(applied, batch.column("decision"))
        rule[part] = coded(plain(batch.column("rule")).cast(pa.string()), seen)
        margin[part] = _numbers(batch.column("margin"))
        threshold = _numbers(batch.column("threshold"))
        low, high = _grown(low, len(seen), np.inf), _grown(high, len(seen), -np.inf)
        known = ~np.isnan(threshold)
        np.minimum.at(low, rule[part][known], threshold[known])
        np.maximum.at(high, rule[part][known], threshold[known])
        start += batch.num_rows
    _refuse_strangers(dataset, applied, row, outcome)
    rules = [NO_RULE if name is None else str(name) for name in seen]
    bounds = {name: (float(a), float(b)) for name, a, b in zip(rules, low, high, strict=True) if a <= b}
    return Decisions(applied, row, outcome, rule, rules, margin, bounds)


def _grown(values: NDArray[np.float64], n: int, fill: float) -> NDArray[np.float64]:
    return np.concatenate([values, np.full(n - len(values), fill)])


def _numbers(column: pa.Array) -> NDArray[np.float64]:
    """With NaN for null."""
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)


def _outcomes(applied: Applied, column: pa.Array) -> NDArray[np.uint8]:
    codes = plain(column).cast(pa.string()).dictionary_encode()
    names = codes.dictionary.to_pylist()
    strange = [name for name in names if name not in OUTCOMES]
    if strange or codes.null_count:
        raise InputError(f"{applied.path}: its decisions hold {strange[:1] or 'null'}, which is not one; take a copy")
    places = np.array([OUTCOMES.index(name) for name in names], np.uint8)
    return places[codes.indices.to_numpy(zero_copy_only=False)] if len(codes) else np.zeros(0, np.uint8)


def _refuse_strangers(dataset: Dataset, applied: Applied, row: NDArray[np.int64], outcome: NDArray[np.uint8]) -> None:
    path = applied.subset.with_name(applied.receipt["outputs"]["decisions"]["file"])
    strangers = int((row < 0).sum())
    if strangers:
        raise InputError(
            f"{path} does not belong to {dataset.table.path}: {strangers:,} of its {len(row):,} rows are not in the "
            "table; give the table that was decided on, or leave the file out"
        )
    if len(np.unique(row)) < len(row):
        raise InputError(f"{path} decides a row twice; take it from a copy")
    counts = applied.receipt["counts"]
    counted = [counts[name] for name in ("kept", "dropped", "undecided", "failed")]
    if np.bincount(outcome, minlength=len(OUTCOMES)).tolist() != counted:
        raise InputError(
            f"{path} and {applied.path.name} are not of one run: their counts differ; take both from a copy"
        )
