"""All rows whose cosine with a query is at least a threshold, among any number of rows."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from scoring.search.kmeans import assign, nearest_centroids, spherical_kmeans
from scoring.search.layout import Layout, Spans
from scoring.search.links import Links, Recall, rounded, sorted_links
from scoring.search.probes import choose_probes
from scoring.search.rows import UnitRows, Vectors, check_vectors, unit_table

CLUSTER = 500  # rows a cluster has on average
ROOTS = 4  # but no more clusters than this many times the root of N
ITERATIONS = 6  # of k-means: more of them move the recall less than one more probe does
AT_ONCE = 65_536  # queries at once


class CosineIndex:
    """Finds every pair of a query and a row whose cosine is at least a threshold.

    Up to ``exact_rows`` rows every query meets every row, and no pair is lost. Beyond, rows lie by the nearest of some
    k-means directions, and a query meets those of the few directions nearest to it: how few is decided, and the
    share of pairs that are found so is measured, on rows drawn at random. Either way no pair below the threshold is
    reported: each one's cosine is computed in float64 from the rows as they are stored, and a cosine within 1e-12 of
    the threshold counts as at it. A row of length zero is like nothing.

    Rows may have any length; their cosines are what is compared. Memory: 2 N D bytes beside the rows given, which
    stay where they are, and blocks that do not grow with N. A search costs what its queries and the rows that they
    meet cost; ``among`` takes rows out of that.

    Attributes:
        threshold: cosine.
        n_rows: rows of the index, N.
        probes: clusters that a query looks at.
        recall: share of the pairs that a search finds, with an interval.
    """

    def __init__(
        self,
        vectors: Vectors,
        threshold: float,
        *,
        exact_rows: int = 50_000,
        recall: float = 0.999,
        seed: int = 0,
        device: str | None = None,
        sample: int = 4096,
        order: NDArray[np.int64] | None = None,
    ) -> None:
        """Lay the rows out, and measure.

        Args:
            vectors: shape (N, D), float16, float32 or int8; may be a memory map. They are read, and must not change.
            threshold: cosine, 0 < threshold <= 1.
            exact_rows: the most rows that are searched exactly.
            recall: share of pairs that the choice of probes aims at, 0 < recall < 1.
            seed: of the directions, and of the rows that the recall is measured on.
            device: where products are made: None or "cpu", or "cuda".
            sample: rows that the recall is measured on; each costs a comparison with all rows.
            order: a permutation of the rows that does not depend on their place, shape (N,), such as that of a hash of
                their keys: then what is found beyond ``exact_rows`` does not depend on it either.

        Raises:
            ValueError: if an argument is out of range, or a row holds NaN or infinity; names the row.
        """
        check_vectors(vectors)
        if not 0 < threshold <= 1 or not 0 < recall < 1 or sample < 2:
            got = f"{threshold}, {recall} and {sample}"
            raise ValueError(f"threshold must be in (0, 1], recall in (0, 1) and sample >= 2, got {got}")
        self.threshold, self.n_rows = threshold, len(vectors)
        self.probes, self.recall = 1, Recall.of_everything()
        self._device = torch.device(device or "cpu")
        self._centroids: torch.Tensor | None = None
        n_clusters = min(self.n_rows // CLUSTER, ROOTS * math.isqrt(self.n_rows))
        if self.n_rows <= exact_rows or n_clusters < 2:
            self._layout = Layout(vectors, np.zeros(self.n_rows, np.int32), 1, self._device)
            return
        middle = spherical_kmeans(vectors, n_clusters, seed=seed, iterations=ITERATIONS, order=order, device=device)
        home = assign(vectors, middle, device=device)[0][:, 0]
        self._layout = Layout(vectors, home, n_clusters, self._device)
        self._centroids = torch.from_numpy(middle).to(self._device)
        self.probes, self.recall = choose_probes(
            self._layout, self._centroids, threshold, wanted=recall, seed=seed, sample=sample, order=order
        )

    def search(self, queries: Vectors, among: NDArray[np.bool_] | None = None, *, first: bool = False) -> Links:
        """Return the pairs of a query and a row whose cosine is at least the threshold.

        Args:
            queries: shape (Q, D), of the dtype of the index, any length; one of length zero finds nothing.
            among: rows that may be found, shape (N,); all of them by default.
            first: of each row only the link with the first query that it has one with: never more than N links, and
                the work of finding those alone.

        Returns:
            Links sorted by query and row; cosines as float32, rounded so that none is below the threshold.

        Raises:
            ValueError: if shapes or dtypes do not fit, or a query holds NaN or infinity.
        """
        check_vectors(queries, "queries")
        table = self._layout.vectors
        if queries.dtype != table.dtype or queries.shape[1] != table.shape[1]:
            wanted = f"{table.dtype} of width {table.shape[1]}"
            raise ValueError(f"queries must be {wanted}, got {queries.dtype} of width {queries.shape[1]}")
        if among is not None and (among.shape != (self.n_rows,) or among.dtype != np.bool_):
            raise ValueError(f"among must be bool of shape ({self.n_rows},), got {among.dtype} of {among.shape}")
        left = among if not first else np.ones(self.n_rows, bool) if among is None else among.copy()
        parts = []
        for start in range(0, len(queries), AT_ONCE):
            block = queries[start : start + AT_ONCE]
            rows = unit_table(block, str(self._device))
            for query, place, cosine in self._layout.scan(
                block, rows, self._spans(rows), self.threshold, left, first=first
            ):
                parts.append((query + start, self._layout.order[place], rounded(cosine, self.threshold)))
                if first and left is not None:  # no later block of queries need look for it
                    left[parts[-1][1]] = False
        return sorted_links(parts)

    def _spans(self, rows: UnitRows) -> Spans:
        """Return which queries look at which places: all at all, or each at the clusters nearest to it."""
        usable = np.flatnonzero(rows.squares > 0)
        if self._centroids is None:
            return self._layout.everything(usable)
        probed = nearest_centroids(rows.units, self._centroids, self.probes)[0].cpu().numpy()
        return self._layout.clusters(usable, probed[usable])
