"""Inputs of the junk classifier: quality columns, columns of trained heads, and the embedding."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array, Floats

Change = Callable[[Floats], Floats]

HEADS = ("unc_", "kappa_")  # prefixes of the columns of trained heads
PROBABILITY = "unc_junk"
FARTHEST = 6.0  # features are clipped to this many standard deviations
LEAST = 1e-9


def _identity(values: Floats) -> Floats:
    return values


# A quality column and the logarithms in which damage shows: `to add a feature, add a line`.
QUALITY_FEATURES: Mapping[str, tuple[Change, ...]] = {
    "quality_brightness": (_identity,),
    "quality_shadow": (_identity, lambda x: np.log(1.01 - x)),
    "quality_highlight": (_identity, lambda x: np.log(x + 0.01)),
    "quality_contrast": (_identity, lambda x: np.log(np.maximum(x, 1e-3))),
    "quality_entropy": (_identity,),
    "quality_sharpness": (_identity, lambda x: np.log(np.maximum(x, 0.02))),
    "quality_noise": (_identity, lambda x: np.log(x + 0.1)),
    "quality_colourfulness": (_identity, lambda x: np.log(x + 1)),
}


@dataclass(frozen=True)
class JunkInputs:
    """The features of N images.

    Attributes:
        columns: quality columns and columns of trained heads by name, shape (N,), NaN if missing.
        embedding: shape (N, D), any length above 0.
    """

    columns: Mapping[str, NDArray[np.floating]]
    embedding: NDArray[np.floating]

    def __len__(self) -> int:
        return len(self.embedding)

    def features(self, names: Sequence[str]) -> Floats:
        """Return the features of the named columns, shape (N, F); see ``features_of``."""
        return features_of(self.columns, names) if names else np.zeros((len(self), 0))

    def take(self, rows: Array) -> "JunkInputs":
        """Return a subset of the images, by index or mask."""
        return JunkInputs({name: values[rows] for name, values in self.columns.items()}, self.embedding[rows])


def columns_read(names: Iterable[str]) -> tuple[str, ...]:
    """Return the columns of a table that the classifier reads, in the table's order.

    The uncertainty 1 / kappa is skipped if its kappa is present.

    >>> columns_read(["key", "quality_noise", "quality_jpeg", "kappa_visimsiam", "unc_visimsiam"])
    ('quality_noise', 'kappa_visimsiam')
    """
    present = list(names)
    doubles = {f"unc_{name.removeprefix('kappa_')}" for name in present if name.startswith("kappa_")}
    return tuple(
        name for name in present if name in QUALITY_FEATURES or (name.startswith(HEADS) and name not in doubles)
    )


def features_of(columns: Mapping[str, NDArray[np.floating]], names: Iterable[str]) -> Floats:
    """Return the features of the named columns, shape (N, F): quality columns and their logarithms, and trained heads.

    Columns of heads are transformed to logarithms, probabilities to log odds; values without a logarithm get the
    smallest one. Raises KeyError for a missing column.
    """
    features = []
    for name in names:
        values = np.asarray(columns[name], np.float64)
        changes = QUALITY_FEATURES.get(name) or ((_log_odds,) if name == PROBABILITY else (_log,))
        features += [change(values) for change in changes]
    n = len(next(iter(columns.values()), ()))
    return np.stack(features, 1) if features else np.zeros((n, 0))


def _log(values: Floats) -> Floats:
    return np.log(np.clip(values, LEAST, 1 / LEAST))


def _log_odds(values: Floats) -> Floats:
    p = np.clip(values, 1e-6, 1 - 1e-6)
    return np.log(p / (1 - p))


@dataclass(frozen=True)
class Scale:
    """Scaling of features to comparable numbers.

    Attributes:
        centre: median of each feature among the images of the dataset, shape (F,).
        spread: standard deviation over them and their corrupted copies, shape (F,).
        missing: features with missing values, which get an additional indicator, shape (F,).
    """

    centre: Floats
    spread: Floats
    missing: NDArray[np.bool_]

    @classmethod
    def of(cls, dataset: Floats, corrupted: Floats) -> "Scale":
        """Estimate the scaling from features of the dataset (N, F) and of corrupted copies (P, F)."""
        both = np.concatenate([dataset, corrupted])
        if not both.shape[1]:
            return cls(np.zeros(0), np.ones(0), np.zeros(0, bool))
        unknown = np.isnan(both)
        centre = np.nanmedian(np.where(np.isnan(dataset).all(0), 0.0, dataset), axis=0)
        spread = np.nanstd(np.where(unknown.all(0), 0.0, both), axis=0) + 1e-6
        return cls(centre, spread, unknown.any(0))

    def scaled(self, features: Floats) -> Floats:
        """Return the scaled features, their absolute values, and the indicators of missing ones, shape (N, 2 F + M)."""
        unknown = np.isnan(features)
        z = np.clip(np.where(unknown, 0.0, (features - self.centre) / self.spread), -FARTHEST, FARTHEST)
        return np.concatenate([z, np.abs(z), unknown[:, self.missing].astype(np.float64)], axis=1)
