"""Queries named by a text (a key, an image file, a folder, or another scored table) and their vectors."""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY, URI
from curate.manifest.contract import ReadError
from curate.manifest.local import read_local
from curate.manifest.sources import open_manifest
from curate.tables.images import SHA256
from curate.tables.keys import keys_at, rows_with_keys
from curate.tables.needs import EMBEDDINGS, Needs, Signal
from curate.tables.provenance import same_model
from curate.tables.rows import Rows, read_rows
from curate.tables.spelling import key_meant
from curate.tables.table import PART_FILES, Table, open_table
from curate.tables.vectors import EMBEDDING_PROBLEMS
from scoring.errors import InputError

ROW, IMAGE, FOLDER, TABLE = "row", "image", "folder", "table"
TABLES = (".parquet", ".pq")


@dataclass(frozen=True)
class NamedQuery:
    """The queries that a text names.

    Attributes:
        text: as typed.
        kind: ``ROW``, ``IMAGE``, ``FOLDER`` or ``TABLE``.
        row: of the table, of a ``ROW``; else -1.
    """

    text: str
    kind: str
    row: int = -1


class QueryNames:
    """Resolves texts to queries.

    Args:
        table: whose keys are meant.
        texts: all that will be requested; its keys are read once.
    """

    def __init__(self, table: Table, texts: Sequence[str]) -> None:
        self.table = table
        self._row = rows_with_keys(table, list(texts))

    def find(self, text: str) -> NamedQuery | None:
        """Return the query that a text names; None for none.

        Raises:
            InputError: for one that is both a key and a file, unless that file is the image of the row.
        """
        row, kind = self._row.get(text), _kind_of_path(text)
        if row is None and kind is not None:
            return NamedQuery(text, kind)
        if row is None:  # it may be a key in another Unicode form
            meant = key_meant(text, self.table)
            row = rows_with_keys(self.table, [meant]).get(meant)
            return None if row is None else NamedQuery(meant, ROW, row)
        if kind is not None and not (kind == IMAGE and _is_image_of(self.table, row, text)):
            raise InputError(
                f"{text!r} is both a key of {self.table.path} and a {'folder' if kind == FOLDER else 'file'} "
                f"here, and they are different images; write ./{text} for the file, or run the command in "
                "another folder for the key"
            )
        return NamedQuery(text, ROW, row)


def _kind_of_path(text: str) -> str | None:
    path = os.fsencode(text)
    if not text or b"\0" in path:
        return None
    if os.path.isdir(path):  # noqa: PTH112 (pathlib raises for a name that is too long)
        return TABLE if any(Path(text).glob(PART_FILES)) else FOLDER
    if os.path.isfile(path):  # noqa: PTH113
        return TABLE if Path(text).suffix.lower() in TABLES else IMAGE
    return None


def _is_image_of(table: Table, row: int, text: str) -> bool:
    """Return whether a file is the image from which a row was scored."""
    names = [name for name in (SHA256, URI) if name in table.schema.names]
    known = table.take([row], names).to_pylist()[0] if names else {}
    if known.get(SHA256) is not None:
        try:
            return bool(hashlib.sha256(read_local(os.fsencode(text))).hexdigest() == known[SHA256])
        except ReadError:
            return False
    return known.get(URI) is not None and Path(known[URI]).resolve() == Path(text).resolve()


def image_reader(path: str) -> Callable[[], bytes]:
    """Return a reader of an image file."""
    return partial(read_local, os.fsencode(path))


def images_of(named: NamedQuery) -> list[tuple[str, Callable[[], bytes]]]:
    """Return the path and a reader of an image, or of every image of a folder.

    Raises:
        InputError: for a folder without images.
    """
    if named.kind == IMAGE:
        return [(named.text, image_reader(named.text))]
    manifest = open_manifest(named.text)
    keys = manifest.rows(0, manifest.n_rows).column(KEY).to_pylist()
    return [
        (str(Path(named.text) / key), read)
        for key, read in zip(keys, manifest.readers(0, manifest.n_rows), strict=True)
    ]


@dataclass
class Queries:
    """Q queries.

    Attributes:
        names: as you know them: keys, or paths.
        vectors: shape (Q, D), float32; zeros where there is a problem.
        certainty: higher is more certain, NaN where unknown, shape (Q,).
        searched_row: row of the table that a query is, -1 for none, shape (Q,).
        problems: why a query has no vector; empty where it has one.
        table: where a query is a row of another table: its place in ``tables``, else -1, shape (Q,).
        row: its row there, shape (Q,).
        tables: the others.
    """

    names: list[str]
    vectors: NDArray[np.float32]
    certainty: NDArray[np.float64]
    searched_row: NDArray[np.int64]
    problems: list[str]
    table: NDArray[np.int64]
    row: NDArray[np.int64]
    tables: list[Table] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.names)


def name_queries(texts: Sequence[str], table: Table) -> list[NamedQuery]:
    """Return the queries that texts name, each text once.

    Raises:
        InputError: for one that is nothing, or two things; or an image where embeddings are the user's.
    """
    if not texts:
        raise InputError(
            "expected a query: a key of the table, an image, a folder of images or a scored table; got none"
        )
    names = QueryNames(table, texts)
    queries = []
    for text in dict.fromkeys(texts):
        named = names.find(text)
        if named is None:
            raise InputError(
                f"{table.path} has no key {text!r}, and there is no such file or folder; a query is the key of a row, "
                "an image, a folder of images, or another scored table"
            )
        if named.kind in (IMAGE, FOLDER) and table.embedding_column is not None:
            raise InputError(
                f"{text} is to be embedded, and which model computed the column {table.embedding_column!r} of "
                "--embedding is unknown; pass keys, or a table that has that column"
            )
        queries.append(named)
    return queries


def read_queries(
    named: Sequence[NamedQuery], table: Table, rows: Rows, signal: Signal | None, *, model: str | Path | None = None
) -> Queries:
    """Return the vectors and the certainty of queries.

    Args:
        named: what they are.
        table: that is searched.
        rows: of it, with embeddings and the column of the signal.
        signal: the column that says how certain an image is; None for none.
        model: that scored the table, if it does not ship.

    Raises:
        InputError: for a key whose row has no embedding, an image that cannot be read, a folder without images, or a
            table of another model or without the column.
    """
    parts = [_of_rows([query for query in named if query.kind == ROW], table, rows, signal)]
    files = dict(pair for query in named if query.kind in (IMAGE, FOLDER) for pair in images_of(query))
    if files:
        parts.append(
            _of_images(
                list(files.items()), table, signal, model, {query.text for query in named if query.kind == IMAGE}
            )
        )
    others = [
        open_table(query.text, require=[KEY], embedding=table.embedding_column)
        for query in named
        if query.kind == TABLE
    ]
    parts += [_of_table(other, place, table, signal) for place, other in enumerate(others)]
    width = 0 if rows.embedding is None else rows.embedding.shape[1]
    for part in parts:
        if len(part) and part.vectors.shape[1] != width:
            raise InputError(
                f"expected embeddings of {width:,} numbers, as {table.path} has, got {part.vectors.shape[1]:,} of "
                f"{part.names[0]}; score both with one model"
            )
    parts = [part for part in parts if len(part)]
    arrays = ("vectors", "certainty", "searched_row", "table", "row")
    return Queries(
        names=[name for part in parts for name in part.names],
        problems=[problem for part in parts for problem in part.problems],
        tables=others,
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in arrays},
    )


def _of_rows(named: Sequence[NamedQuery], table: Table, rows: Rows, signal: Signal | None) -> Queries:
    at = np.array([query.row for query in named], np.int64)
    for query in named:
        problem = _problem(rows, query.row)
        if problem:
            raise InputError(f"the query {query.text!r} of {table.path} has {problem}; choose another row")
    return Queries(
        [query.text for query in named],
        rows.array(EMBEDDING)[at].astype(np.float32),
        _certainty(rows, signal)[at],
        at,
        [""] * len(at),
        np.full(len(at), -1),
        np.full(len(at), -1),
    )


def _of_images(
    files: Sequence[tuple[str, Callable[[], bytes]]],
    table: Table,
    signal: Signal | None,
    model: str | Path | None,
    alone: set[str],
) -> Queries:
    from curate.retrieval.images import score_images

    scored = score_images([read for _, read in files], table, model=model)
    for (path, _), problem in zip(files, scored.problems, strict=True):
        if problem and path in alone:
            raise InputError(f"{path} {problem}; choose another query")
    if signal is not None and signal.column not in scored.columns:
        raise InputError(
            f"--certainty {signal.column} is a column of the table, and {files[0][0]} is not a row of it; "
            f"choose a column that the model computes ({', '.join(scored.columns)}), or fit the model to the "
            "table with curate fit"
        )
    none = np.full(len(files), -1)
    certainty = np.full(len(files), np.nan) if signal is None else signal.sign * scored.columns[signal.column]
    problems = [f"it {problem}" if problem else "" for problem in scored.problems]
    return Queries([path for path, _ in files], scored.vectors, certainty, none, problems, none, none)


def _of_table(other: Table, place: int, table: Table, signal: Signal | None) -> Queries:
    same_model(table, other, instead="choose your own column in both with --embedding")
    numbers = () if signal is None else (signal.column,)
    rows = read_rows(other, Needs(numbers=numbers, representations=EMBEDDINGS))
    if rows.embedding is None or not len(rows):
        raise InputError(f"{other.path} holds no row for a query; pass a table with rows")
    at = np.arange(len(rows))
    same = other.path.resolve() == table.path.resolve()
    return Queries(
        list(keys_at(other, at)),
        rows.embedding.astype(np.float32),
        _certainty(rows, signal),
        at if same else np.full(len(at), -1),
        [_problem(rows, row) for row in at.tolist()],
        np.full(len(at), place),
        at,
    )


def _certainty(rows: Rows, signal: Signal | None) -> NDArray[np.float64]:
    """Return the certainty of rows, higher is more certain, shape (N,)."""
    return np.full(len(rows), np.nan) if signal is None else signal.sign * rows.numbers[signal.column]


def _problem(rows: Rows, row: int) -> str:
    """Return why a row cannot be compared; empty if it can."""
    if not rows.ok[row]:
        return "an image that could not be scored"
    return "" if not rows.embedding_problem[row] else EMBEDDING_PROBLEMS[rows.embedding_problem[row] - 1]
