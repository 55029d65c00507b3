"""From options in the order typed to rules."""

from collections.abc import Callable, Sequence

from curate.policies.filter.rules import DropBottom, KeepTop, Maximum, Minimum, Rule, Where
from curate.tables.signals import default_column
from curate.tables.table import Table
from scoring.errors import InputError

COLUMN, PER = "column", "per"
RANKS = ("keep_top", "drop_bottom")
SCORED = (*RANKS, "minimum", "maximum")
MAKERS: dict[str, Callable[[str, str, str | None], Rule]] = {
    "keep_top": KeepTop,
    "drop_bottom": DropBottom,
    "minimum": lambda bound, column, _: Minimum(bound, column),
    "maximum": lambda bound, column, _: Maximum(bound, column),
}


def rules_in_order(typed: Sequence[tuple[str, str]], table: Table) -> list[Rule]:
    """Return the rules that a command line asks for.

    ``column`` and ``per`` count for the rules after them. The only one of its kind that stands after every
    rule it could be for counts for all of them.

    Args:
        typed: (parameter, value) in the order of the command line.
        table: where the default column comes from.

    Raises:
        InputError: for a value that cannot be read, or a ``--column`` or ``--per`` without a rule after it.
    """
    column = _trailing(typed, COLUMN, SCORED)
    per = _trailing(typed, PER, RANKS)
    rules: list[Rule] = []
    for name, value in typed:
        if name == COLUMN:
            column = value
        elif name == PER:
            per = value
        elif name == "where":
            rules.append(Where(value))
        elif name in MAKERS:
            rules.append(MAKERS[name](value, column or default_column(table), per))
    return rules


def _trailing(typed: Sequence[tuple[str, str]], option: str, rules: Sequence[str]) -> str | None:
    """The value of ``option`` if it comes once, after all of ``rules``."""
    names = [name for name, _ in typed]
    if option not in names:
        return None
    last = len(names) - 1 - names[::-1].index(option)
    if any(name in rules for name in names[last:]):
        return None
    value = typed[last][1]
    flags = ", ".join("--" + name.replace("_", "-").replace("imum", "") for name in rules)
    if not any(name in rules for name in names):
        raise InputError(f"--{option} {value} is for one of {flags}, and there is none; add one")
    if names.count(option) > 1:
        raise InputError(f"--{option} {value} has no rule after it; put it before the one it is for ({flags})")
    return value
