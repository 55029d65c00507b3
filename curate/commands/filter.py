"""``curate filter``: parse the rules in the order typed, apply them, report."""

from collections.abc import Callable
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.order import typed
from curate.commands.printing import emit, printers, say_files
from curate.counted import counted
from curate.policies.filter.table import OPTIONS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from curate.policies.filter.rule import Rule
    from curate.policies.result import Result

Texts = list[str] | None
MOST_PER_CENT = 100
MOST_CLASSES = 50  # that a dry run lists
# Why a row is shown -> the text on it.
WHY = {
    "goes": "would go",
    "worst": "would go, the worst",
    "just dropped": "would go, nearest to the cut",
    "just kept": "would stay, nearest to the cut",
}


def with_rules(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has an option for every rule, after ``--out``; their values come by ``order.typed``."""
    known = signature(command)
    parameters = [each for each in known.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    rules = []
    for name, rule in OPTIONS.items():
        said = options.MEANS[f"--{name}"] if rule.text.startswith(":") else ""
        option = typer.Option(f"--{name}", metavar=rule.metavar, help=said + rule.text)
        kind = Annotated[Texts, option]
        rules.append(Parameter(name.replace("-", "_"), Parameter.POSITIONAL_OR_KEYWORD, default=None, annotation=kind))
    after = 1 + [each.name for each in parameters].index("out")
    parameters[after:after] = rules
    command.__annotations__.update({each.name: each.annotation for each in rules})
    command.__signature__ = known.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


@with_rules
def run(
    ctx: typer.Context,
    table: options.Table,
    out: Annotated[Path | None, options.written_to("--out", ": the subset, such as kept.parquet")] = None,
    audit: Annotated[
        Texts, options.shared("--audit", ": NAME.audit.csv of curate review plan (repeatable)", metavar="FILE")
    ] = None,
    confidence: Annotated[Texts, options.shared("--confidence", ". [default: 95%]", metavar="SHARE")] = None,
    promise: Annotated[
        Texts,
        typer.Option(
            metavar="KIND",
            help="confidence, or average: bad kept rows are at most SHARE of all, on average. [default: confidence]",
        ),
    ] = None,
    judges: Annotated[Texts, options.shared("--judges", ". [default: any]", metavar="any|majority|share")] = None,
    column: Annotated[
        Texts,
        options.shared(
            "--column",
            " of the rules after it. [default: unc_fitted, and unc_local for amounts; else the model's own]",
            metavar="NAME",
        ),
    ] = None,
    per: Annotated[
        Texts,
        options.shared("--per", ": --keep-top and --drop-bottom after it judge in each", metavar="NAME"),
    ] = None,
    label: Annotated[
        str | None,
        options.shared("--label", " of which amounts drop the same share. [default: label, else cluster]"),
    ] = None,
    allow_uneven: Annotated[
        bool, typer.Option("--allow-uneven", help="Let amounts drop more of some classes or clusters.")
    ] = False,
    allow_unmatched: options.AllowUnmatched = False,
    model: Annotated[str | None, options.shared("--model", ": the table's, for an IMAGE, if it does not ship")] = None,
    embedding: options.Embedding = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
    **rules_: Any,
) -> None:
    """Keep the rows of a scored table that satisfy every rule.

    Example:

    \b
        curate filter scores.parquet --keep-top 80% -o kept.parquet
        curate filter scores.parquet --where 'width >= 200' --keep-top 500 --per label -o kept.parquet
        curate filter scores.parquet --max 0.5 --dry-run
        curate filter scores.parquet --unlike logo.png --unlike photos/0017.jpg=0.9 -o kept.parquet
        curate filter scores.parquet --without-keys keys.csv -o kept.parquet
        curate filter cleaned/subset.parquet --verdicts cleaned/subset.verdicts.jsonl -o final.parquet
        curate filter scores.parquet --max-bad-rate 2% --audit kept.audit.csv -o kept.parquet

    Rules apply in the order typed, each to the rows that the earlier ones left. High values are kept,
    except of unc_* columns, where low is certain. --keep-top and --drop-bottom keep exactly the requested number of
    rows; ties break by a hash of the key. They drop junk first, then the same share of every class or cluster; a class
    loses at most 1.25 times the average.
    Writes kept.parquet, kept.decisions.parquet (every row, and why) and kept.receipt.json, which `curate verify`
    checks. The table itself is never changed. A --column or --per after the last rule applies to all of them.
    """
    from curate.policies.filter.policy import filter
    from curate.policies.filter.request import rules_in_order
    from curate.tables.table import open_table

    opened = open_table(table, require=["key"], embedding=embedding)
    rules = rules_in_order(
        typed(ctx), opened, model=model, label=label, allow_uneven=allow_uneven, allow_unmatched=allow_unmatched
    )
    result = filter(table, out, rules, embedding=embedding, dry_run=dry_run, overwrite=overwrite)
    if json_:
        emit({**result.to_json(), "notes": filter_notes(result)})
    elif dry_run or not quiet:
        _report(result, rules, dry_run)


def filter_notes(result: "Result") -> list[str]:
    """Return what the rules used, which requested more than there was, and whether nothing is left."""
    return [*result.notes, *([] if result.kept else ["no row is left: the subset is empty"])]


def _no_value(why: str) -> str:
    return f"{why}: no value"


def _meant_shares(rules: "Sequence[Rule]") -> list[str]:
    """Notes on amounts that are counts of rows and could have been meant as per cent."""
    amounts = [(rule.name, str(getattr(rule, "amount", ""))) for rule in rules]
    return [
        f"--{name} {amount} is {counted(int(amount), 'row')}; {amount}% is a share"
        for name, amount in dict.fromkeys(amounts)
        if amount.isdecimal() and 1 < int(amount) <= MOST_PER_CENT
    ]


def _class_row(name: str, counts: tuple[int, int]) -> tuple[str, int, int, str]:
    rows, kept = counts
    return name, rows, kept, f"{kept / rows:.0%}"


def _report(result: "Result", rules: "Sequence[Rule]", dry_run: bool) -> None:
    from curate.policies.uneven import uneven_notes

    line, table = printers(requested=dry_run)
    for note in [*filter_notes(result), *_meant_shares(rules)]:
        line(note)
    table(result.account(_no_value), right=1)
    for text in uneven_notes(result):
        line(text)
    if dry_run:
        if result.classes and result.classes_of != "cluster":
            rows = [_class_row(*each) for each in [*result.classes.items()][:MOST_CLASSES]]
            table(rows, header=(result.classes_of, "rows", "kept", "share"))
        for example in result.examples:
            line(f"{WHY.get(example['why'], example['why'])}: {example['key']}: {example['reason']}")
    say_files(result, dry_run=dry_run)
