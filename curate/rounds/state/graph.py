"""The graph of nearest neighbours of a folder of rounds: made once for its pool, and used again by every round."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.rounds.files.folder import Folder
from curate.rounds.files.sealed import ChangedError
from curate.selectors.graphs import with_graph
from curate.selectors.pool import Pool
from curate.tables.graph import Stored, computed_graph, stored_graph
from curate.tables.graph_file import AGAIN
from scoring.file_digest import file_sha256
from scoring.search.graph import Graph

GRAPH = "graph.parquet"


class PoolGraph:
    """The graph of the rows that a folder of rounds can ask, in a file that may be deleted at any time.

    Args:
        folder: of the rounds.
        write: whether a graph that is not there gets its file.
        expected: digest of the file by the last round that went by it; empty where none did.
        read: whether a file that is there is read; the graph is computed otherwise, and has no file.
    """

    def __init__(self, folder: Path, *, write: bool = False, expected: str = "", read: bool = True) -> None:
        self.path, self.write, self.expected, self.read = folder / GRAPH, write, expected, read
        self._stored: Stored | None = None
        self._hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)

    @property
    def digest(self) -> str:
        """Of the file that was read or written; empty where the graph was not asked for, or has no file."""
        return self._stored.digest if self._stored is not None else ""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know; the file is named as it reads inside the folder."""
        said = self._stored.notes if self._stored is not None else ()
        return tuple(note.replace(str(self.path), GRAPH) for note in said)

    @classmethod
    def of_folder(cls, folder: Folder) -> "PoolGraph":
        """Return the graph of a folder whose next round is to be made: it is the one of the last round that had any."""
        noted = [digest for digest in (noted_graph(each.state) for each in folder.rounds) if digest]
        return cls(folder.path, write=True, expected=noted[-1] if noted else "")

    def given_to(
        self, pool: Pool, hashes: NDArray[np.uint64], inside: NDArray[np.bool_], model: str
    ) -> tuple[Pool, tuple[str, ...]]:
        """Return the pool with the graph of some of its rows, and what a person should know.

        Args:
            pool: of N rows, with vectors.
            hashes: of their keys, shape (N,).
            inside: the rows that can be asked, the same in every round, shape (N,).
            model: digest of the model that made the vectors.

        Raises:
            InputError: if the file is of other rows, or not as it was left.
        """
        if pool.vectors is None:
            raise ValueError("a graph needs vectors")
        rows = np.flatnonzero(inside)
        stored = self._stored
        if stored is None or not np.array_equal(self._hashes, hashes[rows]):
            self._refuse_changed()
            vectors = pool.vectors if inside.all() else pool.vectors[rows]
            if self.read:
                stored = stored_graph(self.path, hashes[rows], vectors, model, write=self.write, otherwise=AGAIN)
            else:
                stored = computed_graph(self.path, hashes[rows], vectors)
            self._stored, self._hashes = stored, hashes[rows]
        return with_graph(pool, _spread(stored.graph, rows, len(hashes))), self.notes

    def _refuse_changed(self) -> None:
        if self.expected and self.path.exists() and file_sha256(self.path) != self.expected:
            raise ChangedError(f"{self.path} is not what the last round went by; {AGAIN}")


class GraphsThen:
    """The graphs that the rounds of a folder went by, for choosing their batches again; nothing is written.

    A round goes by the file where that is, byte for byte, the one of its state. Otherwise the graph is computed, once:
    what was edited, made again or left there since must not change what a round asked.

    Args:
        folder: of the rounds.
    """

    def __init__(self, folder: Path) -> None:
        self.path, self.now = folder / GRAPH, file_sha256(folder / GRAPH)
        self._stored, self._computed = PoolGraph(folder), PoolGraph(folder, read=False)
        self._noted: set[str] = set()

    def of(self, state: Mapping[str, Any] | None) -> PoolGraph:
        """Return the graph of a round; None stands for a state that is lost."""
        digest = noted_graph(state) if state is not None else ""
        self._noted |= {digest} - {""}
        return self._stored if self.now and digest == self.now else self._computed

    def findings(self) -> list[str]:
        """Return what is wrong with the file: that no round which was looked at went by it."""
        if not self._noted or not os.path.lexists(self.path) or self.now in self._noted:
            return []
        return [f"{GRAPH} is not what any round went by; {AGAIN}"]


def noted_graph(state: Mapping[str, Any]) -> str:
    """Return the digest of the graph that a round's state names; empty where it names none."""
    noted = state.get("graph")
    return str(noted.get("sha256") or "") if isinstance(noted, dict) else ""


def _spread(graph: Graph, rows: NDArray[np.int64], n: int) -> Graph:
    """Return the graph of some rows as one of n rows, of which the others have no neighbour and are nobody's."""
    if len(rows) == n:
        return graph
    index = np.full((n, graph.index.shape[1]), -1, np.int32)
    cosine = np.full(index.shape, -np.inf, np.float32)
    index[rows] = np.append(rows, -1).astype(np.int32)[graph.index]  # -1 is the last, which is for none
    cosine[rows] = graph.cosine
    return Graph(index, cosine, graph.recall)
