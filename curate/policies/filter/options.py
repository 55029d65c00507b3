"""The options of ``curate filter``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from curate.options import fields
from curate.options.option import Note, Option, declared, shared
from curate.policies.filter.table import OF_RULES, Options
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.policies.filter.rule import Rule


@dataclass(frozen=True, eq=False, repr=False)
class _Table:
    """The options that are not rules."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": the subset, such as kept.parquet", path="output")] = None
    rules: Annotated[
        Sequence["Rule | tuple[str, Any]"] | None,
        Note(
            "Rules, or (keyword, value) such as ('keep_top', '80%'), each for the rows that the earlier ones left. "
            "Keywords apply in the order column, per, where, keys, without_keys, verdicts, like, unlike, min, max, "
            "drop_bottom, keep_top, max_bad_rate."
        ),
    ] = None


@dataclass(frozen=True, eq=False, repr=False)
class FilterRequest(_Table):
    """The options of ``curate filter`` except rule options, which are declared in their lines and classes."""

    _: KW_ONLY
    column: Annotated[
        str | None,
        shared(
            "--column",
            " for the rules after it. [default: unc_fitted, and unc_local for amounts; else the model's own]",
            metavar="NAME",
            repeats=True,
        ),
    ] = None
    per: Annotated[
        str | None,
        shared("--per", ": later --keep-top and --drop-bottom apply within each", metavar="NAME", repeats=True),
    ] = None
    label: Annotated[
        str | None, shared("--label", " from which amounts drop equal shares. [default: label, else cluster]")
    ] = None
    allow_uneven: Annotated[bool, Option("Allow amounts to drop more of some classes or clusters.")] = False
    allow_unmatched: fields.AllowUnmatched = False
    model: Annotated[
        str | Path | None, shared("--model", ": the table's, for an IMAGE, if it does not ship", path="name")
    ] = None
    embedding: fields.Embedding = None
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False


def with_rules(options: Options) -> type[FilterRequest]:
    """Return ``FilterRequest`` with a keyword for each option of a rule; InputError for a name that is taken.

    ``options``: name -> Annotated[type | None, Option], as in ``Line``.
    """
    names = {name: name.replace("-", "_") for name in options}
    if taken := sorted({*names.values()} & {"help", *(each.name for each in declared(FilterRequest))}):
        raise InputError(f"a rule cannot take --{taken[0].replace('_', '-')}, an option of every filter; rename it")
    kinds = [(names[name], kind, field(default=None, kw_only=True)) for name, kind in options.items()]
    same: dict[str, Any] = {"frozen": True, "eq": False, "repr": False}
    rules = make_dataclass("_Rules", kinds, bases=(_Table,), **same)
    request: type[FilterRequest] = make_dataclass("FilterOptions", [], bases=(FilterRequest, rules), **same)
    return request


FilterOptions = with_rules(OF_RULES)
