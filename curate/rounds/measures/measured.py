"""Accuracy of a round's model on held-out rows, and agreement of rounds on a fixed sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.probes.accuracy import Accuracy
from curate.rounds.measures.lift import Anytime
from curate.tables.table import open_table

N_SAMPLE = 2_000  # size of the fixed sample
REACHED = 0.5  # Euclidean distance between unit rows within which a row counts as covered: the reach of `auto`


@dataclass(frozen=True)
class ModelAgreement:
    """The agreement of two models on the same rows.

    Attributes:
        n: number of rows.
        kappa: Cohen's kappa of the predicted classes.
        changed: share of the rows with another class, in [0, 1].
    """

    n: int
    kappa: float
    changed: float


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Return Cohen's kappa, the agreement beyond chance: 1 is perfect, 0 is chance level.

    It is 1 if both models predict one class for all rows.

    Source: Cohen 1960; for successive models, Bloodgood and Vijay-Shanker 2009, arXiv:1409.5165.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    names, codes = np.unique([*first, *second], return_inverse=True)
    a, b = codes[: len(first)], codes[len(first) :]
    observed = float((a == b).mean())
    expected = float(np.bincount(a, minlength=len(names)) @ np.bincount(b, minlength=len(names))) / len(a) ** 2
    return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def compared(sample: pa.Table, before: Path | None) -> ModelAgreement | None:
    """Return the agreement of two models on their common rows; None without an earlier model or common rows.

    Args:
        sample: `key` and `predicted` of the sample of this round.
        before: file of the previous round's sample; may be missing.
    """
    if before is None or not before.is_file():
        return None
    earlier = open_table(before, require=["key", "predicted"]).read()
    both = pl.DataFrame(sample).join(pl.DataFrame(earlier), on="key", suffix="_before")
    if both.is_empty():
        return None
    now, then = both["predicted"].to_list(), both["predicted_before"].to_list()
    return ModelAgreement(len(both), cohen_kappa(now, then), float(np.not_equal(now, then).mean()))


@dataclass(frozen=True)
class PoolCoverage:
    """Distances of sampled rows to the nearest labelled row, between unit vectors, in [0, 2].

    Attributes:
        mean: mean distance.
        most: largest distance.
        within: share of rows within ``REACHED``.
    """

    mean: float
    most: float
    within: float


def sample_of(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the rows of the fixed sample for comparing rounds, ascending."""
    generator = np.random.default_rng([seed, 1])
    return np.sort(generator.permutation(rows)[:N_SAMPLE])


def coverage(vectors: NDArray, sample: NDArray[np.int64], labelled: NDArray[np.int64]) -> PoolCoverage | None:
    """Return the distances of sampled rows to the nearest labelled one; None without labelled rows.

    Args:
        vectors: shape (N, D); normalised here.
        sample: rows, shape (S,).
        labelled: rows, shape (L,).
    """
    if not len(labelled) or not len(sample):
        return None
    from curate.selectors.geometry import spans, unit

    cosine = np.full(len(sample), -1.0, np.float32)
    rows = unit(vectors[sample], np.float32)
    for span in spans(len(labelled)):
        cosine = np.maximum(cosine, (rows @ unit(vectors[labelled[span]], np.float32).T).max(1))
    distance = np.sqrt(np.maximum(2 - 2 * cosine.astype(np.float64), 0))
    return PoolCoverage(float(distance.mean()), float(distance.max()), float((distance <= REACHED).mean()))


@dataclass(frozen=True)
class ModelQuality:
    """The accuracy of a model, as stored in `state.json`.

    Attributes:
        probe: its kind, "linear" or "knn".
        n_labels: number of labels it was fitted on.
        classes: number of labels of each class, including 0.
        temperature: divisor of its logits; None without one.
        holdout: accuracy on held-out rows.
        entropy: mean entropy on the sample relative to uniform, in [0, 1].
        coverage: of the sample by labelled rows; None without either.
        against_last: agreement with the previous round's model on the sample; None without one.
        anytime: anytime-valid interval of the accuracy.
    """

    probe: str
    n_labels: int
    classes: dict[str, int]
    temperature: float | None
    holdout: Accuracy
    entropy: float
    anytime: Anytime
    coverage: PoolCoverage | None = None
    against_last: ModelAgreement | None = None
