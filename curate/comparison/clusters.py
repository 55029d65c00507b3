"""Clusters of the rows of two tables together, and how much of each table is in them."""

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.comparison.differences import SIGNIFICANT, ClusterShare, DistinctiveRow
from curate.comparison.sample import Items, TableSample
from curate.statistics.two_sample import Units, share_gaps
from curate.tables.keys import named
from scoring.metrics.proportions import wilson

ROWS_A_CLUSTER = 20  # at least, on average
LACKING = 0.1  # of the other's share
N_EXAMPLES = 5
SIDES = ("first", "second")


def cluster_shares(
    samples: tuple[TableSample, TableSample], items: Items, k: int, *, repeats: int, seed: int
) -> list[ClusterShare]:
    """Return the clusters that hold rows, those that one side lacks first, then by the difference of shares.

    Directions are taken from the mean of all items, so that what all share does not decide.

    Args:
        samples: both, for the numbers of their rows.
        items: of both.
        k: clusters; fewer where items are few.
        repeats: permutations of the permutation test.
        seed: of clusters and permutations.
    """
    from scoring.search.kmeans import assign, spherical_kmeans  # torch, which other comparisons do without

    counts = items.counts
    rows = items.vectors - items.vectors.mean(0, dtype=np.float64).astype(np.float32)
    k = max(1, min(k, len(rows) // ROWS_A_CLUSTER))
    centroids = spherical_kmeans(rows, k, seed=seed, sample=len(rows))
    nearest, cosine = (each[:, 0] for each in assign(rows, centroids))
    nearest = np.maximum(nearest, 0)  # a row at the very mean lies nowhere
    order = np.argsort(nearest, kind="stable")
    starts = np.flatnonzero(np.append(True, np.diff(nearest[order]) > 0))
    of = Units(counts.part(order), starts, nearest[order][starts].astype(np.float64))
    adjusted = share_gaps(of, repeats=repeats, seed=seed).p
    clusters = []
    for number, p in zip(of.values.astype(int).tolist(), adjusted.tolist(), strict=True):
        inside = nearest == number
        n = int(counts.a[inside].sum()), int(counts.b[inside].sum())
        shares = wilson(n[0], int(counts.a.sum())), wilson(n[1], int(counts.b.sum()))
        small = int(shares[1].value < shares[0].value)
        lacks = p <= SIGNIFICANT and shares[small].value <= LACKING * shares[1 - small].value
        score = np.where(inside, cosine, -np.inf)
        first, second = (distinctive_rows(samples, items, score, side, N_EXAMPLES) for side in (0, 1))
        clusters.append(ClusterShare(number, n, *shares, p, SIDES[small] if lacks else "", (first, second)))
    return sorted(clusters, key=lambda each: (not each.lacking, -abs(each.first.value - each.second.value)))


def distinctive_rows(
    samples: tuple[TableSample, TableSample], items: Items, score: NDArray, side: int, n: int
) -> tuple[DistinctiveRow, ...]:
    """Return the rows of one side with the highest finite scores of their items, highest first; each item once.

    Args:
        samples: of both tables.
        items: of both.
        score: of each item, shape (N,); -inf leaves it out.
        side: 0 for the first table, 1 for the second.
        n: rows.
    """
    sample, offset = samples[side], side * len(samples[0])
    of_row = items.of_row[offset : offset + len(sample)]
    rows = np.flatnonzero(of_row >= 0)
    _, first = np.unique(of_row[rows], return_index=True)
    rows = rows[first]
    value = score[of_row[rows]]
    rows, value = rows[np.isfinite(value)], value[np.isfinite(value)]
    best = np.argsort(-value, kind="stable")[:n]
    index = sample.index[rows[best]]
    keys = named(sample.table, index) if KEY in sample.table.schema.names else [str(row) for row in index.tolist()]
    return tuple(
        DistinctiveRow(int(row), key, float(shown)) for row, key, shown in zip(index, keys, value[best], strict=True)
    )
