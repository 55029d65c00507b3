"""A fitted score inside a checkpoint: the base model's tensors and card unchanged, and a section ``fit``."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scoring.arrays import Array
from scoring.atomic import AtomicFile, commit_together
from scoring.cards import FIT, find_checkpoint
from scoring.checkpoint import checkpoint_of, read_checkpoint, write_checkpoint
from scoring.errors import InputError
from scoring.relative.fit import REFERENCES
from scoring.relative.junk.stored import from_json, to_json
from scoring.relative.learn import MOST_CLASSES
from scoring.relative.model import AMBIGUITY, POINTS, DatasetFit, RowStanding
from scoring.relative.propagated import OTHER, Propagated
from scoring.relative.signals import CLOSE, SIGNALS
from scoring.relative.unlike import FINE, MOST_GROUPS, SIZES

MOST_WEIGHT = 1e6  # of a signal; the rule's own are below 20
MEAN, ROWS, NEAR, STANDING = f"{FIT}.mean", f"{FIT}.references", f"{FIT}.near", f"{FIT}.standing"
CLUSTERS, GROUPS = f"{FIT}.clusters", f"{FIT}.groups"
CLASS_MEANS, PROBABILITIES = f"{FIT}.class_means", f"{FIT}.probabilities"
CENTRES, QUANTILES = f"{FIT}.centres.", f"{FIT}.quantiles."


def write_fitted(
    path: Path,
    base: str | Path,
    fit: DatasetFit,
    about: Mapping[str, Any],
    *,
    companions: Sequence[AtomicFile] = (),
    commit: Callable[[Sequence[AtomicFile]], None] = commit_together,
    overwrite: bool = False,
) -> str:
    """Write a model with its fit, atomically.

    Args:
        path: of the file.
        base: name for ``load_model`` of the model of the embeddings; an earlier fit is replaced.
        fit: the fit.
        about: facts on the fit, as plain JSON.
        companions: written files that are renamed together with the model.
        commit: renames all files, the model last.
        overwrite: replace an existing file.

    Returns:
        The digest of the file's contents; the card keeps the base model's digest.
    """
    card, tensors = checkpoint_of(base)
    record = {
        **about,
        "weights": dict(fit.weights),
        "junk": None if fit.junk is None else to_json(fit.junk),
        **({"classes": list(fit.propagated.classes)} if fit.propagated else {}),
    }
    card = {**card, "base": card.get("base", card["digest"]), FIT: record}
    kept = {name: value for name, value in tensors.items() if not name.startswith(f"{FIT}.")}
    tensors = {**kept, **tensors_of(fit)}
    return write_checkpoint(path, tensors, card, companions=companions, commit=commit, overwrite=overwrite)


def tensors_of(fit: DatasetFit) -> dict[str, Tensor]:
    """Return the tensors of a fit by their names in a file."""
    arrays: dict[str, Array] = {MEAN: fit.mean, ROWS: fit.references, NEAR: fit.near}
    arrays |= {CLUSTERS: fit.clusters, GROUPS: fit.groups}
    arrays[STANDING] = np.stack([fit.standing.share, fit.standing.level, fit.standing.fitted])
    if fit.propagated is not None:
        arrays |= {CLASS_MEANS: fit.propagated.class_means, PROBABILITIES: fit.propagated.probabilities}
    arrays |= {f"{CENTRES}{k}": centres for k, centres in fit.centres.items()}
    arrays |= {f"{QUANTILES}{name}": values for name, values in fit.quantiles.items()}
    return {name: torch.from_numpy(np.array(values)) for name, values in arrays.items()}


def read_fit(model: str | Path, card: Mapping[str, Any]) -> DatasetFit | None:
    """Return the dataset fit of a model, or None if it has none; InputError if it is malformed.

    Args:
        model: as for ``load_model``, which has checked the file's digest.
        card: of the model.
    """
    if FIT not in card:
        return None
    path = find_checkpoint(model)
    _, tensors = read_checkpoint(path)
    try:
        return fit_from(card[FIT], {name: value for name, value in tensors.items() if name.startswith(f"{FIT}.")})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path} holds a fit that cannot be used ({error}); fit it again with curate fit") from None


def fit_from(record: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> DatasetFit:
    """Return the fit from ``tensors_of`` and the card; KeyError, TypeError or ValueError if malformed."""
    arrays = {name: value.numpy() for name, value in tensors.items()}
    mean, rows, near = arrays[MEAN], arrays[ROWS], arrays[NEAR]
    centres = {k: arrays[f"{CENTRES}{k}"] for k in SIZES if f"{CENTRES}{k}" in arrays}
    propagated = _propagated(record, arrays, len(rows), len(mean))
    names = (*SIGNALS, *([OTHER] if propagated else []))
    weights = {str(name): float(value) for name, value in record["weights"].items()}
    quantiles = {name: arrays[f"{QUANTILES}{name}"] for name in (*names, AMBIGUITY)}
    if mean.ndim != 1 or rows.ndim != 2 or rows.shape[1] != len(mean) or not 1 <= len(rows) <= REFERENCES:
        raise ValueError(f"references of shape {rows.shape}, for a mean of shape {mean.shape}")
    if near.shape != (len(rows), CLOSE) or near.dtype != np.int32 or near.min() < -1 or near.max() >= len(rows):
        raise ValueError(f"neighbours of shape {near.shape}, for {len(rows)} references")
    standing = arrays[STANDING]
    if standing.shape != (3, len(rows)) or standing.dtype != np.float32:
        raise ValueError(f"standings of shape {standing.shape}, for {len(rows)} references")
    if any(values.shape != (k, len(mean)) for k, values in centres.items()):
        raise ValueError("clusters of another width")
    if any(values.shape != (POINTS,) for values in quantiles.values()):
        raise ValueError("quantiles of another number")
    if not weights or not weights.keys() <= set(names) or not all(0 < each < MOST_WEIGHT for each in weights.values()):
        raise ValueError(f"weights {weights}")
    if any(not np.isfinite(values).all() for values in arrays.values()):
        raise ValueError("a number that is not finite")
    clusters, groups = arrays[CLUSTERS], arrays[GROUPS]
    if clusters.ndim != 2 or not 1 <= len(clusters) <= FINE[1] or clusters.shape[1] != len(mean):
        raise ValueError(f"clusters of shape {clusters.shape}")
    if groups.ndim != 2 or groups.shape[1] != len(mean) + 1 or len(groups) > MOST_GROUPS:
        raise ValueError(f"groups of shape {groups.shape}")
    junk = None if record["junk"] is None else from_json(record["junk"])
    if junk is not None and len(junk.mean) != len(mean):
        raise ValueError(f"a junk classifier for embeddings of {len(junk.mean)} numbers")
    return DatasetFit(
        mean, rows, centres, quantiles, near, clusters, groups, junk, weights, propagated, RowStanding(*standing)
    )


def _propagated(record: Mapping[str, Any], arrays: Mapping[str, Array], n_rows: int, width: int) -> Propagated | None:
    if "classes" not in record:
        return None
    classes = tuple(str(name) for name in record["classes"])
    class_means, probabilities = arrays[CLASS_MEANS], arrays[PROBABILITIES]
    if not 2 <= len(classes) <= MOST_CLASSES:
        raise ValueError(f"{len(classes)} classes")
    if class_means.shape != (len(classes), width) or probabilities.shape != (n_rows, len(classes)):
        raise ValueError(f"probabilities of shape {probabilities.shape}, for {len(classes)} classes")
    return Propagated(classes, class_means, probabilities)


def digest_of_fit(fit: DatasetFit) -> str:
    """Return the SHA-256 of a fit's content."""
    total = hashlib.sha256()
    facts = {
        "weights": dict(fit.weights),
        "junk": None if fit.junk is None else to_json(fit.junk),
        "classes": list(fit.propagated.classes) if fit.propagated else [],
    }
    total.update(json.dumps(facts, sort_keys=True).encode())
    for name, value in sorted(tensors_of(fit).items()):
        total.update(f"\0{name}\0{value.dtype}\0{tuple(value.shape)}\0".encode())
        total.update(value.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()
