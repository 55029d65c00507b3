"""How commands talk to people: tables and lines on stderr, data on stdout."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer


def one_line(text: object) -> str:
    """Return text that cannot break a line or command the terminal: control characters are spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in str(text))


def say(text: str) -> None:
    """Print one line for people, on stderr."""
    typer.echo(one_line(text), err=True)


def emit(value: Any) -> None:
    """Print data for machines, on stdout, as one JSON value."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=True, default=str))


def show_table(rows: Iterable[Sequence[object]], *, header: Sequence[str] = (), right: int | None = None) -> None:
    """Print rows as aligned columns, on stderr.

    Args:
        rows: values, turned into text; counts get thousands separators.
        header: titles of the columns, or none.
        right: the column that is set to the right.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=bool(header), pad_edge=False, header_style="bold")
    lines = [[Text(_value(value)) for value in row] for row in rows]
    for index in range(max((len(line) for line in lines), default=len(header))):
        title = header[index] if index < len(header) else ""
        table.add_column(title, justify="right" if index == right else "left", overflow="fold")
    for line in lines:
        table.add_row(*line)
    Console(stderr=True, markup=False, highlight=False).print(table)


def columns_that_fit(titles: Sequence[str], columns: Sequence[Sequence[str]]) -> list[list[int]]:
    """Return which columns stand together in a table of the terminal's width, so that no name or cell is broken.

    Args:
        titles: the first column, which every table has, with its header.
        columns: the others, each with its header. One that is too wide by itself stands alone.
    """
    from rich.cells import cell_len
    from rich.console import Console

    width = Console(stderr=True).width
    room = width - max(map(cell_len, titles), default=0)
    tables: list[list[int]] = []
    used = room
    for number, column in enumerate(columns):
        need = max(map(cell_len, column), default=0) + 1  # and the space before it
        if not tables or used + need > room:
            tables.append([])
            used = 0
        tables[-1].append(number)
        used += need
    return tables


def _value(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else one_line(value)
