"""What ``curate filter`` can be given."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from curate.options import fields
from curate.options.option import Note, Option, shared

if TYPE_CHECKING:
    from curate.policies.filter.rule import Rule

Amount = str | float | None
Bound = float | None
Texts = str | Sequence[str] | None
File = str | Path | None
# Keywords of rules, and of what they take, in the order in which keywords apply.
IN_ORDER = (
    *("column", "per", "where", "keys", "without_keys", "verdicts", "like", "unlike", "min", "max"),
    *("drop_bottom", "keep_top", "audit", "confidence", "promise", "judges", "max_bad_rate"),
)


def rule(text: str, metavar: str, python: str = "") -> Option:
    """Return the option of a rule, or of what one takes, which applies in the order typed."""
    return Option(text, metavar=metavar, python=python, repeats=True)


@dataclass(frozen=True, eq=False, repr=False)
class FilterOptions:
    """The options of ``curate filter``; to add a rule, add its field and a line in ``curate.policies.filter.table``."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": the subset, such as kept.parquet", path="output")] = None
    rules: Annotated[
        Sequence["Rule | tuple[str, Any]"] | None,
        Note(
            "Rules, or (keyword, value) such as ('keep_top', '80%'), each for the rows that the earlier ones left. "
            f"Keywords apply in the order {', '.join(IN_ORDER)}."
        ),
    ] = None
    _: KW_ONLY
    keep_top: Annotated[Amount, rule("Keep the most certain: 0.8, 80% or 5000 (rows).", "AMOUNT")] = None
    drop_bottom: Annotated[Amount, rule("Drop the least certain: 0.2, 20% or 5000 (rows).", "AMOUNT")] = None
    min: Annotated[Bound, rule("Keep values of at least X, in the column's unit.", "X")] = None
    max: Annotated[Bound, rule("Keep values of at most X, in the column's unit.", "X")] = None
    where: Annotated[str | None, rule("Keep rows that meet a condition on any columns.", "CONDITION")] = None
    like: Annotated[
        Texts, rule("Keep rows like a KEY or an IMAGE file; EXAMPLE=0.7 from that cosine on (repeatable).", "EXAMPLE")
    ] = None
    unlike: Annotated[Texts, rule("Drop rows like a KEY or an IMAGE file, too.", "EXAMPLE")] = None
    keys: Annotated[File, rule("Keep the rows whose keys a CSV, list or table names in a column key.", "FILE")] = None
    without_keys: Annotated[
        File,
        rule(
            "Drop the rows whose keys it names: what was ticked on a report.",
            "FILE",
            "Drop the rows whose keys a CSV, list or table names in a column key.",
        ),
    ] = None
    verdicts: Annotated[
        File, shared("--verdicts", ": drop, keep and relabel rows by it", metavar="FILE", repeats=True)
    ] = None
    max_bad_rate: Annotated[
        Amount, rule("Keep the most rows of which --audit shows that at most SHARE is bad: 2%.", "SHARE")
    ] = None
    audit: Annotated[
        str | Path | Sequence[str | Path] | None,
        shared("--audit", ": NAME.audit.csv of curate review plan (repeatable)", metavar="FILE", repeats=True),
    ] = None
    confidence: Annotated[
        str | float | None, shared("--confidence", ". [default: 95%]", metavar="SHARE", repeats=True)
    ] = None
    promise: Annotated[
        str | None,
        rule(
            "confidence, or average: bad kept rows are at most SHARE of all, on average. [default: confidence]", "KIND"
        ),
    ] = None
    judges: Annotated[
        str | None, shared("--judges", ". [default: any]", metavar="any|majority|share", repeats=True)
    ] = None
    column: Annotated[
        str | None,
        shared(
            "--column",
            " of the rules after it. [default: unc_fitted, and unc_local for amounts; else the model's own]",
            metavar="NAME",
            repeats=True,
        ),
    ] = None
    per: Annotated[
        str | None,
        shared("--per", ": --keep-top and --drop-bottom after it judge in each", metavar="NAME", repeats=True),
    ] = None
    label: Annotated[
        str | None, shared("--label", " of which amounts drop the same share. [default: label, else cluster]")
    ] = None
    allow_uneven: Annotated[bool, Option("Let amounts drop more of some classes or clusters.")] = False
    allow_unmatched: fields.AllowUnmatched = False
    model: Annotated[
        str | Path | None, shared("--model", ": the table's, for an IMAGE, if it does not ship", path="name")
    ] = None
    embedding: fields.Embedding = None
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
