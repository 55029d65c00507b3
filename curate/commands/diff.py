"""``curate diff``: two subsets compared by row, value and setting."""

from typing import TYPE_CHECKING, Any

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, show, show_table, suggest
from curate.counted import counted
from curate.lineage.options import DiffOptions

if TYPE_CHECKING:
    from curate.lineage.diff import Diff, Missing


@command_of(DiffOptions)
def run(request: DiffOptions, output: Output) -> NextCommand:
    """Show how two subsets differ in rows, values and settings.

    Example:

        curate diff kept.parquet other.parquet
        curate diff monday/kept.receipt.json tuesday/kept.receipt.json -o rows.parquet

    Exit code 0: the same rows in the same order, with the same values; 1: something differs, or an error.
    """
    from curate.lineage.diff import run_diff

    difference = run_diff(request)
    if output.json:
        emit(difference.to_json())
    else:
        _show(difference)
    output.written(rows=request.out)
    if difference.identical:
        return suggest("info", difference.tables[0])
    table, named = next(
        (
            (table, missing.named)
            for table, missing in zip(difference.tables, (difference.only_first, difference.only_second), strict=True)
            if missing.named
        ),
        (difference.tables[0], difference.decisions.named),
    )
    words = ("explain", table, named[0][0]) if named else ("info", table)
    return suggest(*words, code=1)


def _show(difference: "Diff") -> None:
    sides = [
        (path, difference.rows[n], ", ".join(difference.steps[n]) or "-") for n, path in enumerate(difference.tables)
    ]
    show_table([(mark, *side) for mark, side in zip("<>", sides, strict=True)], header=("", "table", "rows", "steps"))
    show(f"in both: {difference.in_both:,}")
    for mark, missing, other in (("<", difference.only_first, 1), (">", difference.only_second, 0)):
        steps = difference.steps[other]
        name = f"; in the steps of the {('first', 'second')[other]}:" if steps else ""
        _show_rows(f"{mark} only in this one: {missing.rows:,}{name}", mark, missing, with_reasons=bool(steps))
    decided = counted(difference.decisions.rows, "row has", "rows have")
    _show_rows(f"{decided} with another decision or reason (< | >):", "", difference.decisions)
    if not difference.same_order:
        show("the rows of both are in another order")
    for name, (first, second) in difference.columns.items():
        show(f"column {name}: {first or 'not there'} | {second or 'not there'}")
    _show_values(difference)
    if difference.settings:
        rows = [(each.step, each.name, _value(each.first), _value(each.second)) for each in difference.settings]
        show_table(rows, header=("step", "setting", "<", ">"))
    elif difference.steps[0] or difference.steps[1]:
        show("the settings of all steps are the same")
    show("identical: the same rows and values" if difference.identical else "different")


def _show_rows(title: str, mark: str, missing: "Missing", *, with_reasons: bool = True) -> None:
    if not missing.rows:
        return
    show(title)
    if with_reasons:
        show_table([("  ", n, why) for why, n in missing.why.items()])
    for key, reason in missing.named:
        show(f"   {mark} {key}: {reason}" if with_reasons else f"   {mark} {key}")
    if missing.rows > len(missing.named):
        show(f"   {mark} and {missing.rows - len(missing.named):,} more")


def _show_values(difference: "Diff") -> None:
    values = difference.values
    if not values.rows:
        return
    some = "" if values.looked_at == values.rows else f", of which {values.looked_at:,} were compared"
    show(f"values: {counted(values.rows, 'row')} of both differ{some}")
    show_table([("  ", name, n) for name, n in values.columns.items()])
    for key, name, first, second in values.named:
        show(f"   {key}: {name} {_value(first)} | {_value(second)}")


def _value(value: Any) -> str:
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
