"""Find the images of a table that resemble given ones, with the certainty of both."""

from collections.abc import Sequence
from pathlib import Path

from curate.columns import EMBEDDING, KEY
from curate.counted import counted
from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.retrieval import regions
from curate.retrieval.cuts import parse_cut
from curate.retrieval.options import RetrieveOptions
from curate.retrieval.queries import FOLDER, IMAGE, ROW, TABLE, NamedQuery, name_queries, read_queries
from curate.retrieval.results import Retrieval
from curate.retrieval.work import RetrievalWork, RetrieveSettings
from curate.retrieval.write import check_file, write_answers
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import read_rows
from curate.tables.signals import Signal, default_column, signal
from curate.tables.table import Table, open_table
from scoring.errors import InputError


def run_retrieve(options: RetrieveOptions) -> Retrieval:
    """Find the rows of a table nearest to queries, and report the certainty of both.

    Raises:
        InputError: for a table, query, column or setting that cannot be used; nothing is written then.
    """
    settings = part_of(RetrieveSettings, options, reject=parse_cut(options.reject))
    opened = open_table(options.table, require=[KEY, EMBEDDING], embedding=options.embedding)
    if not opened.n_rows:
        raise InputError(f"expected rows to search in {opened.path}, got none: the table is empty; score some images")
    texts = [str(each) for each in several(options.queries)]
    named = name_queries(texts, opened)
    out = None if options.out is None else Path(options.out)
    read = [
        file
        for path in (opened, *(open_table(query.text) for query in named if query.kind == TABLE))
        for file in path.files
    ]
    if out is not None:
        check_file(out, read, overwrite=options.overwrite)
    notes: list[str] = []
    column = _certainty(options.certainty, opened, settings, notes, fitted=_fit_says_of(named, options.model))
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
    answers = RetrievalWork(opened, rows, loaded, column, settings, notes).answers(options.announce)
    answers.out = out
    if out is not None:
        write_answers(answers, out, overwrite=options.overwrite)
    return answers


retrieve = callable_of(RetrieveOptions, run_retrieve)


def _fit_says_of(named: Sequence[NamedQuery], model: str | Path | None) -> bool:
    """Return whether all queries have a fitted score: rows of the table, or images scored by the fit."""
    kinds = {query.kind for query in named}
    if kinds <= {ROW}:
        return True
    from curate.retrieval.scorer import is_fitted

    return kinds <= {ROW, IMAGE, FOLDER} and is_fitted(model)


def _certainty(
    text: str | None, table: Table, settings: RetrieveSettings, notes: list[str], *, fitted: bool
) -> Signal | None:
    """Return the certainty column; None if the table has none and no option needs one."""
    if text is not None:
        return signal(text, table, certain_first=True, flag="--certainty")
    try:
        return signal(
            default_column(table, flag="--certainty", fitted=fitted), table, certain_first=True, flag="--certainty"
        )
    except InputError as error:
        if settings.needs_certainty:
            raise
        notes.append(f"certainty is not available: {error}")
        return None
