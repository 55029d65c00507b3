"""What a filter did, and the facts that its command says next to the counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from curate.columns import describe
from curate.policies.audit.results import Promise
from curate.policies.filter.by_verdicts import ByVerdicts
from curate.policies.filter.even import Evened
from curate.policies.filter.guaranteed import MaxBadRate
from curate.policies.filter.named import Keys, WithoutKeys, named
from curate.policies.filter.rules import DropBottom, KeepTop, Rule, Verdict, amount_of, typed
from curate.policies.outcomes import DROP
from curate.policies.result import Result
from curate.tables.rows import Rows
from curate.tables.table import Table


@dataclass(frozen=True)
class FilterResult(Result):
    """What a filter did.

    Attributes:
        evened: by rule as typed, what became of the groups that no amount may empty.
    """

    evened: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        return {**super().facts(), **({"evened": self.evened} if self.evened else {})}


@dataclass(frozen=True)
class WorksOn:
    """The column that a rule judges by.

    Attributes:
        rule: as typed.
        column: its name.
        meaning: of the column.
        higher: what a high value says; empty where nothing is known, and high values are kept.
    """

    rule: str
    column: str
    meaning: str
    higher: str


@dataclass(frozen=True)
class TooFew:
    """A rule that asks for more rows than were left.

    Attributes:
        rule: as typed.
        requested: rows that it asks for.
        left: rows that the earlier rules left.
    """

    rule: str
    requested: int
    left: int


@dataclass(frozen=True)
class OtherReading:
    """An amount that may be meant as another one.

    Attributes:
        rule: as typed.
        text: what it is, and what else could be meant.
    """

    rule: str
    text: str


@dataclass(frozen=True)
class Guarantee:
    """What is promised of the rows that are kept.

    Attributes:
        rule: as typed.
        confidence: of it.
        promise: which of ``PROMISES``.
        promised: the numbers.
    """

    rule: str
    confidence: float
    promise: str
    promised: Promise


@dataclass(frozen=True)
class Names:
    """How many rows a rule by names found.

    Attributes:
        rule: as typed.
        n_keys: that its file names.
        n_found: rows of the table with one of them.
        spelling: a note on keys that are written otherwise.
    """

    rule: str
    n_keys: int
    n_found: int
    spelling: str = ""


@dataclass(frozen=True)
class Decisions:
    """What the verdicts of reviewers did; one sentence a line.

    Attributes:
        text: the sentence.
    """

    text: str


@dataclass(frozen=True)
class Spread:
    """Groups that an amount took less of than a plain cut would have.

    Attributes:
        rule: as typed.
        evened: the groups.
    """

    rule: str
    evened: Evened


Note = WorksOn | TooFew | OtherReading | Names | Decisions | Guarantee | Spread


def notes_of(rules: Sequence[Rule], verdict: Verdict, table_rows: Rows, table: Table) -> list[Note]:
    """Return what the rules used, and what they found."""
    notes: list[Note] = []
    for index, (rule, n, outcome) in enumerate(zip(rules, verdict.left, verdict.outcomes, strict=True)):
        if rule.column is not None and not isinstance(rule, MaxBadRate):
            column = describe(rule.column)
            notes.append(WorksOn(typed(rule), rule.column, column.meaning, column.higher))
        if isinstance(rule, KeepTop | DropBottom):
            notes += _other_reading(rule, index, n, verdict)
        count = rule.amount if isinstance(rule, KeepTop | DropBottom) and rule.per is None else ""
        if str(count).isdigit() and int(count) > n:
            notes.append(TooFew(typed(rule), int(count), n))
        if isinstance(outcome, Evened) and outcome.limited:
            notes.append(Spread(typed(rule), outcome))
        if isinstance(rule, MaxBadRate):
            notes.append(Guarantee(typed(rule), rule.goal.confidence, rule.promise, outcome))
        if isinstance(rule, ByVerdicts):
            notes += map(Decisions, rule.notes(outcome))
        if isinstance(rule, Keys | WithoutKeys):
            notes.append(Names(typed(rule), len(rule.keys), int(named(rule, table_rows).sum()), rule.note))
    return list({repr(note): note for note in notes}.values())


def _other_reading(rule: KeepTop | DropBottom, index: int, n: int, verdict: Verdict) -> list[Note]:
    amount, flag = amount_of(rule), f"--{rule.name}"
    if amount.other_reading(flag, 0, n) is None:
        return []
    lost = verdict.outcome[verdict.rule == index]
    taken = n - len(lost) if isinstance(rule, KeepTop) else int((lost == DROP).sum())
    text = amount.other_reading(flag, taken, n)
    return [OtherReading(typed(rule), text)] if text else []
