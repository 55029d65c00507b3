"""Which columns of a table say what a row is worth, and in which direction."""

from dataclasses import dataclass

from curate.apply import default_column
from curate.columns import describe
from curate.table import Table
from scoring.errors import InputError

MAX, MIN = "max:", "min:"


@dataclass(frozen=True)
class Signal:
    """A column of numbers, and whether its high values come first (1) or its low ones (-1)."""

    column: str
    sign: int


def signal(text: str, table: Table, *, certain_first: bool, flag: str) -> Signal:
    """Return the column and direction of ``COLUMN``, ``max:COLUMN`` or ``min:COLUMN``.

    Args:
        text: as typed; without ``max:`` or ``min:`` the direction must be known, as of ``kappa_*`` and ``unc_*``.
        table: has the column.
        certain_first: whether a known column has its most certain values first, or its least certain ones.
        flag: of the option, for messages.

    Raises:
        InputError: for a column that the table lacks, or one whose direction is not known.
    """
    for prefix, sign in ((MAX, 1), (MIN, -1)):
        if text.startswith(prefix):
            table.require([text.removeprefix(prefix)])
            return Signal(text.removeprefix(prefix), sign)
    table.require([text])
    higher = describe(text).higher
    if higher not in ("more certain", "less certain"):
        raise InputError(
            f"{flag} {text}: nothing says whether high or low values come first; "
            f"write {flag} {MAX}{text} for high ones, or {flag} {MIN}{text} for low ones"
        )
    return Signal(text, 1 if (higher == "more certain") == certain_first else -1)


def quality_signal(text: str | None, table: Table) -> Signal:
    """Return the column that says what an image counts, certain ones most: as typed, or the model's own score.

    Raises:
        InputError: as ``signal``; also if none is named and the table has none, or several.
    """
    try:
        named = text or default_column(table)
    except InputError as error:
        raise InputError(str(error).replace("--column", "--quality")) from None
    return signal(named, table, certain_first=True, flag="--quality")
