"""Selection of rows of a table, with reasons for the others; nothing is written."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.arranged import Expected
from curate.policies.decided import DECISION_SCHEMA, DROP, FAILED, KEEP, UNDECIDED, decision_rows
from curate.policies.select.plan import Chosen, choose
from curate.policies.select.prepare import Ready, prepare
from curate.policies.select.request import SelectRequest
from curate.probes.probabilities import Labelled, codes_of
from curate.selectors.picking import ReportPicks
from curate.tables.amount import Amount
from curate.tables.known import Known, read_known, refuse_unknown_keys
from curate.tables.rows import Rows, read_rows
from curate.tables.spelling import refuse_unmatched, spelled_as
from curate.tables.table import Table
from scoring.arrays import Floats, Ints, Mask
from scoring.errors import InputError

MEANINGS: dict[str, str] = {
    "decision": "keep (picked), drop, undecided (a value that the strategy needs is missing) or failed (not scored)",
    "reason": "the decision in words",
    "rule": "what decided",
    "score": "what the pick added, in the strategy's own unit",
    "threshold": "not used: a selection has no threshold",
    "margin": "not used: a selection has no threshold",
    "rank": "place among the picks, from 1",
    "gain": "what the pick added, in the strategy's own unit",
}
SCHEMA = pa.schema([*DECISION_SCHEMA, pa.field("rank", pa.int64()), pa.field("gain", pa.float64())])


@dataclass(frozen=True)
class Cause:
    """Why rows have an outcome.

    Attributes:
        outcome: code of ``curate.policies.decided``.
        reason: text; empty for picks and rows that were not scored, which have a text for each row.
        rule: what decided, as typed; None for rows that were not scored.
        name: in counts of dropped and undecided rows.
    """

    outcome: int
    reason: str
    rule: str | None
    name: str = ""


@dataclass(frozen=True)
class ChoiceVerdict:
    """The outcomes of N rows of a table, in its order.

    Attributes:
        causes: of the outcomes.
        why: shape (N,) int16, an index into ``causes``.
        rank: shape (N,) int64, from 1; 0 if not picked.
        gain: shape (N,) float64; NaN if not picked.
        strategy: name of the strategy.
    """

    causes: list[Cause]
    why: NDArray[np.int16]
    rank: Ints
    gain: Floats
    strategy: str

    @property
    def outcome(self) -> NDArray[np.uint8]:
        """Codes of ``curate.policies.decided``, shape (N,)."""
        return np.array([cause.outcome for cause in self.causes], np.uint8)[self.why]

    def counts(self, outcome: int) -> dict[str, int]:
        """Return the number of rows of an outcome by cause, without causes that no row has."""
        counts = np.bincount(self.why, minlength=len(self.causes)).tolist()
        return {cause.name: n for cause, n in zip(self.causes, counts, strict=True) if n and cause.outcome == outcome}

    def rows(self, start: int, keys: pa.Array, status: pa.Array | None, error: pa.Array | None) -> pa.RecordBatch:
        """Return the decisions of rows from ``start``; see ``curate.policies.decided.Words``."""
        part = slice(start, start + len(keys))
        why, rank, gain = self.why[part], self.rank[part], self.gain[part]
        reason = np.array([cause.reason for cause in self.causes], object)[why]
        picked = np.flatnonzero(rank)
        reason[picked] = [
            f"picked as number {place:,} by {self.strategy} (gain {value:.6g})"
            for place, value in zip(rank[picked].tolist(), gain[picked].tolist(), strict=True)
        ]
        gains = pa.array(gain, mask=rank == 0)
        return decision_rows(
            SCHEMA,
            (keys, status, error),
            self.outcome[part],
            reason,
            rule=pa.array([cause.rule for cause in self.causes], pa.string()).take(pa.array(why)),
            score=gains,
            rank=pa.array(rank, mask=rank == 0),
            gain=gains,
        )


RANK, GAIN, PREDICTED, PROBABILITY, PART = "rank", "gain", "predicted", "probability", "part_"
OF_PICKS = {
    RANK: "place among the picks, from 1",
    GAIN: "what the pick added, in the strategy's own unit",
    PREDICTED: "most likely class by the probe",
    PROBABILITY: "its probability by the probe",
}


@dataclass(frozen=True)
class Picked:
    """A selection from a table.

    Attributes:
        chosen: rows of the pool, in the order picked.
        ready: the pool.
        rows: the table.
        picks: row of the table of each pick, shape (K,) int64.
        verdict: the outcomes of all rows.
        files: other input files: option -> path and digest.
        notes: notes for the user.
    """

    chosen: Chosen
    ready: Ready
    rows: Rows
    picks: Ints
    verdict: ChoiceVerdict
    files: dict[str, Known]
    notes: list[str]

    def pick_columns(self) -> tuple[pa.Table, dict[str, str]]:
        """Return the columns of the batch for each pick, K rows, and the meanings of these columns."""
        k = len(self.picks)
        columns: dict[str, Any] = {
            RANK: pa.array(np.arange(1, k + 1)),
            GAIN: pa.array(self.chosen.gains.astype(np.float64)),
        }
        probabilities = self.ready.pool.probabilities
        if probabilities is not None:
            of_picks = probabilities[self.chosen.rows]
            best = of_picks.argmax(1) if k else np.zeros(0, np.int64)
            columns[PREDICTED] = pa.array(self.ready.classes, pa.string()).take(pa.array(best))
            columns[PROBABILITY] = pa.array(of_picks.max(1) if k else np.zeros(0, np.float32), pa.float32())
        meanings = {name: OF_PICKS[name] for name in columns}
        for part, values in self.chosen.parts.items():
            name = PART + part.replace("-", "_")
            columns[name] = pa.array(values.astype(np.float64))
            meanings[name] = f"{part} of the pick, as the strategy uses it"
        return pa.table(columns), meanings

    def labelled(self) -> Ints:
        """Return the labelled rows of the pool, as indices into the table."""
        return self.rows.place[self.ready.table_row[self.ready.pool.labelled]]

    def expected(self) -> Expected:
        """Return the expected batch, for verification."""
        hashes = self.rows.hashes[self.ready.table_row[self.chosen.rows]]
        return Expected(self.pick_columns()[0], hashes, self.picks, ordered=True, file="batch")


def pick(table: Table, request: SelectRequest, *, picked: ReportPicks = lambda done, total: None) -> Picked:
    """Select rows of a table.

    Args:
        table: with a unique ``key``.
        request: with its parameters.
        picked: called with the numbers of picked and all rows, if they are picked sequentially.

    Raises:
        InputError: for a column, key, label or budget that is not usable.
    """
    signals = request.signals(table)
    known = spelled_as(read_known(request.labelled, request.label), table) if request.labelled else None
    left_out = spelled_as(read_known(request.exclude, labels=False), table) if request.exclude else None
    if left_out is not None and not request.allow_unmatched:
        refuse_unmatched(left_out, "exclude", table)
    has_labels = known is not None and known.labels is not None
    class_column = request.class_column(table)
    from_table = bool(request.labelled_where) or (known is not None and not has_labels) or class_column is not None
    needs = request.needs(table, signals, labels_of_table=from_table)
    needs.refuse_unread_embeddings(table, f"strategies that use them, which {request.strategy} does not")
    rows = read_rows(table, needs, by_hash=True)
    labelled = _labelled(table, request, rows, known)
    notes = [known.note] if known is not None and known.note else []
    if known is not None and not len(known.keys):
        notes.append(f"--labelled {request.labelled} holds no key: no row counts as labelled")
    truths = rows.holds(request.labelled_where)
    if truths is not None and not truths.any():
        notes.append(f"no row meets --labelled-where {request.labelled_where!r}: no row counts as labelled")
    excluded = np.zeros(len(rows), bool)
    if left_out is not None:
        at = left_out.rows(rows)
        excluded[at[at >= 0]] = True
        n_keys = counted(len(at), "key")
        notes.append(f"{int((at >= 0).sum()):,} of {n_keys} of {left_out.path} in the table: excluded")
        notes += [left_out.note] if left_out.note else []
    excluded[labelled.rows] = False
    ready = prepare(rows, request, labelled, excluded=excluded, signals=signals, class_column=class_column)
    _refuse_budget(request, rows, ready, labelled, excluded)
    chosen = choose(ready.pool, request, ready.groups, picked=picked)
    verdict = _verdict(request, rows, ready, chosen, labelled, excluded)
    files = {name: each for name, each in (("labelled", known), ("exclude", left_out)) if each is not None}
    picks = rows.place[ready.table_row[chosen.rows]]
    return Picked(chosen, ready, rows, picks, verdict, files, [*notes, *ready.notes, *chosen.notes])


def _labelled(table: Table, request: SelectRequest, rows: Rows, known: Known | None) -> Labelled:
    """Return the labelled rows and their classes, from the file if it has classes, else from the table."""
    label: dict[int, str | None] = {}
    column = rows.names.get(request.label_column(table) or "") if rows.names else None
    truths = rows.holds(request.labelled_where)
    names: list[str | None] = [*column.names, None] if column else [None]
    if truths is not None:
        for row in np.flatnonzero(truths).tolist():
            label[row] = names[column.codes[row]] if column else None
    if known is not None:
        labelled_rows = known.rows(rows)
        refuse_unknown_keys(known, labelled_rows, str(table.path))
        for at, row in enumerate(labelled_rows.tolist()):
            label[row] = known.labels[at] if known.labels is not None else names[column.codes[row]] if column else None
    places = np.array(sorted(label), np.int64)
    codes, classes = codes_of([label[row] for row in places.tolist()])
    return Labelled(places, codes, classes)


def _refuse_budget(request: SelectRequest, rows: Rows, ready: Ready, labelled: Labelled, excluded: Mask) -> None:
    """Raise InputError, with the reasons, for a budget larger than the number of candidates."""
    amount, n = Amount.parse(request.budget, "--budget"), len(ready.pool.candidates)
    if n and (amount.count is None or amount.count <= n or request.per):
        return
    parts = {
        "labelled": len(labelled.rows),
        "excluded": int(excluded.sum()),
        "not scored": int((~rows.ok).sum()),
        "without what the strategy uses": int((ready.why >= 0).sum()),
    }
    why = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    n_rows = counted(len(rows), "row")
    words = f"of {n_rows} {why}" if why else f"there {'is' if len(rows) == 1 else 'are'} {n_rows}"
    if not n:
        raise InputError(f"expected rows that can be picked, got none: {words}")
    raise InputError(
        f"the budget must be between 1 and the {counted(n, 'row')} that may be picked, got "
        f"{amount.count or amount.text}; {words}; choose fewer"
    )


def _verdict(
    request: SelectRequest, rows: Rows, ready: Ready, chosen: Chosen, labelled: Labelled, excluded: Mask
) -> ChoiceVerdict:
    """Return the outcome of every row, in the order of the table."""
    at = ready.table_row[chosen.rows]
    by_strategy = f"--strategy {request.strategy} --budget {request.budget}"
    labels = " ".join(
        f"--{flag} {value}"
        for flag, value in (("labelled", request.labelled), ("labelled-where", request.labelled_where))
        if value
    )
    gate = "--noise-guard" if request.noise_guard else f"--gate {chosen.least:g}"
    causes: list[tuple[Cause, NDArray[Any]]] = [  # with the rows of each; later ones take precedence
        (Cause(DROP, f"not among the {len(at):,} that {request.strategy} picked", by_strategy, "not picked"), rows.ok),
        *((Cause(UNDECIDED, text, by_strategy, text), ready.why == n) for n, text in enumerate(ready.reasons)),
        (
            Cause(DROP, "quality in the lowest share, which the gate excludes", gate, "left out by the gate"),
            ready.table_row[chosen.gated],
        ),
        (Cause(DROP, "excluded", f"--exclude {request.exclude}", "excluded"), excluded),
        (Cause(DROP, "labelled already", labels, "labelled already"), labelled.rows),
        (Cause(FAILED, "", None), ~rows.ok),
        (Cause(KEEP, "", by_strategy), at),
    ]
    why = np.zeros(len(rows), np.int16)
    for number, (_, some) in enumerate(causes):
        why[some] = number
    rank = rows.in_table(np.arange(1, len(at) + 1), at)
    gain = rows.in_table(chosen.gains.astype(np.float64), at, np.nan)
    return ChoiceVerdict([cause for cause, _ in causes], rows.in_table(why), rank, gain, request.strategy)
