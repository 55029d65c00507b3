"""The nearest rows of a dataset that are not copies."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.metrics.neighbours import nearest
from scoring.relative.screened import screened_nearest
from scoring.relative.space import COPY, Centred
from scoring.search.graph import knn_graph
from scoring.search.links import Recall

NEIGHBOURS = 20
WIDE = 64  # candidates per row before copies are removed
COMPARED = 8_192  # maximal rows for comparing all pairs in float32
EXACT_ROWS = 100_000  # maximal rows for comparing all pairs in bfloat16 first
QUERIES = 512  # rows per block of the second search, without copies
BLOCK = 32_768  # rows whose candidates are compared with copies at a time


@dataclass(frozen=True)
class Near:
    """The nearest rows of N rows, without copies, nearest first.

    Attributes:
        index: indices of the neighbours, shape (N, K), int64; -1 for none.
        cosine: after centring, shape (N, K), float32; undefined where ``index`` is -1.
        copies: whether a row has a copy other than itself, shape (N,).
        recall: share of the true neighbours that the search finds.
    """

    index: NDArray[np.int64]
    cosine: NDArray[np.float32]
    copies: NDArray[np.bool_]
    recall: Recall

    @property
    def exists(self) -> NDArray[np.bool_]:
        """A mask of the existing neighbours, shape (N, K)."""
        return self.index >= 0


def near_in(dataset: Centred, k: int = NEIGHBOURS, *, copy: float = COPY) -> Near:
    """Return the neighbours of each row of a dataset among the others.

    Beyond 8,192 rows candidates are found in bfloat16, which loses almost none; beyond 100,000 rows by an inverted
    file, which finds about 99 of 100.

    Args:
        dataset: N >= 2 rows.
        k: number of neighbours.
        copy: uncentred cosine above which a row is a copy instead of a neighbour; 1 for no copies.
    """
    width = min(WIDE if copy < 1 else k, len(dataset) - 1)
    index: NDArray[np.integer]
    if COMPARED < len(dataset) <= EXACT_ROWS:
        index, cosine, recall = screened_nearest(dataset.units, width)
    else:
        graph = knn_graph(dataset.units, width, exact_rows=COMPARED)
        index, cosine, recall = graph.index, graph.cosine, graph.recall
    return _without_copies(dataset, dataset, index, cosine, k, copy, recall, np.arange(len(dataset)))


def near_to(rows: Centred, references: Centred) -> Near:
    """Return the neighbours of N rows among R >= 1 references, centred by the same mean; copies are excluded.

    A row that is itself a reference counts as its copy.
    """
    width = min(WIDE, len(references))
    cosine, index = nearest(torch.from_numpy(rows.units), torch.from_numpy(references.units), width)
    everything = Recall.of_everything()
    return _without_copies(rows, references, index.numpy(), cosine.numpy(), NEIGHBOURS, COPY, everything, None)


def _without_copies(
    rows: Centred,
    others: Centred,
    index: NDArray[np.integer],
    cosine: NDArray[np.float32],
    k: int,
    copy: float,
    recall: Recall,
    excluded: NDArray[np.int64] | None,
) -> Near:
    """Keep the first k candidates that are not copies; rows with too many copies are searched again."""
    n, width = index.shape
    nearest, near = np.empty((n, min(k, width)), np.int64), np.empty((n, min(k, width)), np.float32)
    has_copy = np.empty(n, bool)
    for start in range(0, n, BLOCK):
        at = slice(start, start + BLOCK)
        some, exists = index[at], index[at] >= 0
        part = np.where(exists, cosine[at], 0)
        is_copy = (rows.part(at).raw(others, some.clip(0), part) > copy) & exists
        has_copy[at] = is_copy.any(1)
        stays = exists & ~is_copy
        order = np.argsort(~stays, axis=1, kind="stable")[:, :k]
        nearest[at] = np.take_along_axis(np.where(stays, some, -1), order, 1)
        near[at] = np.take_along_axis(part, order, 1)
    n_needed = min(k, len(others) - (excluded is not None))
    short = np.flatnonzero(((nearest >= 0).sum(1) < n_needed) & has_copy & (width < len(others)))
    for start in range(0, len(short), QUERIES):
        queries = short[start : start + QUERIES]
        nearest[queries], near[queries] = _search_without_copies(rows, others, queries, nearest.shape[1], copy)
    near[nearest < 0] = 0
    return Near(nearest, near, has_copy, recall)


def _search_without_copies(
    rows: Centred, others: Centred, some: NDArray[np.int64], k: int, copy: float
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Compare the rows ``some`` with all others except copies and themselves; return indices and cosines, (B, k)."""
    units = torch.from_numpy(others.units)
    length, along = torch.from_numpy(others.length), torch.from_numpy(others.along)
    part = torch.from_numpy(rows.units[some]) @ units.T  # (B, R)
    raw = part * torch.from_numpy(rows.length[some])[:, None] * length
    raw += torch.from_numpy(rows.along[some])[:, None] + along - others.square
    part[raw > copy] = -torch.inf
    best, at = part.topk(k, dim=1)
    index = torch.where(torch.isneginf(best), -1, at)
    return index.numpy(), best.numpy()
