"""``curate filter``: parse the rules in the order typed, apply them, print."""

import inspect
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import typer

from curate.commands.declared import command_of, parameter
from curate.commands.groups import OrderedCommand, typed
from curate.commands.printing import NextCommand, Output, after_policy, emit, printers, say, say_files
from curate.counted import counted
from curate.options.option import Field
from curate.policies.filter.options import FilterOptions, FilterRequest, with_rules
from scoring.errors import InputError

if TYPE_CHECKING:
    from curate.policies.decided import Result

AMOUNTS = ("keep_top", "drop_bottom")
MOST_PER_CENT = 100
MOST_CLASSES = 50  # classes listed by a dry run
# Why a row is shown -> the text on it.
WHY = {
    "goes": "would drop",
    "worst": "would drop, the worst",
    "just dropped": "would drop, nearest to the cut",
    "just kept": "would keep, nearest to the cut",
}


class RuleCommand(OrderedCommand):
    """A command that also has the options of rules; rules of other packages are imported on demand."""

    def __init__(self, *args: Any, **named: Any) -> None:
        self._params: list[Any] = []
        self._is_complete = True
        super().__init__(*args, **named)
        self._is_complete = False

    @property
    def params(self) -> list[Any]:
        """Return the parameters; InputError for a package whose rule uses a name twice."""
        if not self._is_complete:
            from curate.policies.filter.table import OF_RULES, RULES

            added = RULES.added()
            with_rules(OF_RULES | added)  # raises for a taken name
            of_rules = [index for index, each in enumerate(self._params) if each.name.replace("_", "-") in OF_RULES]
            self._params[of_rules[-1] + 1 : of_rules[-1] + 1] = [_option(*each) for each in added.items()]
            self._is_complete = True
        return self._params

    @params.setter
    def params(self, params: list[Any]) -> None:
        self._params = params

    def make_context(self, info_name: str | None, args: list[str], *more: Any, **named: Any) -> Any:
        """Parse a line; a package whose rule cannot be used, or clashes, ends it with one message."""
        from curate.policies.filter.table import RULES

        try:
            _ = self.params
            flags = {word.partition("=")[0] for word in args}
            for name, error in RULES.broken().items():
                if f"--{name}" in flags:
                    raise error
        except InputError as error:
            say(f"error: {error}")
            raise typer.Exit(1) from None
        return super().make_context(info_name, args, *more, **named)


def _option(name: str, kind: Any) -> Any:
    """Return the option of a rule, whose values come from the order of the line."""
    field = Field(name.replace("-", "_"), kind.__origin__, None, kind.__metadata__[0])

    def command(**values: Any) -> None: ...

    command.__dict__["__signature__"] = inspect.Signature([parameter(field)])
    app = typer.Typer(add_completion=False)
    app.command()(command)
    param = next(each for each in typer.main.get_command(app).params if each.name == field.name)
    param.expose_value = False
    return param


PARSER = RuleCommand


@command_of(FilterOptions)
def run(request: FilterRequest, output: Output, ctx: typer.Context) -> NextCommand:
    """Keep the rows of a scored table that satisfy every rule.

    Example:

        curate filter scores.parquet --keep-top 80% -o kept.parquet
        curate filter scores.parquet --where 'width >= 200' --keep-top 500 --per label -o kept.parquet
        curate filter scores.parquet --max 0.5 --dry-run
        curate filter scores.parquet --unlike logo.png --unlike photos/0017.jpg=0.9 -o kept.parquet
        curate filter scores.parquet --without-keys keys.csv -o kept.parquet
        curate filter cleaned/subset.parquet --verdicts cleaned/subset.verdicts.jsonl -o final.parquet
        curate filter scores.parquet --max-bad-rate 2% --audit kept.audit.csv -o kept.parquet

    Rules apply in the order typed, each to the rows that the previous rules kept. High values are kept, except for
    unc_* columns, where low values are certain. --keep-top and --drop-bottom keep exactly the requested number of rows;
    ties are broken by a hash of the key. They drop junk first, then the same share of every class or cluster; a class
    loses at most 1.25 times the average, a cluster twice, not counting certain junk (p_junk above 0.9). Writes
    kept.parquet, kept.decisions.parquet (every row, and why) and kept.receipt.json, which `curate verify` checks. The
    table itself is never changed. A --column or --per after the last rule applies to all of them.
    """
    from curate.policies.filter.policy import run_filter

    rules = typed(ctx)
    taken: dict[str, Any] = {field.name: None for field in fields(request) if field.name in dict(rules)}
    result = run_filter(replace(request, rules=rules, **taken))
    if output.json:
        emit({**result.to_json(), "notes": filter_notes(result)})
    elif request.dry_run or not output.quiet:
        _report(result, rules, request.dry_run)
    return after_policy(request, result, "kept.parquet")


def filter_notes(result: "Result") -> list[str]:
    """Return notes on the rules: inputs, amounts that exceed the rows, and an empty result."""
    return [*result.notes, *([] if result.kept else ["no row is left: the subset is empty"])]


def _meant_shares(rules: Sequence[tuple[str, str]]) -> list[str]:
    """Return notes on amounts that are counts of rows but may have been meant as per cent."""
    amounts = [(name.replace("_", "-"), amount) for name, amount in rules if name in AMOUNTS]
    return [
        f"--{name} {amount} is {counted(int(amount), 'row')}; {amount}% is a share"
        for name, amount in dict.fromkeys(amounts)
        if amount.isdecimal() and 1 < int(amount) <= MOST_PER_CENT
    ]


def _report(result: "Result", rules: Sequence[tuple[str, str]], dry_run: bool) -> None:
    from curate.policies.decided import uneven_notes

    line, table = printers(requested=dry_run)
    for note in [*filter_notes(result), *_meant_shares(rules)]:
        line(note)
    table(result.account(lambda why: f"{why}: no value"), right=1)
    for text in uneven_notes(result):
        line(text)
    if dry_run:
        if result.classes and result.classes_of != "cluster":
            rows = [(name, n, kept, f"{kept / n:.0%}") for name, (n, kept) in [*result.classes.items()][:MOST_CLASSES]]
            table(rows, header=(result.classes_of, "rows", "kept", "share"))
        for example in result.examples:
            line(f"{WHY.get(example['why'], example['why'])}: {example['key']}: {example['reason']}")
    say_files(result, dry_run=dry_run)
