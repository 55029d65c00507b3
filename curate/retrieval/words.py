"""Parts of what a retrieval says."""

from collections.abc import Mapping

import numpy as np

from curate.counted import counted, single_line
from scoring.search.links import Recall

LETTERS = 80


def recall_words(recall: Recall) -> str:
    """Return how complete a search is."""
    if recall.exact:
        return "recall 1: every query was compared with every row that is searched"
    return (
        f"recall {recall.estimate:.4f} [{recall.low:.4f}, {recall.high:.4f}], measured on "
        f"{counted(recall.n_pairs, 'neighbour')} of sampled rows"
    )


def value(certainty: float) -> str:
    """Return a value of the column, or a dash if absent."""
    return f"{certainty:.4g}" if not np.isnan(certainty) else "-"


def short(text: str) -> str:
    """Return a name on one line, its middle left out where it is long."""
    half = LETTERS // 2
    return single_line(text if len(text) <= LETTERS else f"{text[:half]}...{text[-half:]}")


def counts_line(counts: Mapping[str, int]) -> str:
    """Return counts by name on one line."""
    return ", ".join(f"{n:,} {name}" for name, n in counts.items())
