"""The measures of ``curate evaluate --json`` as tables of a report."""

from math import isfinite
from pathlib import Path
from typing import Any

from curate.manifest.text import read_json
from curate.policies.receipts import MAX_BYTES
from scoring.errors import InputError

MOST = 100  # measures, and columns of scores


def read_measured(path: str | Path) -> list[dict[str, Any]]:
    """Read the measures of each score column as two tables: of values, and of their meanings.

    ``path`` is the output of ``curate evaluate``; InputError if it is missing, too large or malformed.
    """
    report = read_json(Path(path), what="the JSON of curate evaluate for --measured", most=MAX_BYTES)
    try:
        measures = [_measure(measure) for measure in report["measures"]][:MOST]
        columns = [str(name) for name in report["columns"]][:MOST]
        rows, used = int(report["rows"]), int(report["used"])
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise InputError(
            f"--measured: {path} is not what curate evaluate wrote; run: curate evaluate ... -o {path}"
        ) from None
    valued = [measure for measure in measures if measure["values"]]
    names = list(dict.fromkeys(name for measure in valued for name in measure["values"]))[:MOST]
    order = [*(name for name in columns if name in names), *(name for name in names if name not in columns)]
    title = f"How good the scores are: {used:,} of {rows:,} rows measured"
    table = [[name, *(measure["values"].get(name, "") for measure in valued)] for name in order]
    meanings = [[measure["name"], measure["better"], measure["meaning"], measure["missing"]] for measure in measures]
    return [
        {"title": title, "columns": ["column", *(measure["name"] for measure in valued)], "rows": table},
        {
            "title": "What is measured",
            "columns": ["measure", "better", "meaning", "not measured, for"],
            "rows": meanings,
        },
    ]


def _measure(value: dict[str, Any]) -> dict[str, Any]:
    values = {str(name): _cell(cell) for name, cell in value.get("values", {}).items()}
    return {key: str(value.get(key) or "") for key in ("name", "better", "meaning", "missing")} | {"values": values}


def _cell(interval: dict[str, Any]) -> str:
    """Return a value with its interval as text."""
    numbers = [interval[name] for name in ("value", "low", "high")]
    if not all(isinstance(each, int | float) and isfinite(each) for each in numbers):
        return "-"
    value, low, high = (f"{each:.3f}" if abs(each) < 10 else f"{each:,.1f}" for each in numbers)
    return f"{value} [{low}, {high}]"
