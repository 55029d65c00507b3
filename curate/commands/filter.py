"""``curate filter``: parse the rules in the order typed, apply them, report."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.order import typed
from curate.commands.printing import emit, printers, say_files
from curate.counted import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from curate.policies.filter.result import Note, Spread
    from curate.policies.filter.rules import Rule
    from curate.policies.result import Result
    from curate.tables.fits import FittedApart

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


def run(
    ctx: typer.Context,
    table: options.Table,
    out: Annotated[Path | None, options.written_to("--out", ": the subset, such as kept.parquet")] = None,
    keep_top: Annotated[
        Texts, typer.Option(metavar="AMOUNT", help="Keep the most certain: 0.8, 80% or 5000 (rows).")
    ] = None,
    drop_bottom: Annotated[
        Texts, typer.Option(metavar="AMOUNT", help="Drop the least certain: 0.2, 20% or 5000 (rows).")
    ] = None,
    min: Annotated[Texts, typer.Option(metavar="X", help="Keep values of at least X, in the column's unit.")] = None,
    max: Annotated[Texts, typer.Option(metavar="X", help="Keep values of at most X, in the column's unit.")] = None,
    where: Annotated[
        Texts, typer.Option(metavar="CONDITION", help="Keep rows that meet a condition on any columns.")
    ] = None,
    like: Annotated[
        Texts,
        typer.Option(
            metavar="EXAMPLE",
            help="Keep rows like a KEY or an IMAGE file; EXAMPLE=0.7 from that cosine on (repeatable).",
        ),
    ] = None,
    unlike: Annotated[
        Texts, typer.Option(metavar="EXAMPLE", help="Drop rows like a KEY or an IMAGE file, too.")
    ] = None,
    keys: Annotated[
        Texts,
        typer.Option(metavar="FILE", help="Keep the rows whose keys a CSV, list or table names in a column key."),
    ] = None,
    without_keys: Annotated[
        Texts, typer.Option(metavar="FILE", help="Drop the rows whose keys it names: what was ticked on a report.")
    ] = None,
    verdicts: Annotated[
        Texts, options.shared("--verdicts", ": drop, keep and relabel rows by it", metavar="FILE")
    ] = None,
    max_bad_rate: Annotated[
        Texts,
        typer.Option(metavar="SHARE", help="Keep the most rows of which --audit shows that at most SHARE is bad: 2%."),
    ] = None,
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
        options.shared(
            "--label", " of which amounts drop at most twice the average share. [default: label, else cluster]"
        ),
    ] = None,
    allow_uneven: Annotated[
        bool, typer.Option("--allow-uneven", help="Let amounts drop far more of some classes or clusters.")
    ] = False,
    allow_unmatched: options.AllowUnmatched = False,
    model: Annotated[str | None, options.shared("--model", ": the table's, for an IMAGE, if it does not ship")] = None,
    embedding: options.Embedding = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
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
    rows; ties break by a hash of the key. They drop at most twice the average share of any class or cluster.
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
    notes = [_note(note) for note in result.notes]
    return notes if result.kept else [*notes, "no row is left: the subset is empty"]


def _note(note: "Note | FittedApart") -> str:
    from curate.policies.filter.result import Decisions, Guarantee, OtherReading, Spread, TooFew, WorksOn
    from curate.tables.fits import FittedApart

    if isinstance(note, FittedApart):
        return note.words()
    if isinstance(note, Spread):
        return _spread(note)
    if isinstance(note, OtherReading | Decisions):
        return note.text
    if isinstance(note, Guarantee):
        return note.promised.line(note.rule, note.confidence, note.promise)

    if isinstance(note, WorksOn):
        return f"{note.rule} works on {note.column} ({note.meaning}; higher: {note.higher or 'taken as better'})"
    if isinstance(note, TooFew):
        return f"{note.rule} asks for {note.requested:,} rows, {note.left:,} were left"
    text = f"{note.rule}: {note.n_found:,} of {counted(note.n_keys, 'key')} are in the table"
    return f"{text}; {note.spelling}" if note.spelling else text


def _spread(note: "Spread") -> str:
    spread, first = note.evened, note.evened.limited[0]
    what = {"label": "class", "cluster": "cluster"}.get(spread.column, spread.column)
    more = f", and {len(spread.limited) - 1} more" if len(spread.limited) > 1 else ""
    return (
        f"{note.rule}: {what} {first.group} would lose {first.plain / first.rows:.0%} of {first.rows:,} rows (all: "
        f"{spread.share:.0%}); limited to {first.dropped / first.rows:.0%}{more}: other rows are dropped instead; "
        "--allow-uneven lifts the limit"
    )


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
