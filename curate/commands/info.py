"""``curate info``: say what a file is."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.report import emit, show, show_table

if TYPE_CHECKING:
    from curate.info import Description


def run(
    file: Annotated[
        Path, typer.Argument(help="Table (.parquet or a folder), receipt (.json) or model (.safetensors).")
    ],
    json_: options.Json = False,
) -> None:
    """Show what a file is: rows, columns, model, settings, counts.

    Example:

    \b
        curate info scores.parquet
        curate info kept.receipt.json
    """
    from curate.info import info

    description = info(file)
    if json_:
        emit(description.__dict__)
    else:
        _report(description)


def _report(description: "Description") -> None:
    from curate.info import rule_lines

    show(f"{description.path}: {description.kind}")
    for number, line in enumerate(rule_lines(description.facts.pop("policy", [])), 1):
        description.facts[f"rule {number}"] = line
    show_table(_lines(description.facts))
    if description.counts:
        show_table(list(description.counts.items()), right=1)
    if description.columns:
        rows = [[c["name"], c["type"], _meaning(c)] for c in description.columns]
        show_table(rows, header=("column", "type", "meaning"))


def _meaning(column: dict[str, str]) -> str:
    unit = f", {column['unit']}" if column["unit"] not in ("", "1") else ""
    higher = f"; higher is {column['higher']}" if column["higher"] else ""
    return f"{column['meaning']}{unit}{higher}"


def _lines(facts: dict[str, Any]) -> list[tuple[str, object]]:
    """Facts as name and value; the first level of nested ones gets a line each."""
    lines: list[tuple[str, object]] = []
    for name, value in facts.items():
        if isinstance(value, dict) and value:
            lines += [(f"{name}.{key}", _short(inner)) for key, inner in value.items()]
        else:
            lines.append((name, _short(value)))
    return lines


def _short(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value
