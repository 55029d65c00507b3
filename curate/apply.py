"""A policy applied to a table: two passes over the file, then subset, decisions and receipt appear together."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import ERROR, KEY, STATUS, describe
from curate.decisions import DECISION_SCHEMA, MEANINGS, DecisionWords
from curate.digests import is_text, plain
from curate.filters import (
    DROP,
    FAILED,
    KEEP,
    UNDECIDED,
    DropBottom,
    KeepTop,
    Maximum,
    Minimum,
    Rule,
    Scores,
    Verdict,
    Where,
    decide,
    rule_to_json,
)
from curate.gather import gather
from curate.receipts import receipt_json, state_of
from curate.table import Table, TableWriter, open_table
from scoring.atomic import AtomicFile, commit_together
from scoring.errors import InputError

SUFFIX = ".parquet"
N_EXAMPLES = 5
STREAM_ROWS = 16_384  # all columns at once: few rows keep the memory low


@dataclass(frozen=True)
class FilterResult:
    """What a policy did; what ``curate filter`` prints.

    Attributes:
        n_rows: rows that came in; kept + dropped + undecided + failed.
        dropped_by: rule as typed -> rows that it dropped, in the order applied.
        undecided_by: rule as typed -> rows that it could not judge.
        failed_by: status -> rows.
        notes: what a person should know: direction of every score, amounts larger than the table.
        examples: a few decisions of rows that go (``key`` and ``reason``).
        subset: path written; None in a dry run, as are ``decisions`` and ``receipt``.
    """

    n_rows: int
    kept: int
    dropped: int
    undecided: int
    failed: int
    dropped_by: dict[str, int]
    undecided_by: dict[str, int]
    failed_by: dict[str, int]
    notes: list[str]
    examples: list[dict[str, str]]
    subset: Path | None = None
    decisions: Path | None = None
    receipt: Path | None = None
    input_digest: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(value) if value else None for name, value in self.paths().items()}
        plain_values = {name: value for name, value in self.__dict__.items() if name not in paths}
        return {**plain_values, **paths}

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name."""
        return {"subset": self.subset, "decisions": self.decisions, "receipt": self.receipt}


@dataclass
class Outputs:
    """The three names that belong together."""

    subset: Path
    decisions: Path = field(init=False)
    receipt: Path = field(init=False)

    def __post_init__(self) -> None:
        if self.subset.suffix != SUFFIX or self.subset.name == SUFFIX:
            raise InputError(f"the subset is a Parquet file: expected a name like kept{SUFFIX}, got {self.subset}")
        stem = self.subset.name.removesuffix(SUFFIX)
        self.decisions = self.subset.with_name(f"{stem}.decisions{SUFFIX}")
        self.receipt = self.subset.with_name(f"{stem}.receipt.json")

    def refuse_input(self, table: Table) -> None:
        """Refuse to write over the table that is being filtered."""
        taken = {file.resolve() for file in table.files}
        for path in (self.subset, self.decisions, self.receipt):
            if path.resolve() in taken or (table.path.is_dir() and path.resolve().parent == table.path.resolve()):
                raise InputError(f"{path} is part of the table to filter, which is never changed; choose another name")


def filter_table(
    table: str | Path,
    out: str | Path | None = None,
    rules: Sequence[Rule] | None = None,
    *,
    keep_top: str | float | None = None,
    drop_bottom: str | float | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    where: str | None = None,
    column: str | None = None,
    per: str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
) -> FilterResult:
    """Keep the rows that satisfy every rule; write subset, decisions and receipt.

    Memory stays bounded: some 60 bytes a row at the peak and 64 MB a batch, whatever the table holds.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; may be None in a dry run.
        rules: applied in this order, each to the rows that the earlier ones left. Instead of rules, name
            single ones by the keywords below; they apply in the order where, minimum, maximum, drop_bottom,
            keep_top.
        keep_top: 0.8, "80%" or 5000 (rows).
        drop_bottom: as ``keep_top``.
        minimum: lowest value that stays, in the column's unit.
        maximum: highest value that stays.
        where: condition such as ``'label == "cat" and width >= 200'``.
        column: score column for the keywords; default the score of the model's own method.
        per: judge ``keep_top`` and ``drop_bottom`` within each value of this column.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, column, rule or output that cannot be used; nothing is written then.
    """
    opened = open_table(table, require=[KEY])
    if rules is None:
        named = {"where": where, "min": minimum, "max": maximum, "drop-bottom": drop_bottom, "keep-top": keep_top}
        rules = _rules_from_keywords(opened, named, column, per)
    if not rules:
        raise InputError("expected at least one rule: --keep-top, --drop-bottom, --min, --max or --where")
    outputs = None if dry_run else _outputs(opened, out)
    before = state_of(opened)
    if outputs is not None and not overwrite:
        for path in (outputs.subset, outputs.decisions, outputs.receipt):
            if path.exists():
                raise InputError(f"{path} exists already; choose another name, or replace it with --overwrite")
    scores, digest = gather(opened, rules)
    verdict = decide(rules, scores)
    result = _summary(opened, rules, scores, verdict, digest)
    if outputs is None:
        return result
    _write(opened, outputs, _Work(rules, scores, verdict, digest, before), result, overwrite)
    return FilterResult(**{**result.__dict__, **outputs.__dict__})


def _outputs(table: Table, out: str | Path | None) -> Outputs:
    if out is None:
        raise InputError("expected a name for the subset (-o kept.parquet), got none; or use --dry-run")
    outputs = Outputs(Path(out))
    outputs.refuse_input(table)
    return outputs


def _rules_from_keywords(table: Table, named: dict[str, Any], column: str | None, per: str | None) -> list[Rule]:
    makers: dict[str, Callable[[Any], Rule]] = {
        "where": Where,
        "min": lambda value: Minimum(value, column or default_column(table)),
        "max": lambda value: Maximum(value, column or default_column(table)),
        "drop-bottom": lambda value: DropBottom(value, column or default_column(table), per),
        "keep-top": lambda value: KeepTop(value, column or default_column(table), per),
    }
    return [makers[name](value) for name, value in named.items() if value is not None]


def default_column(table: Table) -> str:
    """Return the score of a table: its model's own method's, else the only one.

    A table may hold several scores, from a model with several heads: then the method that the model was trained for
    last, which its card names, decides. Kappa goes before the uncertainty of the same method, and before others.

    Raises:
        InputError: if there is none, or several and none is the model's own; the text lists the candidates.
    """
    model = table.metadata.get("model")
    own = model.get("method") if isinstance(model, dict) else None
    for name in (f"kappa_{own}", f"unc_{own}"):
        if own and name in table.schema.names:
            return name
    for kind in ("kappa", "unc"):
        found = [name for name in table.schema.names if name.startswith(f"{kind}_")]
        if len(found) == 1:
            return found[0]
        if found:
            raise InputError(f"{table.path} has several {kind} columns; choose one with --column: {', '.join(found)}")
    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type)]
    raise InputError(
        f"{table.path} has no kappa column and no unc column; score it first, or name a column of numbers with "
        f"--column (such as: {', '.join(numbers) or 'none here'})"
    )


@dataclass(frozen=True)
class _Work:
    """A policy that has been decided, on its way to the disk."""

    rules: Sequence[Rule]
    scores: Scores
    verdict: Verdict
    digest: str
    input_state: list[tuple[str, int, int]]


def _summary(table: Table, rules: Sequence[Rule], scores: Scores, verdict: Verdict, digest: str) -> FilterResult:
    counts = verdict.counts()
    dropped, undecided = (
        np.bincount(verdict.rule[verdict.outcome == code].astype(np.int64), minlength=len(rules)).tolist()
        for code in (DROP, UNDECIDED)
    )
    examples, failed_by = _second_look(table, rules, scores, verdict)
    return FilterResult(
        n_rows=len(verdict.outcome),
        kept=counts["keep"],
        dropped=counts["drop"],
        undecided=counts["undecided"],
        failed=counts["failed"],
        dropped_by=_by_rule(rules, dropped),
        undecided_by={name: n for name, n in _by_rule(rules, undecided).items() if n},
        failed_by=failed_by,
        notes=_notes(rules, verdict),
        examples=examples,
        input_digest=digest,
    )


def _by_rule(rules: Sequence[Rule], counts: list[int]) -> dict[str, int]:
    """Rows by rule as typed; a rule typed twice is counted once."""
    total: dict[str, int] = {}
    for rule, n in zip(rules, counts, strict=True):
        total[rule.typed] = total.get(rule.typed, 0) + n
    return total


def _notes(rules: Sequence[Rule], verdict: Verdict) -> list[str]:
    notes = []
    for rule, n in zip(rules, verdict.left, strict=True):
        if rule.column is not None:
            column = describe(rule.column)
            higher = column.higher or "taken as better"
            notes.append(f"{rule.typed} works on {rule.column} ({column.meaning}; higher: {higher})")
        count = rule.amount if isinstance(rule, KeepTop | DropBottom) and rule.per is None else ""
        if str(count).isdigit() and int(count) > n:
            notes.append(f"{rule.typed} asks for {int(count):,} rows, {n:,} were left")
    if not np.any(verdict.outcome == KEEP):
        notes.append("no row is left: the subset is empty")
    return list(dict.fromkeys(notes))


def _second_look(
    table: Table, rules: Sequence[Rule], scores: Scores, verdict: Verdict
) -> tuple[list[dict[str, str]], dict[str, int]]:
    """A few decisions of rows that go, and failures by status; stops reading once it has both."""
    gone = np.flatnonzero((verdict.outcome == DROP) | (verdict.outcome == UNDECIDED))[:N_EXAMPLES]
    failed = np.flatnonzero(verdict.outcome == FAILED)
    examples: list[dict[str, str]] = []
    failed_by: dict[str, int] = {}
    last = max(int(gone[-1]) if len(gone) else -1, int(failed[-1]) if len(failed) else -1)
    if last < 0:
        return examples, failed_by
    words = DecisionWords(rules, scores, verdict)
    names = [name for name in (KEY, STATUS, ERROR) if name in table.schema.names]
    for start, batch in _numbered(table.batches(names)):
        keys, status, error = _words(batch)
        here = slice(start, start + len(keys))
        if status is not None:
            for kind in status.filter(pa.array(verdict.outcome[here] == FAILED)).to_pylist():
                failed_by[str(kind)] = failed_by.get(str(kind), 0) + 1
        rows = gone[(gone >= start) & (gone < start + len(keys))] - start
        if len(rows):
            decided = words.rows(start, keys, status, error).take(pa.array(rows))
            examples += [{"key": row["key"], "reason": row["reason"]} for row in decided.to_pylist()]
        if start + len(keys) > last:
            break
    return examples, failed_by


def _numbered(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    start = 0
    for batch in batches:
        yield start, batch
        start += batch.num_rows


def _words(batch: pa.RecordBatch) -> tuple[pa.Array, pa.Array | None, pa.Array | None]:
    """Key, status and error of a batch as plain text; None for a column that is not there or not text."""
    key = plain(batch.column(KEY)).cast(pa.string())
    extra = []
    for name in (STATUS, ERROR):
        column = batch.column(name) if name in batch.schema.names else None
        extra.append(plain(column).cast(pa.string()) if column is not None and is_text(column.type) else None)
    return key, extra[0], extra[1]


def _write(table: Table, outputs: Outputs, work: _Work, result: FilterResult, overwrite: bool) -> None:
    """Second pass: stream all columns, write both tables, check the sums, then give the files their names."""
    policy = [rule_to_json(rule) for rule in work.rules]
    kept_schema = table.schema.with_metadata(table.file_metadata)
    described = {"kind": "decisions", "policy": policy, "columns": _decision_meanings()}
    pending: list[TableWriter | AtomicFile] = []
    try:
        subset = TableWriter(
            outputs.subset,
            kept_schema,
            {**table.metadata, "kind": "subset", "policy": _earlier(table) + policy},
            overwrite=overwrite,
        )
        pending.append(subset)
        decisions = TableWriter(outputs.decisions, DECISION_SCHEMA, described, overwrite=overwrite)
        pending.append(decisions)
        receipt = AtomicFile(outputs.receipt, overwrite=overwrite)
        pending.append(receipt)
        tally = _stream(table, work, subset, decisions)
        _check(tally, result, subset.n_rows, decisions.n_rows)
        if state_of(table) != work.input_state:
            raise InputError(f"{table.path} changed while it was being filtered; filter it again")
        subset.seal()
        decisions.seal()
        receipt.write(receipt_json(table, policy, result, {"subset": subset, "decisions": decisions}))
        commit_together([subset.file, decisions.file, receipt])
    finally:
        for file in pending:
            file.discard()


def _earlier(table: Table) -> list[Any]:
    """The rules that the table has been through already."""
    policy = table.metadata.get("policy", [])
    return policy if isinstance(policy, list) else []


def _decision_meanings() -> dict[str, dict[str, str]]:
    key = {KEY: {"meaning": describe(KEY).meaning, "unit": "", "higher": ""}}
    return key | {name: {"meaning": text, "unit": "", "higher": ""} for name, text in MEANINGS.items()}


def _stream(table: Table, work: _Work, subset: TableWriter, decisions: TableWriter) -> np.ndarray:
    """Write kept rows and all decisions; return how many rows of each outcome were written as decisions."""
    words = DecisionWords(work.rules, work.scores, work.verdict)
    tally = np.zeros(4, np.int64)
    for start, batch in _numbered(table.batches(rows=STREAM_ROWS)):
        outcome = work.verdict.outcome[start : start + batch.num_rows]
        if len(outcome) != batch.num_rows:
            raise InputError(f"{table.path} changed while it was being filtered; filter it again")
        tally += np.bincount(outcome, minlength=4)
        decisions.write(words.rows(start, *_words(batch)))
        kept = batch.filter(pa.array(outcome == KEEP))
        if kept.num_rows:
            subset.write(kept)
    return tally


def _check(tally: np.ndarray, result: FilterResult, n_subset: int, n_decisions: int) -> None:
    """The accounts must balance before any file gets its name."""
    expected = [result.kept, result.dropped, result.undecided, result.failed]
    if (
        tally.tolist() != expected
        or sum(expected) != result.n_rows
        or n_decisions != result.n_rows
        or n_subset != expected[0]
    ):
        raise RuntimeError(f"rows do not add up: {tally.tolist()} written, {expected} decided of {result.n_rows}")
