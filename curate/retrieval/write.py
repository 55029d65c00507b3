"""Answers as a file, a line for every row that a query found and every query that found none; and every row."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, describe_all
from curate.manifest.store_path import AnyPath
from curate.manifest.text import csv_lines, to_json
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
    about_rows = ("retrieved rows", ROWS_SCHEMA, ROWS_MEANINGS)
    files: list[AtomicFile] = []
    try:
        if rows is not None:
            files.append(_sealed(answers, rows, about_rows, _rows(answers), overwrite=overwrite))
        if out is not None:
            files.append(_sealed(answers, out, ("answers", SCHEMA, MEANINGS), _lines(answers), overwrite=overwrite))
        if files:
            commit_together(files)
    finally:
        for file in files:
            file.discard()


def _sealed(
    answers: Retrieval,
    path: Path,
    content: tuple[str, pa.Schema, Mapping[str, str]],
    tables: Iterator[pa.Table],
    *,
    overwrite: bool,
) -> AtomicFile:
    """Return a file that is written, and waits for its name; ``content`` is its kind, schema and meanings."""
    kind, schema, meanings = content
    if path.suffix.lower() == ".parquet":
        about = {"kind": kind, "columns": describe_all(schema.names, meanings), **answers.about()}
        writer = TableWriter(path, schema, about, overwrite=overwrite)
        try:
            for table in tables:
                writer.write(table)
            writer.seal()
        except BaseException:
            writer.discard()
            raise
        return writer.file
    file = AtomicFile(path, overwrite=overwrite)
    is_csv = path.suffix.lower() == ".csv"
    try:
        if is_csv:
            file.write(csv_lines([schema.names]).encode())
        for table in tables:
            lines = table.to_pylist()
            if is_csv:
                file.write(csv_lines(line.values() for line in lines).encode())
            else:
                file.write(b"".join(to_json(line, indent=None) for line in lines))
    except BaseException:
        file.discard()
        raise
    return file


def _rows(answers: Retrieval) -> Iterator[pa.Table]:
    """Yield what became of some rows of the table at a time."""
    start = 0
    for batch in answers.table.batches([KEY]):
        part = slice(start, start + batch.num_rows)
        keys = plain(batch.column(0)).cast(pa.string())
        states = pa.array(answers.left_out).take(pa.array(answers.row_states[part]))
        yield pa.Table.from_arrays([keys, states, _numbers(answers.row_certainty[part])], schema=ROWS_SCHEMA)
        start = part.stop


def _lines(answers: Retrieval) -> Iterator[pa.Table]:
    """Yield the lines of some queries at a time: one a row that was found, or one of a query that found none."""
    queries = pa.Table.from_arrays(
        [
            pa.array(range(len(answers)), pa.int32()),
            pa.array(answers.queries.names, pa.string()),
            pa.array(answers.states, pa.string()),
            pa.array([reason or None for reason in answers.reasons], pa.string()),
            _numbers(answers.certainty),
            _numbers(np.full(len(answers), np.nan) if answers.bounds is None else answers.bounds),
            pa.array(answers.inside),
        ],
        SCHEMA.names[:7],
    )
    links = answers.links
    for start in range(0, len(answers), AT_ONCE):
        low, high = np.searchsorted(links.query, [start, start + AT_ONCE])
        query, row = links.query[low:high] - start, links.row[low:high]
        counts = np.bincount(query, minlength=min(AT_ONCE, len(answers) - start))
        lines = np.repeat(np.arange(len(counts)), np.maximum(counts, 1))
        rank = np.arange(len(query)) - (np.cumsum(counts) - counts)[query] + 1
        keys = pa.array([answers.keys[at] for at in row.tolist()], pa.string())
        hits = [pa.array(rank, pa.int32()), keys, pa.array(links.similarity[low:high])]
        near = pa.Table.from_arrays([*hits, _numbers(answers.row_certainty[row])], SCHEMA.names[7:])
        at = np.zeros(len(lines), np.int64)
        at[counts[lines] > 0] = np.arange(len(query))
        near = near.take(pa.array(at, mask=counts[lines] == 0))
        yield pa.Table.from_arrays([*queries.take(pa.array(lines + start)).columns, *near.columns], schema=SCHEMA)


def _numbers(values: NDArray[np.floating]) -> pa.Array:
    """Return numbers as a column; NaN is null."""
    return pa.array(values.astype(np.float32), from_pandas=True)
