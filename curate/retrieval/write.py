"""Answers as a file, a line for every row that a query found and every query that found none; and every row."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from curate.columns import KEY, describe_all
from curate.manifest.store_path import AnyPath
from curate.manifest.text import guarded, to_json
from curate.retrieval.results import Retrieval
from curate.tables.digests import plain
from curate.tables.writer import TableWriter
from scoring.atomic import AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished
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
    "state": "answered, alone (no row is in its region), rejected, undecided or failed",
    "reason": "why a query found nothing",
    "query_certainty": "of the query, in the unit of the column",
    "bound": "cosine from which a row lies inside its region",
    "inside": "rows inside its region; without regions those given back",
    "rank": "1 for the nearest row",
    "key": "of the row",
    "similarity": "cosine of query and row",
    "certainty": "of the row, in the unit of the column",
}

ROWS_SCHEMA = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("state", pa.string(), nullable=False),
        pa.field("certainty", pa.float32()),
    ]
)
ROWS_MEANINGS = {
    "key": "of the row",
    "state": "searched, or why it was not",
    "certainty": "of the row, in the unit of the column",
}


def check_files(paths: Sequence[Path], inputs: Iterable[AnyPath], *, overwrite: bool) -> None:
    """Refuse names that are of no known kind, equal, taken, or of what is read, before the work.

    Raises:
        InputError: naming the first.
    """
    read = {str(path.resolve()) for path in inputs}
    for path in paths:
        if path.suffix.lower() not in ENDINGS:
            raise InputError(f"expected a name that ends in {', '.join(ENDINGS)}, got {path}")
        if str(path.resolve()) in read:
            raise InputError(f"{path} is read, and would be written over; choose another name")
    if len({path.resolve() for path in paths}) < len(paths):
        raise InputError(f"-o and --table-rows are both {paths[0]}; choose two names")
    if paths and not overwrite:
        undo_unfinished(paths)
    for path in paths:
        refuse_existing(path, overwrite=overwrite)
        require_folder(path)


def write_answers(answers: Retrieval, out: Path | None, rows: Path | None, *, overwrite: bool) -> None:
    """Write answers, and what became of every row, as Parquet, CSV or JSON lines by their names: both or neither."""
    files_of: list[tuple[Path | None, _What]] = [(rows, _rows_of(answers)), (out, _answers_of(answers))]
    files: list[AtomicFile] = []
    try:
        for path, what in files_of:
            if path is not None:
                files.append(_sealed(answers, path, what, overwrite=overwrite))
        if files:
            commit_together(files)
    finally:
        for file in files:
            file.discard()


@dataclass(frozen=True)
class _What:
    """What a file holds: its kind, schema and meanings, and its lines, some at a time."""

    kind: str
    schema: pa.Schema
    meanings: Mapping[str, str]
    lines: Iterator[list[dict[str, Any]]]


def _answers_of(answers: Retrieval) -> _What:
    return _What("answers", SCHEMA, MEANINGS, _lines(answers))


def _rows_of(answers: Retrieval) -> _What:
    return _What("retrieved rows", ROWS_SCHEMA, ROWS_MEANINGS, _row_lines(answers))


def _sealed(answers: Retrieval, path: Path, what: _What, *, overwrite: bool) -> AtomicFile:
    """Return a file that is written, and waits for its name."""
    if path.suffix.lower() == ".parquet":
        about = {"kind": what.kind, "columns": describe_all(what.schema.names, what.meanings), **answers.about()}
        writer = TableWriter(path, what.schema, about, overwrite=overwrite)
        try:
            for lines in what.lines:
                writer.write(pa.Table.from_pylist(lines, what.schema))
            writer.seal()
        except BaseException:
            writer.discard()
            raise
        return writer.file
    file = AtomicFile(path, overwrite=overwrite)
    is_csv = path.suffix.lower() == ".csv"
    try:
        if is_csv:
            file.write((",".join(what.schema.names) + "\r\n").encode())
        for lines in what.lines:
            file.write(_csv(lines) if is_csv else _json_lines(lines))
    except BaseException:
        file.discard()
        raise
    return file


def _row_lines(answers: Retrieval) -> Iterator[list[dict[str, Any]]]:
    """Yield what became of some rows of the table at a time."""
    start = 0
    for batch in answers.table.batches([KEY]):
        stop = start + batch.num_rows
        keys = plain(batch.column(0)).cast(pa.string()).to_pylist()
        states = [answers.left_out[state] for state in answers.row_states[start:stop].tolist()]
        certainty = answers.row_certainty[start:stop].tolist()
        yield [
            {"key": key, "state": state, "certainty": _number(value)}
            for key, state, value in zip(keys, states, certainty, strict=True)
        ]
        start = stop


def _lines(answers: Retrieval) -> Iterator[list[dict[str, Any]]]:
    """Yield the lines of some queries at a time."""
    nothing: dict[str, Any] = {"rank": None, "key": None, "similarity": None, "certainty": None}
    for start in range(0, len(answers), AT_ONCE):
        lines = []
        for at in range(start, min(start + AT_ONCE, len(answers))):
            query = {
                "number": at,
                "query": answers.queries.names[at],
                "state": answers.states[at],
                "reason": answers.reasons[at] or None,
                "query_certainty": _number(answers.certainty[at]),
                "bound": None if answers.bounds is None else _number(answers.bounds[at]),
                "inside": int(answers.inside[at]),
            }
            near: list[dict[str, Any]] = [
                {
                    "rank": neighbour.rank,
                    "key": neighbour.key,
                    "similarity": neighbour.similarity,
                    "certainty": _number(neighbour.certainty),
                }
                for neighbour in answers.neighbours(at)
            ]
            lines += [query | neighbour for neighbour in near or [nothing]]
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
