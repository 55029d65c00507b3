"""The graph of nearest neighbours of a folder of rounds: made once for its pool, and used again by every round."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from curate.rounds.files.folder import GRAPH
from curate.rounds.files.sealed import ChangedError
from curate.selectors.geometry import subset
from curate.selectors.pool import Pool
from curate.tables.graph import Stored, computed_graph, stored_graph
from curate.tables.graph_file import AGAIN
from scoring.file_digest import file_sha256
from scoring.search.links import Graph


class PoolGraph:
    """The graph of the rows that a folder of rounds can pick, in a file that may be deleted at any time.

    Args:
        folder: of the rounds.
        expected: digest that the file has to have where it is there; empty takes any file of these rows.
        use_file: whether the file is read, and made where it is missing; else the graph is computed.
    """

    def __init__(self, folder: Path, *, expected: str = "", use_file: bool = True) -> None:
        self.path, self.expected, self.use_file = folder / GRAPH, expected, use_file
        self._stored: Stored | None = None
        self._hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)

    @property
    def digest(self) -> str:
        """The digest of the file that was read or written; empty where no graph was requested, or it has no file."""
        return self._stored.digest if self._stored is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user; the file is named as it reads inside the folder."""
        notes = self._stored.notes if self._stored is not None else ()
        return tuple(note.replace(str(self.path), GRAPH) for note in notes)

    def add_to(
        self, pool: Pool, hashes: NDArray[np.uint64], inside: NDArray[np.bool_], model: str
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the pool with the graph of some of its rows, and notes for the user.

        Args:
            pool: of N rows, with vectors.
            hashes: of their keys, shape (N,).
            inside: the rows that can be requested, the same in every round, shape (N,).
            model: digest of the model that made the vectors.

        Raises:
            InputError: if the file is of other rows, or not the expected one.
        """
        rows = np.flatnonzero(inside)
        stored = self._stored
        if stored is None or not np.array_equal(self._hashes, hashes[rows]):
            vectors = subset(pool.array("vectors"), rows)
            self._stored = stored = self._graph_of(hashes[rows], vectors, model)
            self._hashes = hashes[rows]
        return replace(pool, graph=_spread(stored.graph, rows, len(hashes))), self.notes

    def _graph_of(self, hashes: NDArray[np.uint64], vectors: NDArray, model: str) -> Stored:
        if not self.use_file:
            return computed_graph(self.path, hashes, vectors)
        if self.expected and self.path.exists() and file_sha256(self.path) != self.expected:
            raise ChangedError(f"{self.path} is not what the last round used; {AGAIN}")
        return stored_graph(self.path, hashes, vectors, model, write=True, otherwise=AGAIN)


def _spread(graph: Graph, rows: NDArray[np.int64], n: int) -> Graph:
    """Return the graph of some rows as a graph of n rows; the others have no neighbours and are none."""
    if len(rows) == n:
        return graph
    index = np.full((n, graph.index.shape[1]), -1, np.int32)
    cosine = np.full(index.shape, -np.inf, np.float32)
    index[rows] = np.append(rows, -1).astype(np.int32)[graph.index]  # -1 is the last, which is for none
    cosine[rows] = graph.cosine
    return Graph(index, cosine, graph.recall)
