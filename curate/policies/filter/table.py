"""Every rule by name; a class is imported when it is looked up, so that help can name all at no cost."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scoring.lookup import Lazy

if TYPE_CHECKING:
    from curate.policies.filter.rule import Rule


@dataclass(frozen=True)
class Option:
    """What a rule is typed as.

    Attributes:
        where: its class, ``"package.module:Class"``.
        metavar: what its value is.
        text: what it does; where it starts with a colon, after what the option is in other commands.
    """

    where: str
    metavar: str
    text: str


OPTIONS: dict[str, Option] = {  # to add a rule, add a line
    "keep-top": Option(
        "curate.policies.filter.amounts:KeepTop", "AMOUNT", "Keep the most certain: 0.8, 80% or 5000 (rows)."
    ),
    "drop-bottom": Option(
        "curate.policies.filter.amounts:DropBottom", "AMOUNT", "Drop the least certain: 0.2, 20% or 5000 (rows)."
    ),
    "min": Option("curate.policies.filter.bounds:Minimum", "X", "Keep values of at least X, in the column's unit."),
    "max": Option("curate.policies.filter.bounds:Maximum", "X", "Keep values of at most X, in the column's unit."),
    "where": Option(
        "curate.policies.filter.condition:Where", "CONDITION", "Keep rows that meet a condition on any columns."
    ),
    "like": Option(
        "curate.policies.filter.alike:Like",
        "EXAMPLE",
        "Keep rows like a KEY or an IMAGE file; EXAMPLE=0.7 from that cosine on (repeatable).",
    ),
    "unlike": Option("curate.policies.filter.alike:Unlike", "EXAMPLE", "Drop rows like a KEY or an IMAGE file, too."),
    "keys": Option(
        "curate.policies.filter.named:Keys",
        "FILE",
        "Keep the rows whose keys a CSV, list or table names in a column key.",
    ),
    "without-keys": Option(
        "curate.policies.filter.named:WithoutKeys",
        "FILE",
        "Drop the rows whose keys it names: what was ticked on a report.",
    ),
    "verdicts": Option("curate.policies.filter.by_verdicts:ByVerdicts", "FILE", ": drop, keep and relabel rows by it."),
    "max-bad-rate": Option(
        "curate.policies.filter.guaranteed:MaxBadRate",
        "SHARE",
        "Keep the most rows of which --audit shows that at most SHARE is bad: 2%.",
    ),
}


class _Where(Mapping[str, str]):
    """Name -> where its class is, of all lines that ``OPTIONS`` has now."""

    def __getitem__(self, name: str) -> str:
        return OPTIONS[name].where

    def __iter__(self) -> Iterator[str]:
        return iter(OPTIONS)

    def __len__(self) -> int:
        return len(OPTIONS)


RULES: "Mapping[str, type[Rule]]" = Lazy(_Where())
