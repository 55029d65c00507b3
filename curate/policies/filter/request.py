"""Rules from options, in the order typed."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from curate.columns import LABEL
from curate.options.function import checked
from curate.options.option import Option, declared
from curate.policies.filter.options import FilterRequest
from curate.policies.filter.rule import COLUMN, EVEN, PER, Rule, RuleArguments
from curate.policies.filter.table import RULES, may_repeat
from curate.tables.needs import is_plain
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.lookup import closest
from scoring.relative.columns import CLUSTER


def rules_of(options: FilterRequest, table: Table) -> list[Rule]:
    """Return the rules of a command line, or of Python keywords.

    ``column`` and ``per`` count for the rules after them. The only one of its kind that stands
    after every rule it could be for counts for all of them. All examples of ``like`` are one rule, at the place of the
    first of them: a row that is like any is kept; so are examples of ``unlike``.

    Args:
        options: whose ``rules``, or else its keywords, are the rules.
        table: where the default column and the keys of examples come from.

    Raises:
        InputError: for a value that cannot be read, or an option of a rule without a rule after it.
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
            "label, allow_uneven, allow_unmatched and (keyword, value) are not for Rule objects; set each rule's even="
        )
    return [each for each in options.rules if isinstance(each, Rule)]


def _stage(pair: tuple[str, Any]) -> int:
    """Return when a keyword applies."""
    name = pair[0].replace("_", "-")
    return -1 if name in (COLUMN, PER) else RULES[name].stage if name in RULES else 0


def _pair(entry: object, kinds: Mapping[str, Any]) -> tuple[str, Any]:
    """Return an entry of ``rules`` that is not a Rule; TypeError unless it is a keyword with a value of its type."""
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
    """Return the rules of (keyword, value), ``_`` or ``-`` in the names; ``options`` apply to all of them."""
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
            rules.append(_read(name, value, arguments))
    return rules


def _read(name: str, value: Any, arguments: RuleArguments) -> Rule:
    """Return the rule of a typed value; InputError if a class of another package returns something else."""
    rule = RULES[name].read(value, arguments)
    if not isinstance(rule, Rule):
        raise InputError(f"--{name} has to read {value} as a Rule, got {type(rule).__name__}; repair its package")
    return rule


def _even_column(table: Table, label: str | None, allow_uneven: bool, typed: Sequence[tuple[str, Any]]) -> str | None:
    """Return the column of the groups that amounts cut evenly; None for a plain cut."""
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
    """Return all values of an option, each single or a list."""
    values_of = [value for value, of in zip(values, names, strict=True) if of == name]
    return [each for value in values_of for each in (value if isinstance(value, list | tuple) else [value])]


def _refuse_lone(names: Sequence[str]) -> None:
    """Refuse an option of a rule without the rule, and repeated single options."""
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
    """The value of ``option`` if it comes once, after all of the rules that it could be for."""
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
