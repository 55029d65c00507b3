"""A filter applied to a table: rules keep and drop rows by their scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from curate.columns import KEY
from curate.policies.apply import apply
from curate.policies.decided import Decided
from curate.policies.filter.request import rules_in_order
from curate.policies.filter.result import FilterResult
from curate.policies.filter.rule import Rule
from curate.policies.filter.rules import decide, needs_of, rule_from_json
from curate.policies.filter.ruling import Verdict
from curate.policies.filter.table import RULES
from curate.policies.filter.words import MEANINGS, DecisionWords
from curate.policies.outcomes import DECISION_SCHEMA, DROP, UNDECIDED
from curate.policies.outputs import Files
from curate.tables.fits import fitted_apart
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError


@dataclass(frozen=True)
class Filter:
    """Rules in the order applied, each to the rows that the earlier ones left; a ``Policy``.

    Raises:
        InputError: without a rule.
    """

    rules: tuple[Rule, ...]

    @property
    def files(self) -> Files:
        """What names keys and says what is bad."""
        return Files(quoted=tuple(file for rule in self.rules for file in rule.named_files()))

    def __post_init__(self) -> None:
        if not self.rules:
            names = ", ".join(f"--{name}" for name in RULES)
            raise InputError(f"expected at least one rule, got none; add one of {names}")
        for rule in self.rules[:-1]:
            if rule.last:
                raise InputError(f"--{rule.name} {rule.last}; put it after all other rules")

    @classmethod
    def from_receipt(cls, rules: Sequence[Mapping[str, Any]]) -> Self:
        """Return the rules that a receipt holds; InputError if it holds something else."""
        return cls(tuple(rule_from_json(rule) for rule in rules))

    def decide(self, table: Table, *, write: bool) -> Decided[FilterResult]:
        """Decide every row of a table; InputError for a column or key that cannot be used."""
        needs = needs_of(self.rules, table)
        needs.refuse_unread_embeddings(table, "--like and --unlike")
        table_rows = read_rows(table, needs)
        verdict = decide(self.rules, table_rows)
        words = DecisionWords(self.rules, table_rows, verdict)
        ruled = list(zip(self.rules, words.results, strict=True))
        settled = [rule.settle(result, table) for rule, result in ruled]
        notes = [note for rule, result in ruled for note in rule.notes(result)]
        notes += [each.words() for each in fitted_apart(table, needs.columns(table))]
        evened = {rule.typed(): rule.evened(result) for rule, result in ruled}
        return Decided(
            table=table,
            policy=[rule.to_json() for rule in self.rules],
            outcome=verdict.outcome,
            hashes=table_rows.hashes,
            digest=table_rows.digest,
            words=words.rows,
            examples=words.examples(),
            schema=DECISION_SCHEMA,
            grouped_by=next((name for rule in self.rules for name in (rule.even, rule.per) if name), None),
            meanings=MEANINGS,
            **{name: value for each in settled for name, value in each.items()},
            result=FilterResult(
                dropped_by=self._by_rule(verdict, DROP),
                undecided_by={name: n for name, n in self._by_rule(verdict, UNDECIDED).items() if n},
                notes=list(dict.fromkeys(notes)),
                evened={name: each for name, each in evened.items() if each is not None},
            ),
        )

    def _by_rule(self, verdict: Verdict, outcome: int) -> dict[str, int]:
        """Rows of an outcome by rule as typed; a rule typed twice is counted once."""
        total: dict[str, int] = {}
        for number, rule in enumerate(self.rules):
            n = int(((verdict.rule == number) & (verdict.outcome == outcome)).sum())
            total[rule.typed()] = total.get(rule.typed(), 0) + n
        return total


def filter(
    table: str | Path,
    out: str | Path | None = None,
    rules: Sequence[Rule] | None = None,
    *,
    keep_top: str | float | None = None,
    drop_bottom: str | float | None = None,
    min: float | None = None,
    max: float | None = None,
    where: str | None = None,
    like: str | Sequence[str] | None = None,
    unlike: str | Sequence[str] | None = None,
    keys: str | Path | None = None,
    without_keys: str | Path | None = None,
    verdicts: str | Path | None = None,
    max_bad_rate: str | float | None = None,
    audit: str | Path | Sequence[str | Path] | None = None,
    confidence: str | float | None = None,
    promise: str | None = None,
    judges: str | None = None,
    column: str | None = None,
    per: str | None = None,
    label: str | None = None,
    allow_uneven: bool = False,
    allow_unmatched: bool = False,
    model: str | Path | None = None,
    embedding: str | None = None,
    dry_run: bool = False,
    overwrite: bool = False,
) -> FilterResult:
    """Keep the rows that satisfy every rule; write subset, decisions and receipt.

    Memory stays bounded: some 25 bytes a row at the peak and 64 MB a batch, whatever the table holds; more where
    rows are ranked within groups, which sorts them.

    Args:
        table: Parquet file or folder of ``part-*.parquet`` with a unique ``key``; it is never changed.
        out: subset to write, a name ending in ``.parquet``; may be None in a dry run.
        rules: applied in this order, each to the rows that the earlier ones left. Instead of rules, name
            single ones by the keywords below, as the options of ``curate filter``; they apply in the order where,
            keys, without_keys, verdicts, like, unlike, min, max, drop_bottom, keep_top, max_bad_rate.
        keep_top: 0.8, "80%" or 5000 (rows).
        drop_bottom: as ``keep_top``.
        min: lowest value that stays, in the column's unit.
        max: highest value that stays.
        where: condition such as ``'label == "cat" and width >= 200'``.
        like: one or several examples, ``KEY``, ``IMAGE`` or either with ``=COSINE`` (0.8): what is like any stays.
        unlike: the same: what is like any goes.
        keys: CSV, TSV, JSON lines or Parquet file with a column ``key``: the rows that it names stay.
        without_keys: the same: the rows that it names go.
        verdicts: NAME.verdicts.jsonl of ``curate review``: what it drops is dropped, undecided rows that it keeps are
            kept, and new labels are taken; the former ones are in ``source_`` and the name of their column.
        max_bad_rate: share of the kept rows, 0.02 or "2%", that may be bad: the most rows are kept of which ``audit``
            shows it. InputError where it shows it for none; the text says how many more verdicts would be needed.
        audit: one or several files of ``review_plan`` with the verdicts.
        confidence: that at most that share is bad, "95%" by default.
        promise: ``confidence``, or ``average``: on average over audits, bad rows that are kept are at most that share
            of all rows.
        judges: where several judged: ``any`` (bad where one says so), ``majority`` or ``share``.
        column: score column for the keywords; default ``unc_fitted``, and ``unc_local`` for amounts; else the
            score of the model's own method.
        per: judge ``keep_top`` and ``drop_bottom`` within each value of this column.
        label: column of classes of which ``keep_top`` and ``drop_bottom`` drop the same share, after junk; by default
            ``label`` where the table has it, else ``cluster``.
        allow_uneven: let them drop more of some classes or clusters.
        allow_unmatched: go on where the table has none of the keys of ``keys`` or ``without_keys``.
        model: that scored the table, if it does not ship, for examples that are images.
        embedding: column of the user's own embeddings, of any length, instead of ``embedding``.
        dry_run: count only; write nothing.
        overwrite: replace outputs that exist.

    Returns:
        counts, notes and paths.

    Raises:
        InputError: for a table, column, rule or output that cannot be used; nothing is written then.
    """
    opened = open_table(table, require=[KEY], embedding=embedding)
    if rules is None:
        options: dict[str, Any] = {
            "column": column,
            "per": per,
            "where": where,
            "keys": keys,
            "without_keys": without_keys,
            "verdicts": verdicts,
        }
        options |= {"like": like, "unlike": unlike, "min": min, "max": max, "drop_bottom": drop_bottom}
        options |= {"keep_top": keep_top, "audit": _paths(audit), "confidence": confidence}
        options |= {"promise": promise, "judges": judges, "max_bad_rate": max_bad_rate}
        rules = rules_in_order(
            [(name, value) for name, value in options.items() if value is not None],
            opened,
            model=model,
            label=label,
            allow_uneven=allow_uneven,
            allow_unmatched=allow_unmatched,
        )
    elif label is not None or allow_uneven or allow_unmatched:
        raise InputError(
            "label, allow_uneven and allow_unmatched are for rules named by keywords; give each rule its own even="
        )
    return apply(Filter(tuple(rules)), opened, out, dry_run=dry_run, overwrite=overwrite)


def _paths(paths: str | Path | Sequence[str | Path] | None) -> list[str] | None:
    if paths is None:
        return None
    return [str(paths)] if isinstance(paths, str | Path) else [str(each) for each in paths]
