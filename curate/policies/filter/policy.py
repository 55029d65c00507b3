"""Filtering of a table: rules keep and drop rows by their scores."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Self

from curate.columns import KEY, LABEL
from curate.options.function import callable_of, checked
from curate.options.option import Option, declared
from curate.policies.contract import apply
from curate.policies.decided import DECISION_SCHEMA, DROP, UNDECIDED, Decided, Result
from curate.policies.filter.options import FilterRequest, with_rules
from curate.policies.filter.rule import COLUMN, EVEN, PER, Rule, RuleArguments, Verdict, require_type
from curate.policies.filter.rules import MEANINGS, DecisionWords, decide, needs_of, notes_of, rule_from_json
from curate.policies.filter.table import OF_RULES, RULES, may_repeat
from curate.policies.outputs import Files
from curate.tables.needs import is_plain
from curate.tables.provenance import fitted_apart
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
from scoring.errors import InputError
from scoring.lookup import closest
from scoring.relative.columns import CLUSTER


def rules_of(options: FilterRequest, table: Table) -> list[Rule]:
    """Return the rules of a command line, or of Python keywords.

    ``column`` and ``per`` apply to the rules after them; a single one after all rules that it could apply to applies to
    all of them. All ``like`` examples form one rule at the position of the first, which keeps rows similar to any; the
    same for ``unlike``.

    Args:
        options: with ``rules``, or else keywords.
        table: for the default column and the keys of examples.

    Raises:
        InputError: for an invalid value, or an option of a rule without a rule after it.
    """
    fields = declared(type(options))
    kinds = {each.name: each.kind for each in fields if isinstance(each.about, Option) and each.about.repeats}
    named = [(name, value) for name in kinds if (value := getattr(options, name)) is not None]
    if options.rules is None:
        return _rules_in_order(sorted(named, key=_stage), options, table)
    if named:
        raise InputError(f"{named[0][0]} and rules are both given; add it to rules, or leave one out")
    typed = [_pair(each, kinds) for each in options.rules if not isinstance(each, Rule)]
    if len(typed) == len(options.rules):
        return _rules_in_order(typed, options, table)
    if typed or options.label is not None or options.allow_uneven or options.allow_unmatched:
        raise InputError(
            "Rule objects exclude label, allow_uneven, allow_unmatched and (keyword, value); set even= of each rule"
        )
    return [each for each in options.rules if isinstance(each, Rule)]


def _stage(pair: tuple[str, Any]) -> int:
    """Return the stage at which a keyword's rule applies."""
    name = pair[0].replace("_", "-")
    return -1 if name in (COLUMN, PER) else RULES[name].stage if name in RULES else 0


def _pair(entry: object, kinds: Mapping[str, Any]) -> tuple[str, Any]:
    """Return an entry of ``rules`` as (keyword, value); TypeError unless it is a keyword with a value of its type."""
    if not isinstance(entry, tuple | list) or len(entry) != 2 or not isinstance(entry[0], str):
        raise TypeError(f"filter() expected a Rule or (keyword, value) for each of 'rules', got {entry!r}")
    name, value = entry
    keyword = name.replace("-", "_")
    if keyword not in kinds:
        kinds = {**kinds, **{each.replace("-", "_"): kind.__origin__ for each, kind in RULES.added().items()}}
    if keyword not in kinds:
        raise TypeError(f"filter() got an unexpected keyword {name!r} in 'rules'{closest(name, kinds)}")
    return name, checked(kinds[keyword] | str, value, "filter()", f"{name!r} of 'rules'")


def _rules_in_order(typed: Sequence[tuple[str, Any]], options: FilterRequest, table: Table) -> list[Rule]:
    """Return the rules for (keyword, value), with ``_`` or ``-`` in the names; ``options`` apply to all of them."""
    even = _even_column(table, options.label, options.allow_uneven, typed)
    names = [name.replace("_", "-") for name, _ in typed]
    values = [value for _, value in typed]
    trailing = {option: _trailing(names, values, option) for option in (COLUMN, PER)}
    _refuse_lone(names)
    rules: list[Rule] = []
    for place, (name, value) in enumerate(zip(names, values, strict=True)):
        if name in trailing:
            trailing[name] = value
        elif name in RULES and not (RULES[name].gathers and name in names[:place]):
            settings = {option: _listed(values, names, option) for option in RULES.settings(name) if option in names}
            arguments = RuleArguments(
                table,
                _listed(values, names, name),
                even=even,
                settings=settings,
                model=options.model,
                allow_unmatched=options.allow_unmatched,
                **trailing,
            )
            rules.append(require_type(name, RULES[name].read(value, arguments), Rule))  # type: ignore[type-abstract]
    return rules


def _even_column(table: Table, label: str | None, allow_uneven: bool, typed: Sequence[tuple[str, Any]]) -> str | None:
    """Return the column of the groups with equal shares of an amount; None for a plain cut."""
    names = {name.replace("_", "-") for name, _ in typed}
    if label is not None and not any(EVEN in RULES[name].takes for name in names if name in RULES):
        amounts = [name for name, rule in RULES.items() if EVEN in rule.takes]
        raise InputError(f"--label {label} is for {' and '.join(f'--{name}' for name in amounts)}; add one")
    if label is not None and allow_uneven:
        raise InputError(
            f"--allow-uneven lets amounts drop more of some classes, and --label {label} protects them; leave one out"
        )
    if allow_uneven:
        return None
    if label is not None:
        table.require([label])
        return label
    columns = (name for name in (LABEL, CLUSTER) if name in table.schema.names)
    return next((name for name in columns if is_plain(table.schema.field(name).type)), None)


def _listed(values: Sequence[Any], names: Sequence[str], name: str) -> list[Any]:
    """Return all values of an option, each given as a single value or a list."""
    values_of = [value for value, of in zip(values, names, strict=True) if of == name]
    return [each for value in values_of for each in (value if isinstance(value, list | tuple) else [value])]


def _refuse_lone(names: Sequence[str]) -> None:
    """Raise InputError for an option of a rule without the rule, and for repeated single options."""
    for option in (each for each in names if each not in (COLUMN, PER) and each not in RULES):
        if (rule := RULES.owner(option)) not in names:
            raise InputError(f"--{option} needs --{rule}; add it")
    for name in (each for each in dict.fromkeys(names) if each in RULES):
        for once in ([name] if RULES[name].once else []) + [
            option for option, kind in RULES.settings(name).items() if not may_repeat(kind)
        ]:
            if list(names).count(once) > 1:
                raise InputError(f"--{once} is given {list(names).count(once)} times; pass it once")


def _trailing(names: Sequence[str], values: Sequence[Any], option: str) -> Any:
    """Return the value of ``option`` if it occurs once, after all rules that it could apply to; else None."""
    if option not in names:
        return None
    rules = [name for name in dict.fromkeys(names) if name in RULES and option in RULES[name].takes]
    in_turn = [(name, value) for name, value in zip(names, values, strict=True) if name == option or name in rules]
    for (name, value), (following, other) in pairwise(in_turn):
        if name == following == option:
            raise InputError(f"--{option} {value} has no rule before --{option} {other}; leave one of them out")
    last = len(names) - 1 - names[::-1].index(option)
    if any(name in rules for name in names[last:]):
        return None
    flags = ", ".join(f"--{name}" for name, rule in RULES.items() if option in rule.takes)
    if not any(name in rules for name in names):
        raise InputError(f"--{option} {values[last]} needs one of {flags}; add one")
    if names.count(option) > 1:
        raise InputError(f"--{option} {values[last]} has no rule after it; put it before its rule ({flags})")
    return values[last]


@dataclass(frozen=True)
class FilterResult(Result):
    """The result of a filter.

    Attributes:
        evened: by rule as typed, outcomes of the groups with equal shares.
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
        """Files with keys, and files with verdicts."""
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
        """Return the rules in a receipt; InputError for another policy."""
        return cls(tuple(rule_from_json(rule) for rule in rules))

    def decide(self, table: Table) -> Decided[FilterResult]:
        """Decide every row of a table; InputError for an unusable column or key."""
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
        """Return the rows of an outcome by rule as typed; a repeated rule is counted once."""
        total: dict[str, int] = {}
        for number, rule in enumerate(self.rules):
            n = int(((verdict.rule == number) & (verdict.outcome == outcome)).sum())
            total[rule.typed()] = total.get(rule.typed(), 0) + n
        return total


def run_filter(options: FilterRequest) -> FilterResult:
    """Keep the rows that satisfy every rule; write subset, decisions and receipt.

    Memory: about 25 bytes per row and 64 MB per batch, more if rows are ranked within groups, which sorts them.

    Returns:
        Counts, notes and paths.

    Raises:
        InputError: for an unusable table, column, rule or output; nothing is written.
    """
    table = open_table(options.table, require=[KEY], embedding=options.embedding)
    rules = rules_of(options, table)
    return apply(Filter(tuple(rules)), table, options.out, dry_run=options.dry_run, overwrite=options.overwrite)


filter: Callable[..., FilterResult]


@cache
def _filter() -> Callable[..., FilterResult]:
    return callable_of(with_rules(OF_RULES | RULES.added()), run_filter)


def __getattr__(name: str) -> Any:
    """Return ``filter``, created on first use, since rules of other packages add keywords."""
    if name == "filter":
        return _filter()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
