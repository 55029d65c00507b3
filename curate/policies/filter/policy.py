"""A filter applied to a table: rules keep and drop rows by their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Self

from curate.columns import KEY
from curate.options.function import callable_of
from curate.policies.apply import apply
from curate.policies.decided import Decided
from curate.policies.filter.options import FilterRequest, with_rules
from curate.policies.filter.request import rules_of
from curate.policies.filter.rule import Rule
from curate.policies.filter.rules import decide, needs_of, notes_of, rule_from_json
from curate.policies.filter.ruling import Verdict
from curate.policies.filter.table import OF_RULES, RULES
from curate.policies.filter.words import MEANINGS, DecisionWords
from curate.policies.outcomes import DECISION_SCHEMA, DROP, UNDECIDED
from curate.policies.outputs import Files
from curate.policies.result import Result
from curate.tables.fits import fitted_apart
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError


@dataclass(frozen=True)
class FilterResult(Result):
    """The result of a filter.

    Attributes:
        evened: by rule as typed, what became of the groups of which amounts take equal shares.
    """

    evened: dict[str, Any] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        return {**super().facts(), **({"evened": self.evened} if self.evened else {})}


@dataclass(frozen=True)
class Filter:
    """Rules in the order applied, each to the rows that the earlier ones left; a ``Policy``.

    Raises:
        InputError: without a rule.
    """

    rules: tuple[Rule, ...]

    @property
    def files(self) -> Files:
        """Files that name keys, and that say which rows are bad."""
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

    def decide(self, table: Table) -> Decided[FilterResult]:
        """Decide every row of a table; InputError for a column or key that cannot be used."""
        needs = needs_of(self.rules, table)
        needs.refuse_unread_embeddings(table, "--like and --unlike")
        table_rows = read_rows(table, needs)
        verdict = decide(self.rules, table_rows)
        words = DecisionWords(self.rules, table_rows, verdict)
        ruled = list(zip(self.rules, words.results, strict=True))
        settled = [rule.settle(result, table) for rule, result in ruled]
        notes = [note for rule, result in ruled for note in notes_of(rule, result)]
        notes += fitted_apart(table, needs.columns(table))
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


def run_filter(options: FilterRequest) -> FilterResult:
    """Keep the rows that satisfy every rule; write subset, decisions and receipt.

    Memory stays bounded: some 25 bytes a row at the peak and 64 MB a batch, whatever the table holds; more where
    rows are ranked within groups, which sorts them.

    Returns:
        Counts, notes and paths.

    Raises:
        InputError: for a table, column, rule or output that cannot be used; nothing is written then.
    """
    table = open_table(options.table, require=[KEY], embedding=options.embedding)
    rules = rules_of(options, table)
    return apply(Filter(tuple(rules)), table, options.out, dry_run=options.dry_run, overwrite=options.overwrite)


filter: Callable[..., FilterResult]


@cache
def _filter() -> Callable[..., FilterResult]:
    return callable_of(with_rules(OF_RULES | RULES.added()), run_filter)


def __getattr__(name: str) -> Any:
    """Return ``filter`` once it is used: rules of other packages add keywords to it."""
    if name == "filter":
        return _filter()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
