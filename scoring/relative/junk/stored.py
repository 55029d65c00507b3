"""A junk classifier as plain JSON: in the metadata of its table, and in a fitted model."""

import base64
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array
from scoring.relative.junk.classifier import JunkClassifier
from scoring.relative.junk.copies import VERSION
from scoring.relative.junk.features import Scale, columns_read, features_of

MOST_NAMES, MOST_WIDTH, MOST_FOLDS = 200, 16_384, 16
OF_SCALE = ("centre", "spread")
ARRAYS = ("mean", "on_features", "on_embedding", "intercept", *OF_SCALE)


def to_json(classifier: JunkClassifier) -> dict[str, Any]:
    """Return a classifier as plain JSON; the numbers of arrays are float32, in base64."""
    scale = classifier.scale
    arrays: dict[str, Array] = {name: getattr(classifier, name) for name in ARRAYS if name not in OF_SCALE}
    arrays |= {name: getattr(scale, name) for name in OF_SCALE}
    return {
        "version": VERSION,
        "columns": list(classifier.names),
        "threshold": classifier.threshold,
        "missing": [bool(each) for each in scale.missing],
        **{name: _encoded(values) for name, values in arrays.items()},
    }


def from_json(value: Mapping[str, Any]) -> JunkClassifier:
    """Return the classifier that ``to_json`` wrote; KeyError, TypeError or ValueError for an invalid record."""
    if value["version"] != VERSION:
        raise ValueError(f"a junk classifier of version {value['version']!r}, this curate writes {VERSION}")
    names = tuple(str(name) for name in value["columns"])
    if len(names) > MOST_NAMES or columns_read(names) != names:
        raise ValueError(f"columns {names[:3]}")
    arrays = {name: _decoded(value[name]) for name in ARRAYS}
    missing = np.array(value["missing"], bool)
    threshold = float(value["threshold"])
    folds, width, n_features = len(arrays["intercept"]), len(arrays["mean"]), _n_features(names)
    shapes = {
        "centre": (n_features,),
        "spread": (n_features,),
        "on_features": (folds, 2 * n_features + int(missing.sum())),
        "on_embedding": (folds, width),
    }
    if not 1 <= folds <= MOST_FOLDS or not 1 <= width <= MOST_WIDTH or missing.shape != (n_features,):
        raise ValueError(f"{folds} folds, embeddings of {width} numbers")
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise ValueError(f"{name} of shape {arrays[name].shape}, expected {shape}")
    if not np.isfinite(threshold) or any(not np.isfinite(each).all() for each in arrays.values()):
        raise ValueError("a number that is not finite")
    if not (arrays["spread"] > 0).all():
        raise ValueError("a spread that is not above 0")
    scale = Scale(arrays["centre"], arrays["spread"], missing)
    return JunkClassifier(
        names, scale, arrays["mean"], arrays["on_features"], arrays["on_embedding"], arrays["intercept"], threshold
    )


def rounded(classifier: JunkClassifier) -> JunkClassifier:
    """Return a classifier rounded as when read back, so that scores are equal before and after."""
    return from_json(to_json(classifier))


def _n_features(names: tuple[str, ...]) -> int:
    return features_of({name: np.ones(1) for name in names}, names).shape[1] if names else 0


def _encoded(values: Array) -> dict[str, Any]:
    return {"shape": list(values.shape), "float32": base64.b64encode(values.astype("<f4").tobytes()).decode()}


def _decoded(value: Mapping[str, Any]) -> NDArray[np.float64]:
    shape = tuple(int(n) for n in value["shape"])
    if not 1 <= len(shape) <= 2 or any(not 0 <= n <= MOST_WIDTH for n in shape):
        raise ValueError(f"an array of shape {shape}")
    raw = base64.b64decode(value["float32"], validate=True)
    if len(raw) != 4 * int(np.prod(shape)):
        raise ValueError(f"{len(raw):,} bytes for an array of shape {shape}")
    return np.frombuffer(raw, "<f4").reshape(shape).astype(np.float64)
