"""How densely rows lie among the rows of their cluster: measured, or read from the graph of nearest neighbours."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.selectors.geometry import spans, squared_distances, unit

if TYPE_CHECKING:
    from scoring.search.links import Graph

NEAR = 20  # neighbours that make a row typical
DOUBLE = 1_024  # rows of one cluster whose distances are measured in float64
LARGEST = 20_000  # rows of one cluster among which neighbours are looked for
AT_ONCE = 512  # rows at a time
READ = 8_192  # rows of the graph at a time
ALIKE = 0.999  # cosines from here on say too little of a distance in float32, and are measured again
LITTLE = 1e-5  # added to a mean distance, so that copies have a typicality too
ALONE = 1e5  # typicality of the only row of a cluster


class Typicality:
    """Typicality of the rows of a pool's clusters, cluster by cluster; with a graph most of it is there already.

    A row whose graph has enough unlabelled its own rows cluster needs no search: these are the nearest ones. The
    others are measured against the whole cluster. In a cluster of more than 20,000 rows they are so where they are at
    most 20,000; else all its rows are measured against 20,000 drawn ones, as without a graph.

    Args:
        vectors: of the rows, shape (M, D).
        home: cluster of each row, -1 for rows that count as no neighbour, such as labelled ones, shape (M,).
        seed: of the rows that are drawn.
        graph: of these rows, or None.
    """

    def __init__(self, vectors: NDArray, home: NDArray[np.int32], seed: int, graph: "Graph | None" = None) -> None:
        self.vectors, self.seed, self.graph = vectors, seed, graph
        self.home = np.append(home, np.int32(-1))  # the last is for no neighbour at all
        self.n_rows = self.n_known = 0
        self.drawn: set[int] = set()

    def __call__(self, rows: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the typicality of the rows of one cluster, all that are no labelled ones, shape (n,)."""
        number, vectors = int(self.home[rows[0]]), self.vectors[rows]
        self.n_rows += len(rows)
        if self.graph is None or len(rows) == 1:
            return self._measured(number, vectors)
        typicality, known = self._read(number, rows, self.graph)
        rest = np.flatnonzero(~known)
        if len(rest) > LARGEST:
            return self._measured(number, vectors)
        self.n_known += len(rows) - len(rest)
        typicality[rest] = _among(vectors, rest, np.arange(len(rows)))
        return typicality

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user."""
        notes = []
        if self.graph is not None:
            share = self.n_known / max(1, self.n_rows)
            notes.append(f"neighbours from the graph for {share:.1%} of {self.n_rows:,} rows, measured for the others")
        if self.drawn:
            notes.append(f"approximate: neighbours in {len(self.drawn)} clusters drawn")
        return tuple(notes)

    def _measured(self, number: int, vectors: NDArray) -> NDArray[np.float64]:
        if len(vectors) > LARGEST:
            self.drawn.add(number)
        return typicality(vectors, self.seed)

    def _read(
        self, number: int, rows: NDArray[np.int32], graph: "Graph"
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return the typicality of rows by the graph, and which rows have enough neighbours in it."""
        near = _near(len(rows))
        typicality, known = np.zeros(len(rows)), np.zeros(len(rows), bool)
        for span in spans(len(rows), READ):
            index = graph.index[rows[span]]
            inside = self.home[index] == number  # (B, K)
            enough = np.flatnonzero(inside.sum(1) >= near)
            first = np.argsort(~inside[enough], axis=1, kind="stable")[:, :near]
            index = np.take_along_axis(index[enough], first, axis=1)
            cosine = np.take_along_axis(graph.cosine[rows[span]][enough], first, axis=1).astype(np.float64)
            gaps = np.sqrt(np.maximum(2 - 2 * cosine, 0))
            at, column = np.nonzero(cosine >= ALIKE)
            gaps[at, column] = self._distances(rows[span][enough][at], index[at, column])
            typicality[span.start + enough], known[span.start + enough] = 1 / (gaps.mean(1) + LITTLE), True
        return typicality, known

    def _distances(self, first: NDArray[np.int32], second: NDArray[np.int32]) -> NDArray[np.float64]:
        """Return the distances of pairs of rows, shape (P,); exactly 0 between copies."""
        distances = np.empty(len(first))
        for span in spans(len(first)):
            apart = unit(self.vectors[first[span]], np.float64) - unit(self.vectors[second[span]], np.float64)
            distances[span] = np.linalg.norm(apart, axis=1)
        return distances


def typicality(vectors: NDArray, seed: int = 0) -> NDArray[np.float64]:
    """Return 1 / (mean distance to the nearest min(20, n / 2) others + 1e-5); higher lies denser.

    Args:
        vectors: rows of one cluster, shape (n, D).
        seed: of the 20,000 rows among which neighbours are looked for where there are more.
    """
    count = len(vectors)
    others = np.arange(count)
    if count > LARGEST:
        others = np.sort(np.random.default_rng(seed).choice(count, LARGEST, replace=False))
    return _among(vectors, np.arange(count), others)


def _near(n: int) -> int:
    """Return how many neighbours make a row typical among n."""
    return min(NEAR, max(1, n // 2))


def _among(vectors: NDArray, queries: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the typicality of some rows among others, both ascending, shape (A,)."""
    distance, near = np.zeros(len(queries)), _near(len(others))
    if len(vectors) == 1:
        return np.full(len(queries), ALONE)
    precision = np.float64 if len(vectors) <= DOUBLE else np.float32
    all_others = unit(vectors[others], precision) if len(others) <= LARGEST else None
    for span in spans(len(queries), AT_ONCE):
        block = unit(vectors[queries[span]], precision)
        nearest = np.empty((len(block), 0), precision)
        for part in spans(len(others), LARGEST):
            gaps = squared_distances(
                block, all_others if all_others is not None else unit(vectors[others[part]], precision)
            )
            at = np.searchsorted(others[part], queries[span]).clip(max=gaps.shape[1] - 1)
            is_same = others[part][at] == queries[span]
            gaps[np.flatnonzero(is_same), at[is_same]] = np.inf
            gaps = gaps if not nearest.shape[1] else np.concatenate([nearest, gaps], axis=1)
            gaps.partition(near - 1, axis=1)
            nearest = gaps[:, :near]
        distance[span] = np.sqrt(nearest).mean(axis=1, dtype=np.float64)
    return 1 / (distance + LITTLE)
