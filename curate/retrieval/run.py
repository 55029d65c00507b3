"""Find the images of a table that are like some, with how certain either is."""

from collections.abc import Callable, Sequence
from pathlib import Path

from curate.columns import EMBEDDING, KEY
from curate.counted import counted
from curate.retrieval import regions
from curate.retrieval.cuts import parse_cut
from curate.retrieval.queries import FOLDER, IMAGE, ROW, TABLE, NamedQuery, name_queries, read_queries
from curate.retrieval.results import Retrieval
from curate.retrieval.work import RetrievalWork, RetrieveSettings
from curate.retrieval.write import check_files, write_answers
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import read_rows
from curate.tables.signals import Signal, default_column, signal
from curate.tables.table import Table, open_table
from scoring.errors import InputError


def retrieve(
    table: str | Path,
    queries: str | Path | Sequence[str | Path],
    *,
    out: str | Path | None = None,
    table_rows: str | Path | None = None,
    top: int | None = None,
    credible: float | None = None,
    calibrate: str | None = None,
    reject: str | float | None = None,
    clean: str | float | None = None,
    certainty: str | None = None,
    model: str | Path | None = None,
    embedding: str | None = None,
    seed: int = 0,
    overwrite: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> Retrieval:
    """Find the rows of a table that are nearest to queries, and say how certain both are.

    Every keyword but ``announce`` is the option of ``curate retrieve`` of that name.

    Args:
        table: scored, with embeddings and a unique ``key``; it is never changed.
        queries: one or several: keys of rows, images, folders of images, or other scored tables. A row is not its own
            answer.
        out: file to write, NAME.parquet, .csv or .jsonl; None to write nothing.
        table_rows: file to write what became of every row of the table, too.
        top: rows of each query; 10 by default, and with ``credible`` all that lie inside.
        credible: probability, in (0, 1), with which what a query shows lies inside its region; the rows inside are
            given.
        calibrate: column of classes, on whose rows the regions are calibrated: they then hold the nearest row of a
            query's class with that probability, whatever the certainty is. Needed where the certainty is no
            concentration around the embeddings, as of the models that ship.
        reject: queries less certain than this are not answered: ``"10%"``, less than the least certain tenth of the
            table, or a value of the column.
        clean: rows less certain than this are not found, too.
        certainty: column that says how certain an image is: ``kappa_*``, ``unc_*``, or ``max:COLUMN``, ``min:COLUMN``;
            by default the fitted score where all queries are rows of the table, or images and ``model`` is fitted to
            it; else the score of the model's method.
        model: for queries that are images: the table's, if it does not ship, or what ``curate fit`` made of it.
        embedding: column of the user's own embeddings, of any length, instead of ``embedding``.
        seed: of what is drawn: rows to calibrate on, and inverted lists.
        overwrite: replace a file that is there.
        announce: called with a line on what is about to happen.

    Raises:
        InputError: for a table, query, column or setting that cannot be used; nothing is written then.
    """
    settings = RetrieveSettings(
        top, credible, calibrate, parse_cut(reject, "--reject"), parse_cut(clean, "--clean"), seed
    )
    opened = open_table(table, require=[KEY, EMBEDDING], embedding=embedding)
    if not opened.n_rows:
        raise InputError(f"expected rows to search in {opened.path}, got none: the table is empty; score some images")
    texts = [str(queries)] if isinstance(queries, str | Path) else [str(each) for each in queries]
    named = name_queries(texts, opened)
    paths = [Path(path) for path in (out, table_rows) if path is not None]
    read = [
        file
        for path in (opened, *(open_table(query.text) for query in named if query.kind == TABLE))
        for file in path.files
    ]
    check_files(paths, read, overwrite=overwrite)
    notes: list[str] = []
    column = _certainty(certainty, opened, settings, notes, fitted=_fit_says_of(named, model))
    if credible is not None and calibrate is None and column is not None:
        regions.refuse_no_concentration(opened, column.column)
    needs = Needs(
        numbers=() if column is None else (column.column,),
        names=() if calibrate is None else (calibrate,),
        representations=EMBEDDINGS,
        advice="name a column of numbers",
    )
    announce(f"reading {counted(opened.n_rows, 'row')}")
    rows = read_rows(opened, needs)
    loaded = read_queries(named, opened, rows, column, model=model)
    answers = RetrievalWork(opened, rows, loaded, column, settings, notes).answers(announce)
    answers.out = None if out is None else Path(out)
    write_answers(answers, answers.out, None if table_rows is None else Path(table_rows), overwrite=overwrite)
    return answers


def _fit_says_of(named: Sequence[NamedQuery], model: str | Path | None) -> bool:
    """Return whether the fitted score is known of all queries: rows of the table, or images that the fit is given."""
    kinds = {query.kind for query in named}
    if kinds <= {ROW}:
        return True
    from curate.retrieval.scorer import is_fitted

    return kinds <= {ROW, IMAGE, FOLDER} and is_fitted(model)


def _certainty(
    text: str | None, table: Table, settings: RetrieveSettings, notes: list[str], *, fitted: bool
) -> Signal | None:
    """Return the column that says how certain an image is; None if absent, and nothing asks for it."""
    if text is not None:
        return signal(text, table, certain_first=True, flag="--certainty")
    try:
        return signal(
            default_column(table, flag="--certainty", fitted=fitted), table, certain_first=True, flag="--certainty"
        )
    except InputError as error:
        if settings.needs_certainty:
            raise
        notes.append(f"no certainty is shown: {error}")
        return None
