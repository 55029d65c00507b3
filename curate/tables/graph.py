"""The graph of nearest neighbours in a file: computed once, and used by every command that needs it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.manifest.store_path import sha256_of
from curate.tables.graph_file import (
    AGAIN,
    BLOCK,
    check_facts,
    check_types,
    neighbours_in,
    recall_in,
    rows_in,
    write_graph,
)
from curate.tables.table import Table, open_table
from curate.tables.vectors import rows_of, vector_hashes
from scoring.atomic import require_folder
from scoring.errors import InputError
from scoring.search.links import MOST_NEIGHBOURS, Graph

ANOTHER = "name another file with --graph"


@dataclass(frozen=True)
class Stored:
    """A graph of N rows, and the file that holds it or one of more rows.

    Attributes:
        graph: indices are positions among the rows requested; neighbours that are not among these are left out.
        path: of the file.
        digest: of the file's bytes; empty where it was not written.
        notes: notes for the user.
    """

    graph: Graph
    path: str
    digest: str
    notes: tuple[str, ...]


def stored_graph(
    path: str | Path,
    hashes: NDArray[np.uint64],
    vectors: NDArray,
    model: str,
    *,
    write: bool,
    otherwise: str = ANOTHER,
) -> Stored:
    """Read the graph of some rows from a file that holds these rows or more, or compute it and write it down.

    Args:
        path: a name ending in ``.parquet``.
        hashes: of the keys, in any order, each once, shape (N,).
        vectors: shape (N, D), float16 or float32; none of length zero.
        model: digest of the model that made them; empty where it is unknown.
        write: whether a graph that is missing yet gets a file.
        otherwise: what to do about the graph of other rows, for messages.

    Returns:
        The graph; the same whatever the order of the rows.

    Raises:
        InputError: if the file lacks some of the rows, holds other embeddings of them or another model's, or
            is damaged; if the path is a folder, or a link to nothing.
    """
    path = Path(path)
    if path.is_dir():
        raise InputError(f"expected a graph of neighbours at {path}, which is a folder; {otherwise}")
    if path.exists():
        return _read(open_table(path), hashes, vectors, model, otherwise)
    if write and path.is_symlink():
        raise InputError(f"expected a graph of neighbours at {path}, which is a link to nothing; {otherwise}")
    if path.suffix != ".parquet":
        raise InputError(f"the graph is a Parquet file: expected a name like graph.parquet, got {path}")
    if write:
        require_folder(path)
    order, graph = _computed(hashes, vectors)
    digest, notes = "", tuple[str, ...]()
    if write:
        try:
            write_graph(path, hashes[order], vector_hashes(vectors)[order], graph, model)
        except InputError:
            if path.is_file():  # another process made one in the meantime, and it is as good if it is of these rows
                return _read(open_table(path), hashes, vectors, model, otherwise)
            raise
        digest, notes = sha256_of(path), (f"{path}: the graph of {counted(len(hashes), 'row')}, to be used again",)
    return _in_order(order, graph, path, digest, notes)


def computed_graph(path: Path, hashes: NDArray[np.uint64], vectors: NDArray) -> Stored:
    """Compute the graph of some rows, whatever is in the file; arguments and result as for ``stored_graph``."""
    return _in_order(*_computed(hashes, vectors), path, "", ())


def _computed(hashes: NDArray[np.uint64], vectors: NDArray) -> tuple[NDArray[np.int64], Graph]:
    """Return rows in the order of their hashes, and their graph in that order."""
    from scoring.search.graph import knn_graph

    order = np.argsort(hashes, kind="stable")
    return order, knn_graph(rows_of(vectors, order), max(1, min(MOST_NEIGHBOURS, len(hashes) - 1)))


def _in_order(order: NDArray[np.int64], graph: Graph, path: Path, digest: str, notes: tuple[str, ...]) -> Stored:
    """Return a graph of rows in some order as one of the rows as they were given."""
    if np.array_equal(order, np.arange(len(order))):
        return Stored(graph, str(path), digest, notes)
    index, cosine = _room(len(order), graph.index.shape[1])
    _place(index, cosine, graph.index, graph.cosine, order, np.append(order, -1).astype(np.int32))
    return Stored(Graph(index, cosine, graph.recall), str(path), digest, notes)


def _room(n: int, width: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    return np.full((n, width), -1, np.int32), np.full((n, width), -np.inf, np.float32)


def _place(
    index: NDArray[np.int32],
    cosine: NDArray[np.float32],
    neighbours: NDArray[np.int32],
    alike: NDArray[np.float32],
    to: NDArray[np.int64],
    place: NDArray[np.int32],
) -> None:
    """Write neighbours down, in place, by the numbers that rows have here; those that have none are left out.

    Args:
        index: shape (N, k).
        cosine: shape (N, k).
        neighbours: neighbours by the numbers of the file, -1 for none, shape (B, k).
        alike: cosines, shape (B, k).
        to: rows here, shape (B,).
        place: number of the file -> row here, or -1; its last entry is for no neighbour.
    """
    for start in range(0, len(to), BLOCK):
        block = slice(start, start + BLOCK)
        mine, near = place[neighbours[block]], alike[block]
        if (mine < 0).any():
            left = np.argsort(mine < 0, axis=1, kind="stable")
            mine, near = np.take_along_axis(mine, left, axis=1), np.take_along_axis(near, left, axis=1)
        index[to[block]], cosine[to[block]] = mine, np.where(mine < 0, np.float32(-np.inf), near)


def _read(table: Table, hashes: NDArray[np.uint64], vectors: NDArray, model: str, otherwise: str) -> Stored:
    check_facts(table, model, otherwise)
    width = check_types(table)
    recall = recall_in(table)
    at, n = rows_in(table, hashes, vectors, otherwise)
    place = np.full(n + 1, -1, np.int32)
    place[at] = np.arange(len(at))
    index, cosine = _room(len(hashes), width)
    named = start = 0
    for neighbours, alike in neighbours_in(table, width, n):
        rows = place[start : start + len(neighbours)]
        start += len(neighbours)
        neighbours, alike, to = neighbours[rows >= 0], alike[rows >= 0], rows[rows >= 0].astype(np.int64)
        named += int((neighbours >= 0).sum())
        _place(index, cosine, neighbours, alike, to, place)
    if start != n:
        raise InputError(f"{table.path} is damaged: it changed while it was being read; {AGAIN}")
    note = f"{table.path}: the graph of {counted(n, 'row')} is used again"
    if n > len(hashes):
        lost = 1 - int((index >= 0).sum()) / max(1, named)
        note += f", for {len(hashes):,} of them: {lost:.2%} of the neighbours that it names are other rows"
    return Stored(Graph(index, cosine, recall), str(table.path), sha256_of(table.path), (note,))
