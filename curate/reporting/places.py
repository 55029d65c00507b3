"""The map: rows in two dimensions, close together if their embeddings are."""

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.reporting.columns import Dataset
from curate.tables.table import embedding_matrix
from scoring.errors import InputError

FEWEST = 12  # rows; fewer have no neighbourhoods
PERPLEXITY = 30
MOST_EXACT = 20_000  # maximal rows for an exact neighbour search
NO_LIBRARY = "the map is left out: it needs openTSNE; install it with: pip install 'kappa-curate[map]'"


@dataclass(frozen=True)
class Places:
    """Rows in two dimensions.

    Attributes:
        row: indices in the table, shape (M,).
        xy: shape (M, 2) float32.
        uncertainty: rank by the default score, shape (M,), from 0 (most certain) to 1; 0.5 without a score.
        words: description of the method.
    """

    row: NDArray[np.int64]
    xy: NDArray[np.float32]
    uncertainty: NDArray[np.float32]
    words: str

    def to_json(self, place: Any) -> dict[str, Any]:
        """Return the facts for the page; ``place`` maps a row number to its identifier on the page."""
        return {
            "method": "t-SNE of embeddings",
            "words": self.words,
            "row": [place(row) for row in self.row.tolist()],
            "x": _packed(self.xy[:, 0]),
            "y": _packed(self.xy[:, 1]),
            "uncertainty": _packed(self.uncertainty),
            "size_note": "large and faint: less certain",
        }


def place_rows(
    dataset: Dataset, rows: NDArray[np.int64], uncertainty: NDArray[np.float64] | None, *, seed: int
) -> Places | str:
    """Return rows in two dimensions, or why there is no map.

    Args:
        dataset: the table.
        rows: indices; rows without an embedding are omitted.
        uncertainty: of these rows, higher is less certain, NaN if absent; None without a score.
        seed: the same seed gives the same map on the same machine.

    Source: van der Maaten and Hinton 2008, "Visualizing data using t-SNE", by openTSNE (Poličar et al. 2019).
    """
    from scoring.metrics.ranking import ranks

    if EMBEDDING not in dataset.table.schema.names:
        return "there is no map: the table has no embeddings"
    try:
        matrix = embedding_matrix(dataset.table.take(rows, [EMBEDDING]).column(0)).astype(np.float32)
    except InputError as error:
        return f"there is no map: {error}"
    if matrix.shape[1] < 2:
        return "there is no map: embeddings of one number have no second dimension"
    length = np.linalg.norm(matrix, axis=1)
    is_placed = np.isfinite(length) & (length > 0) & dataset.ok[rows]
    if is_placed.sum() < FEWEST:
        return f"there is no map: fewer than {FEWEST} rows have an embedding"
    try:
        from openTSNE import TSNE  # imports scipy and scikit-learn
    except ImportError:
        return NO_LIBRARY
    matrix = matrix[is_placed] / length[is_placed, None]
    n = len(matrix)
    # One thread: the order of summation would change the last bits, and thereby the map.
    perplexity = min(PERPLEXITY, (n - 1) / 3)
    neighbours = "exact" if n <= MOST_EXACT else "auto"
    tsne = TSNE(perplexity=perplexity, random_state=seed, n_jobs=1, initialization="pca", neighbors=neighbours)
    xy = np.asarray(tsne.fit(matrix), np.float32)
    rank = np.full(n, 0.5)
    if uncertainty is not None and (known := np.isfinite(uncertainty[is_placed])).sum() > 1:
        rank[known] = (ranks(uncertainty[is_placed][known]) - 1) / (known.sum() - 1)
    words = f"t-SNE of {n:,} embeddings, perplexity {perplexity:.3g}, seed {seed}"
    return Places(rows[is_placed], xy, rank.astype(np.float32), words)


def _packed(values: NDArray[np.float32]) -> str:
    return base64.b64encode(np.ascontiguousarray(values, "<f4").tobytes()).decode()
