"""The table of rules by name with their options, and rules of other packages; classes are imported on use."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

from curate.options.option import Option, shared
from scoring import plugins
from scoring.errors import InputError
from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.policies.filter.rule import Rule

Amount = str | float | None
Texts = str | Sequence[str] | None
File = str | Path | None
OPTION_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
Options = dict[str, Any]  # name on the command line, without -- -> Annotated[type | None, Option]


def rule_option(text: str, metavar: str, python: str = "") -> Option:
    """Return the option of a rule or setting, from its text, metavar, and text for Python."""
    return Option(text, metavar=metavar, python=python, repeats=True)


@dataclass(frozen=True)
class Line:
    """The registration of a built-in rule.

    Attributes:
        where: its class, ``package.module:Class``.
        option: of its value, Annotated[type | None, rule_option(...)]; here, so that help imports no rule.
        settings: options of this rule only.
    """

    where: str
    option: Any
    settings: Options = field(default_factory=dict)


# To add a rule, add a line.
LINES: dict[str, Line] = {
    "keep-top": Line(
        "curate.policies.filter.amounts:KeepTop",
        Annotated[Amount, rule_option("Keep the most certain: 0.8, 80% or 5000 (rows).", "AMOUNT")],
    ),
    "drop-bottom": Line(
        "curate.policies.filter.amounts:DropBottom",
        Annotated[Amount, rule_option("Drop the least certain: 0.2, 20% or 5000 (rows).", "AMOUNT")],
    ),
    "min": Line(
        "curate.policies.filter.named:Minimum",
        Annotated[float | None, rule_option("Keep values of at least X, in the column's unit.", "X")],
    ),
    "max": Line(
        "curate.policies.filter.named:Maximum",
        Annotated[float | None, rule_option("Keep values of at most X, in the column's unit.", "X")],
    ),
    "where": Line(
        "curate.policies.filter.named:Where",
        Annotated[str | None, rule_option("Keep rows that meet a condition on any columns.", "CONDITION")],
    ),
    "keys": Line(
        "curate.policies.filter.named:Keys",
        Annotated[File, rule_option("Keep the rows whose keys a CSV, list or table has in a column key.", "FILE")],
    ),
    "without-keys": Line(
        "curate.policies.filter.named:WithoutKeys",
        Annotated[
            File,
            rule_option(
                "Drop the rows whose keys it names, such as images ticked on a report.",
                "FILE",
                "Drop the rows whose keys a CSV, list or table has in a column key.",
            ),
        ],
    ),
    "verdicts": Line(
        "curate.policies.filter.named:ByVerdicts",
        Annotated[
            File, shared("--verdicts", ", by which rows are dropped, kept and relabelled", metavar="FILE", repeats=True)
        ],
    ),
    "like": Line(
        "curate.policies.filter.alike:Like",
        Annotated[
            Texts,
            rule_option(
                "Keep rows like a KEY or an IMAGE file; EXAMPLE=0.7 from that cosine on (repeatable).", "EXAMPLE"
            ),
        ],
    ),
    "unlike": Line(
        "curate.policies.filter.alike:Unlike",
        Annotated[Texts, rule_option("Drop rows like a KEY or an IMAGE file (repeatable).", "EXAMPLE")],
    ),
    "max-bad-rate": Line(
        "curate.policies.filter.guaranteed:MaxBadRate",
        Annotated[
            Amount, rule_option("Keep the most rows such that --audit shows at most SHARE of them is bad: 2%.", "SHARE")
        ],
        {
            "audit": Annotated[
                str | Path | Sequence[str | Path] | None,
                shared("--audit", ": NAME.audit.csv of curate review plan (repeatable)", metavar="FILE", repeats=True),
            ],
            "confidence": Annotated[Amount, shared("--confidence", ". [default: 95%]", metavar="SHARE", repeats=True)],
            "promise": Annotated[
                str | None,
                rule_option(
                    "confidence, or average: bad kept rows are at most SHARE of all, on average. [default: confidence]",
                    "KIND",
                ),
            ],
            "judges": Annotated[
                str | None, shared("--judges", ". [default: any]", metavar="any|majority|share", repeats=True)
            ],
        },
    ),
}
OF_RULES: Options = {
    name: kind for rule, line in LINES.items() for name, kind in {rule: line.option, **line.settings}.items()
}
OF_FILTER = ("column", "per")  # options that apply to rules, in the order typed


class RuleTable(Lazy["type[Rule]"]):
    """The built-in rules, then rules of other packages by the entry point group ``curate.rules``."""

    def __getitem__(self, name: str) -> "type[Rule]":
        if name in LINES:
            return super().__getitem__(name)
        from curate.policies.filter.rule import Rule

        rule = plugins.load_plugin(plugins.plugins(plugins.RULES)[name])
        if not (isinstance(rule, type) and issubclass(rule, Rule) and getattr(rule, "name", None) == name):
            raise InputError(
                f"the plug-in {name!r} is not a rule: expected a subclass of Rule of that name, got {rule!r}"
            )
        if not isinstance(rule.settings, Mapping):
            raise InputError(f"the plug-in {name!r} is not a rule: expected settings as a dict, got {rule.settings!r}")
        if wrong := [
            each for each in (name, *rule.settings) if not OPTION_NAME.fullmatch(str(each)) or iskeyword(str(each))
        ]:
            raise InputError(
                f"the plug-in {name!r} is not a rule: expected options of small letters, digits and hyphens "
                f"that are not Python keywords, got {wrong[0]!r}"
            )
        lacking = sorted(rule.__abstractmethods__)
        for each, kind in {name: rule.option, **rule.settings}.items():
            about = getattr(kind, "__metadata__", None) or (None,)
            lacking += [] if isinstance(about[0], Option) else [each]
        if lacking:
            raise InputError(
                f"the plug-in {name!r} is not a rule: it lacks {lacking[0]}; an option is Annotated[type | None, "
                "rule_option(text, metavar)]"
            )
        return rule

    def __contains__(self, name: object) -> bool:
        known = name in OF_RULES or name in OF_FILTER  # built-in names first, since looking for packages takes 15 ms
        return name in LINES if known else name in plugins.plugins(plugins.RULES)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the usable rules."""
        broken = self.broken()
        return (name for name in dict.fromkeys([*LINES, *plugins.plugins(plugins.RULES)]) if name not in broken)

    def __len__(self) -> int:
        return len(list(iter(self)))

    def settings(self, name: str) -> Options:
        """Return the options that only a rule uses."""
        return LINES[name].settings if name in LINES else self[name].settings

    def owner(self, option: str) -> str:
        """Return the only rule that uses an option."""
        return next(name for name in self if option in self.settings(name))

    def broken(self) -> dict[str, InputError]:
        """Return the errors of rules of other packages that cannot be imported, or are not rules, by name."""
        problems = {}
        for name in plugins.plugins(plugins.RULES):
            try:
                self[name]
            except InputError as error:
                problems[name] = error
        return problems

    def added(self) -> Options:
        """Return the options of usable rules of other packages, imported; InputError for a name that is taken."""
        options: Options = {}
        broken = self.broken()
        for name, point in plugins.plugins(plugins.RULES).items():
            if name in broken:
                continue
            if name in LINES:
                raise InputError(
                    f"{plugins.package_of(point)} adds a rule {name!r}, which curate already has; remove that "
                    "package, or rename its rule"
                )
            new = {name: self[name].option, **self[name].settings}
            if twice := sorted({*new} & {*OF_RULES, *options}):
                raise InputError(
                    f"{plugins.package_of(point)} adds an option --{twice[0]}, which already exists; remove "
                    "that package, or rename its option"
                )
            options |= new
        return options


RULES = RuleTable({name: line.where for name, line in LINES.items()})


def may_repeat(annotated: Any) -> bool:
    """Return whether an option of a rule may have several values: its type is a sequence."""
    return any(get_origin(each) is Sequence for each in get_args(get_args(annotated)[0]))
