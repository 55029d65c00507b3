"""How many clusters a query has to look at, and how many pairs that finds: from rows compared with all rows."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from scoring.search.kmeans import nearest_centroids
from scoring.search.layout import Layout
from scoring.search.links import Recall
from scoring.search.rows import unit_table

MOST = 64  # clusters that a query looks at
LEAST = 2  # a pair that lies across a border is found from both sides
UNKNOWN = 8  # clusters to look at where the sample has no pair to go by
AT_ONCE = 256  # sampled rows at once
ENOUGH = 1_000_000  # pairs, after which no more rows are compared


def choose_probes(
    layout: Layout,
    centroids: Tensor,
    threshold: float,
    *,
    wanted: float,
    seed: int,
    sample: int,
    order: NDArray[np.int64] | None = None,
) -> tuple[int, Recall]:
    """Return how many clusters to look at, and the recall that this gives.

    Rows drawn at random are compared with all rows. One half of them decides: the fewest clusters that find the
    wanted share of their pairs, and of the pairs of a row on average, so that one large group does not decide
    alone. The other half reports. Where there are very many pairs the sample is cut short.

    Args:
        layout: the rows in their clusters.
        centroids: of the C clusters, shape (C, D).
        threshold: cosine.
        wanted: share of pairs, in (0, 1).
        seed: of the sample.
        sample: rows drawn, >= 2.
        order: of the rows, as ``spherical_kmeans`` takes it.

    Returns:
        Clusters, between 2 and 64 (or C), and the share of pairs found by looking at so many.
    """
    most = min(MOST, len(centroids))
    usable = np.flatnonzero(layout.squares > 0) if order is None else order[layout.squares[order] > 0]
    rows = np.random.default_rng([seed, 1]).permutation(usable)[:sample]
    counts = _counts(layout, centroids, threshold, rows, most)
    probes = min(most, _fewest(counts[0::2], wanted))
    reporting = counts[1::2]
    return probes, Recall.of_sample(reporting[:, :probes].sum(1), reporting.sum(1))


def _fewest(counts: NDArray[np.int64], wanted: float) -> int:
    """Return the fewest clusters that find the wanted share, of all pairs and of the average row's."""
    of_row = counts.sum(1)
    counts, of_row = counts[of_row > 0], of_row[of_row > 0]
    if not len(counts):
        return UNKNOWN
    upto = counts[:, :-1].cumsum(1)  # (S, most): pairs found by looking at so many clusters
    share = np.minimum(upto.sum(0) / of_row.sum(), (upto / of_row[:, None]).mean(0))
    reached = np.flatnonzero(share >= wanted)
    return max(LEAST, int(reached[0]) + 1) if len(reached) else MOST


def _counts(
    layout: Layout, centroids: Tensor, threshold: float, rows: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Return how many links of each row lie in its nearest cluster, its second..., and beyond the last looked at.

    Returns:
        Shape (S, most + 1), int64, S <= len(rows); the row itself is not counted.
    """
    cluster_at = np.searchsorted(layout.starts, np.arange(len(layout.order)), side="right") - 1
    counts, seen = [np.zeros((0, most + 1), np.int64)], 0
    for start in range(0, len(rows), AT_ONCE):
        chosen = rows[start : start + AT_ONCE]
        number = np.arange(len(chosen))
        stored = layout.vectors[chosen]
        units = unit_table(stored, str(layout.device))
        probed = nearest_centroids(units.units, centroids, most)[0].cpu().numpy()
        rank = np.full((len(chosen), len(centroids)), most, np.uint8)
        rank[number[:, None], probed] = np.arange(most)
        part = np.zeros(len(chosen) * (most + 1), np.int64)
        for query, place, _ in layout.scan(stored, units, layout.everything(number), threshold):
            other = layout.order[place] != chosen[query]
            query, place = query[other], place[other]
            part += np.bincount(query * (most + 1) + rank[query, cluster_at[place]], minlength=len(part))
        counts.append(part.reshape(len(chosen), most + 1))
        seen += int(part.sum())
        if seen >= ENOUGH:
            break
    return np.concatenate(counts)
