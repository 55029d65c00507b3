"""``curate diff``: two subsets next to one another, by row, value and setting."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import emit, say, show, show_table
from curate.counted import counted

if TYPE_CHECKING:
    from curate.lineage.diff import Diff, Missing


def run(
    table: Annotated[
        Path,
        typer.Argument(
            parser=options.given_table, help="A subset, its receipt or its decisions; or any table of keys."
        ),
    ],
    other: Annotated[Path, typer.Argument(parser=options.given_table, help="The table to compare it with.")],
    root: Annotated[
        list[Path] | None, options.shared("--root", ": files that moved are found below it, by their digest")
    ] = None,
    out: Annotated[
        Path | None, options.shared("--out", ": every row that only one of them holds, and why, NAME.parquet")
    ] = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Show how two subsets differ in rows, values and settings.

    Example:

    \b
        curate diff kept.parquet other.parquet
        curate diff monday/kept.receipt.json tuesday/kept.receipt.json -o rows.parquet

    Exit 0: the same rows in one order, with the same values; 1: something differs, or a mistake.
    """
    given = dict(locals())
    from curate.lineage.diff import diff

    found = diff(**options.given_to(diff, given))
    if json_:
        emit(found.to_json())
    else:
        _tell(found)
    if out is not None and not quiet:
        say(f"rows: {out}")
    if not found.identical:
        raise typer.Exit(1)


def _tell(found: "Diff") -> None:
    sides = [(path, found.rows[n], ", ".join(found.steps[n]) or "-") for n, path in enumerate(found.tables)]
    show_table([(mark, *side) for mark, side in zip("<>", sides, strict=True)], header=("", "table", "rows", "steps"))
    show(f"in both: {found.in_both:,}")
    for mark, missing, name in (("<", found.only_first, "second"), (">", found.only_second, "first")):
        _tell_missing(mark, missing, name)
    if not found.same_order:
        show("the rows of both are in another order")
    for name, (one, two) in found.columns.items():
        show(f"column {name}: {one or 'not there'} | {two or 'not there'}")
    _tell_values(found)
    if found.settings:
        rows = [(one.step, one.name, _value(one.first), _value(one.second)) for one in found.settings]
        show_table(rows, header=("step", "setting", "<", ">"))
    elif found.steps[0] or found.steps[1]:
        show("the settings of all steps are the same")
    show("identical: the same rows and values" if found.identical else "different")


def _tell_missing(mark: str, missing: "Missing", other: str) -> None:
    if not missing.rows:
        return
    show(f"{mark} only in this one: {missing.rows:,}; in the steps of the {other}:")
    show_table([("  ", n, why) for why, n in missing.why.items()])
    for key, reason in missing.named:
        show(f"   {mark} {key}: {reason}")
    if missing.rows > len(missing.named):
        show(f"   {mark} and {missing.rows - len(missing.named):,} more")


def _tell_values(found: "Diff") -> None:
    values = found.values
    if not values.rows:
        return
    some = "" if values.looked_at == values.rows else f", of which {values.looked_at:,} were looked at"
    show(f"values: {counted(values.rows, 'row')} of both differ{some}")
    show_table([("  ", name, n) for name, n in values.columns.items()])
    for key, name, one, two in values.named:
        show(f"   {key}: {name} {_value(one)} | {_value(two)}")


def _value(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
