"""Finds the images of a table that resemble given ones, with the certainty of both."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, describe_all
from curate.counted import counted
from curate.manifest.store_path import AnyPath
from curate.manifest.text import csv_lines, to_json
from curate.options.function import callable_of
from curate.options.values import several
from curate.retrieval import regions
from curate.retrieval.options import RetrieveOptions
from curate.retrieval.queries import FOLDER, IMAGE, ROW, TABLE, NamedQuery, name_queries, read_queries
from curate.retrieval.results import Retrieval
from curate.retrieval.work import RetrievalWork, check_options
from curate.tables.needs import EMBEDDINGS, Needs, Signal, default_column, signal
from curate.tables.rows import read_rows
from curate.tables.table import Table, open_table
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
    "state": "answered, alone (no row is in its region), rejected, undecided or failed",
    "reason": "why a query has no answer",
    "query_certainty": "of the query, in the unit of the column",
    "bound": "cosine from which a row lies inside its region",
    "inside": "rows inside its region; without regions, the returned ones",
    "rank": "1 for the nearest row",
    "key": "of the row",
    "similarity": "cosine of query and row",
    "certainty": "of the row, in the unit of the column",
}


def check_file(path: Path, inputs: Iterable[AnyPath], *, overwrite: bool) -> None:
    """Raise InputError for an output name of unknown type, that exists, or is an input; before the work."""
    if path.suffix.lower() not in ENDINGS:
        raise InputError(f"expected a name that ends in {', '.join(ENDINGS)}, got {path}")
    if path.resolve() in {each.resolve() for each in inputs}:
        raise InputError(f"{path} is read, and would be overwritten; choose another name")
    refuse_existing(path, overwrite=overwrite)
    require_folder(path)


def write_answers(answers: Retrieval, path: Path, *, overwrite: bool) -> None:
    """Write results as Parquet, CSV or JSON lines, by the suffix."""
    if path.suffix.lower() == ".parquet":
        about = {"kind": "answers", "columns": describe_all(SCHEMA.names, MEANINGS), **answers.about()}
        with TableWriter(path, SCHEMA, about, overwrite=overwrite) as writer:
            for table in _lines(answers):
                writer.write(table)
        return
    is_csv = path.suffix.lower() == ".csv"
    with AtomicFile(path, overwrite=overwrite) as file:
        if is_csv:
            file.write(csv_lines([SCHEMA.names]).encode())
        for table in _lines(answers):
            lines = table.to_pylist()
            if is_csv:
                file.write(csv_lines(line.values() for line in lines).encode())
            else:
                file.write(b"".join(to_json(line, indent=None) for line in lines))


def _lines(answers: Retrieval) -> Iterator[pa.Table]:
    """Yield lines for a few queries at a time: one per found row, or one for a query without results."""
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
    """Return numbers as a column with null for NaN."""
    return pa.array(values.astype(np.float32), from_pandas=True)


def run_retrieve(options: RetrieveOptions) -> Retrieval:
    """Find the rows of a table nearest to queries, and report the certainty of both.

    Raises:
        InputError: for an unusable table, query, column or setting; nothing is written.
    """
    check_options(options)
    opened = open_table(options.table, require=[KEY, EMBEDDING], embedding=options.embedding)
    if not opened.n_rows:
        raise InputError(f"expected rows to search in {opened.path}, got none: the table is empty; score some images")
    texts = [str(each) for each in several(options.queries)]
    named = name_queries(texts, opened)
    out = None if options.out is None else Path(options.out)
    if out is not None:
        tables = [opened, *(open_table(query.text) for query in named if query.kind == TABLE)]
        check_file(out, [file for table in tables for file in table.files], overwrite=options.overwrite)
    notes: list[str] = []
    column = _certainty(options, opened, notes, fitted=_have_fitted_scores(named, options.model))
    if options.credible is not None and options.calibrate is None and column is not None:
        regions.refuse_no_concentration(opened, column.column)
    needs = Needs(
        numbers=() if column is None else (column.column,),
        names=() if options.calibrate is None else (options.calibrate,),
        representations=EMBEDDINGS,
        advice="name a column of numbers",
    )
    options.announce(f"reading {counted(opened.n_rows, 'row')}")
    rows = read_rows(opened, needs)
    loaded = read_queries(named, opened, rows, column, model=options.model)
    answers = RetrievalWork(opened, rows, loaded, column, options, notes).answers()
    answers.out = out
    if out is not None:
        write_answers(answers, out, overwrite=options.overwrite)
    return answers


retrieve = callable_of(RetrieveOptions, run_retrieve)


def _have_fitted_scores(named: Sequence[NamedQuery], model: str | Path | None) -> bool:
    """Return whether all queries have a fitted score: rows of the table, or images scored by the fit."""
    kinds = {query.kind for query in named}
    if kinds <= {ROW}:
        return True
    from curate.retrieval.images import is_fitted

    return kinds <= {ROW, IMAGE, FOLDER} and is_fitted(model)


def _certainty(options: RetrieveOptions, table: Table, notes: list[str], *, fitted: bool) -> Signal | None:
    """Return the certainty column; None if the table has none and no option needs one."""
    try:
        text = options.certainty or default_column(table, flag="--certainty", fitted=fitted)
        return signal(text, table, certain_first=True, flag="--certainty")
    except InputError as error:
        if options.certainty or options.credible is not None or options.reject is not None:
            raise
        notes.append(f"certainty is not available: {error}")
        return None
