"""Answers as a file: a line for every row that a query found, and one for every query that found none."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import describe_all
from curate.manifest.text import guarded, to_json
from curate.retrieval.results import Answers
from curate.tables.writer import TableWriter
from scoring.atomic import AtomicFile, refuse_existing, require_folder
from scoring.errors import InputError

ENDINGS = (".parquet", ".csv", ".jsonl")
AT_ONCE = 1000  # queries
SCHEMA = pa.schema(
    [
        pa.field("number", pa.int32(), nullable=False),
        pa.field("query", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("query_certainty", pa.float32()),
        pa.field("bound", pa.float32()),
        pa.field("inside", pa.int64(), nullable=False),
        pa.field("rank", pa.int32()),
        pa.field("key", pa.string()),
        pa.field("similarity", pa.float32()),
        pa.field("certainty", pa.float32()),
    ]
)
MEANINGS = {
    "number": "of the query, from 0",
    "query": "its key, or the path of its image",
    "state": "answered, alone (no row lies in its region), rejected, undecided or failed",
    "reason": "why a query found nothing",
    "query_certainty": "of the query, in the unit of the column",
    "bound": "cosine from which a row lies inside its region",
    "inside": "rows inside its region; without regions those given back",
    "rank": "1 for the nearest row",
    "key": "of the row",
    "similarity": "cosine of query and row",
    "certainty": "of the row, in the unit of the column",
}


def check_answers(out: Path, *, overwrite: bool) -> None:
    """Refuse a name that is of no known kind, or taken, before the work.

    Raises:
        InputError: naming it.
    """
    if out.suffix.lower() not in ENDINGS:
        raise InputError(f"expected a name that ends in {', '.join(ENDINGS)}, got {out}")
    refuse_existing(out, overwrite=overwrite)
    require_folder(out)


def write_answers(found: Answers, out: Path, *, overwrite: bool) -> None:
    """Write answers as Parquet, CSV or JSON lines by the name, whole or not at all."""
    if out.suffix.lower() == ".parquet":
        about = {"kind": "answers", "columns": describe_all(SCHEMA.names, MEANINGS), **found.about()}
        with TableWriter(out, SCHEMA, about, overwrite=overwrite) as table:
            for lines in _lines(found):
                table.write(pa.Table.from_pylist(lines, SCHEMA))
        return
    with AtomicFile(out, overwrite=overwrite) as file:
        if out.suffix.lower() == ".csv":
            file.write((",".join(SCHEMA.names) + "\r\n").encode())
        for lines in _lines(found):
            file.write(_csv(lines) if out.suffix.lower() == ".csv" else _json_lines(lines))


def _lines(found: Answers) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of some queries at a time."""
    nothing: dict[str, Any] = {"rank": None, "key": None, "similarity": None, "certainty": None}
    for start in range(0, len(found), AT_ONCE):
        lines = []
        for at in range(start, min(start + AT_ONCE, len(found))):
            query = {
                "number": at,
                "query": found.queries.names[at],
                "state": found.states[at],
                "reason": found.reasons[at] or None,
                "query_certainty": _number(found.certainty[at]),
                "bound": None if found.bounds is None else _number(found.bounds[at]),
                "inside": int(found.inside[at]),
            }
            near: list[dict[str, Any]] = [
                {
                    "rank": one.rank,
                    "key": one.key,
                    "similarity": one.similarity,
                    "certainty": _number(one.certainty),
                }
                for one in found.neighbours(at)
            ]
            lines += [query | one for one in near or [nothing]]
        yield lines


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(np.float32(value))


def _csv(lines: list[dict[str, Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    for line in lines:
        writer.writerow([guarded(cell) if isinstance(cell, str) else cell for cell in line.values()])
    return text.getvalue().encode()


def _json_lines(lines: list[dict[str, Any]]) -> bytes:
    return b"".join(to_json(line, indent=None) for line in lines)
