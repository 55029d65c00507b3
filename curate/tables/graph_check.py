"""A graph of neighbours in a file, compared with what the embeddings give: computed again, and not believed."""

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.graph_file import check_types, neighbours_in
from curate.tables.needs import Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.table import Table
from curate.tables.vectors import rows_of, vector_hashes
from scoring.search.graph import knn_graph
from scoring.search.links import MOST_NEIGHBOURS, Graph

CLOSE = 1e-4  # cosines of another processor differ by less
BLOCK = 2048  # rows at a time


def forged_rows(file: Table, source: Table) -> tuple[NDArray[np.int64], int]:
    """Return the rows of a table whose neighbours in a file are not those that their embeddings give.

    A neighbour that is named must have the cosine that is noted, and no row that is more alike than the last one named
    may be missing. The file may hold more rows than the table; of those nothing is reported. Where the file was made by
    an approximate search over more rows than the table has, rows that are missing are what such a search leaves out,
    and only the cosines are compared.

    Args:
        file: a graph, as ``curate.tables.graph`` writes it.
        source: the table that was decided, with ``embedding``.

    Returns:
        Row numbers of the table, ascending, and how many rows were compared.

    Raises:
        InputError: for a file that is damaged.
    """
    rows = read_rows(source, Needs(representations=frozenset({"embedding"})))
    width = check_types(file)
    known, place = _known(file, rows)
    if not len(known) or rows.embedding is None:
        return known, 0
    vectors = _unit(rows_of(rows.embedding, known))
    index, cosine = _noted(file, width, place, len(known))
    complete = len(known) == file.n_rows
    again = knn_graph(vectors, max(1, min(MOST_NEIGHBOURS, len(known) - 1)))
    wrong = np.zeros(len(known), bool)
    for start in range(0, len(known), BLOCK):
        block = slice(start, start + BLOCK)
        wrong[block] = _false(vectors, index[block], cosine[block], start)
        if complete or again.recall.exact:
            wrong[block] |= _lacking(again, index[block], cosine[block], block, everything=width >= file.n_rows - 1)
    return known[wrong], len(known)


def _known(file: Table, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the rows that the file holds too, and which of these each row of the file is, -1 for another's."""
    noted = file.read(["hash", "embedding_hash"])
    keys, embeddings = (column.fill_null(0).to_numpy() for column in noted.columns)
    compared = rows.compared()
    mine = vector_hashes(rows_of(rows.array(EMBEDDING), compared))
    if not len(keys):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    at = np.searchsorted(keys, rows.hashes[compared]).clip(max=len(keys) - 1)
    same = (keys[at] == rows.hashes[compared]) & (embeddings[at] == mine)
    place = np.full(len(keys), -1, np.int64)
    place[at[same]] = np.arange(int(same.sum()))
    return compared[same], place


def _unit(vectors: NDArray) -> NDArray[np.float32]:
    wide = vectors.astype(np.float32)
    lengths: NDArray[np.float32] = np.linalg.norm(wide, axis=1, keepdims=True)
    return np.asarray(wide / np.where(lengths == 0, 1, lengths), np.float32)


def _noted(file: Table, width: int, place: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return the neighbours as noted by the numbers of the N rows: -1 for none, -2 for rows of others."""
    index, cosine = np.full((n, width), -1, np.int64), np.full((n, width), -np.inf, np.float32)
    start = 0
    for neighbours, alike in neighbours_in(file, width, file.n_rows):
        to = place[start : start + len(neighbours)]
        start += len(neighbours)
        is_known = to >= 0
        named = place[neighbours[is_known]]
        index[to[is_known]] = np.where(neighbours[is_known] < 0, -1, np.where(named < 0, -2, named))
        cosine[to[is_known]] = alike[is_known]
    return index, cosine


def _false(
    vectors: NDArray[np.float32], index: NDArray[np.int64], cosine: NDArray[np.float32], start: int
) -> NDArray[np.bool_]:
    """Whether a row, shape (B,), names itself, a row twice, or one that is not as alike as noted."""
    mine = vectors[start : start + len(index)]
    named = index >= 0
    alike = np.einsum("bd,bkd->bk", mine, vectors[np.maximum(index, 0)])
    wrong = named & (np.abs(alike - np.where(named, cosine, 0)) > CLOSE)
    itself = index == np.arange(start, start + len(index))[:, None]
    ordered = np.sort(index, axis=1)
    twice = (ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)
    return np.asarray((wrong | itself).any(axis=1) | twice.any(axis=1))


def _lacking(
    again: Graph, index: NDArray[np.int64], cosine: NDArray[np.float32], block: slice, *, everything: bool
) -> NDArray[np.bool_]:
    """Whether a row, shape (B,), does not name one that is more alike than the last one that it names."""
    near, alike = again.index[block], again.cosine[block]
    last = np.where(index[:, -1] == -1, -np.inf, cosine[:, -1])  # a list that is not full names all there are
    reach = np.full(len(index), -np.inf) if everything else last
    due = (near >= 0) & (alike > reach[:, None] + CLOSE)
    named = (near[:, :, None] == index[:, None, :]).any(axis=2)
    return np.asarray((due & ~named).any(axis=1))
