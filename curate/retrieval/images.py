"""Scoring of images that are not rows of a table, by the model that scored the table."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.engines.settings import ScoreSettings
from curate.manifest.contract import ReadError
from curate.tables.arrays import quality_values
from curate.tables.provenance import model_of, white_of
from curate.tables.table import Table
from scoring.cards import FIT, find_checkpoint, read_header, shipped_models
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.images import DecodedImage, decode
from scoring.images.budget import BODIES
from scoring.relative.columns import PER_IMAGE
from scoring.relative.junk.features import JunkInputs
from scoring.relative.model import DatasetFit
from scoring.relative.stored import read_fit
from scoring.runner import Runner, select_device, select_precision


def scorer_of(table: Table, *, model: str | Path | None = None, device: str = "auto") -> tuple[Runner, ScoreSettings]:
    """Return the model that scored a table, ready to run, and the settings of that scoring.

    Args:
        table: written by ``curate score``.
        model: a shipped model or a checkpoint; by default the shipped model recorded in the table.
        device: to run on.

    Raises:
        InputError: if no model is given and the table's is not shipped, or the given one did not score the table.
    """
    digest = model_of(table)
    model = model_named_by(table, digest) if model is None else model
    network, card = load_model(model)
    if digest and card.get("base", card["digest"]) != digest:  # a fitted model's embeddings are its base model's
        raise InputError(
            f"expected the model that scored {table.path} ({digest[:12]}), got {model} ({card['digest'][:12]}); "
            "edited copies must be scored as the table was: pass that model as --model"
        )
    chosen = select_device(device)
    settings = ScoreSettings(device=device, **_settings_of(table, table.noted("settings")))
    return Runner(network, chosen, select_precision(settings.precision, chosen, network.spec.cpu_precision)), settings


def model_named_by(table: Table, digest: str) -> str:
    """Return the shipped model with the digest recorded in a table; InputError if there is none."""
    digests = {read_header(path)["digest"]: name for name, path in shipped_models().items()}
    if digest not in digests:
        which = f"a model that does not ship ({digest[:12]})" if digest else "no model that it names"
        raise InputError(f"{table.path} was scored by {which}; pass its checkpoint as --model")
    return digests[digest]


def fit_of(model: str | Path | None) -> DatasetFit | None:
    """Return the dataset fit of a model made by ``curate fit``; None if it has none; InputError if unusable."""
    return None if model is None else read_fit(model, read_header(find_checkpoint(model)))


def is_fitted(model: str | Path | None) -> bool:
    """Return whether a model was fitted to a dataset; InputError if the checkpoint is missing."""
    return model is not None and FIT in read_header(find_checkpoint(model))


def _settings_of(table: Table, before: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded settings of a table's scoring; defaults for values of another type."""
    kinds: dict[str, tuple[str, tuple[type, ...]]] = {
        "precision": ("precision", (str,)),
        "dtype": ("embedding dtype", (str, type(None))),
        "max_pixels": ("max-pixels", (int,)),
        "allow_truncated": ("allow-truncated", (bool,)),
    }
    known = {
        name: before[noted] for name, (noted, of) in kinds.items() if noted in before and type(before[noted]) in of
    }
    return {"white": white_of(table), **known}


BATCH = 64
THREADS = 4  # that decode


@dataclass(frozen=True)
class ScoredImages:
    """M images scored by the model of a table.

    Attributes:
        vectors: shape (M, D), float32, unit length; zeros for failed images.
        columns: by name, shape (M,), float64, NaN for failed images.
        problems: why images failed; empty texts for the others.
    """

    vectors: NDArray[np.float32]
    columns: dict[str, NDArray[np.float64]]
    problems: list[str]


def score_images(
    readers: Sequence[Callable[[], bytes]], table: Table, *, model: str | Path | None = None
) -> ScoredImages:
    """Score images with the model that scored a table.

    Args:
        readers: at least one function that returns the bytes of an image, or raises ``ReadError``.
        table: scored by the model.
        model: the model, if it is not shipped; or one fitted to the table by ``curate fit``, which adds the columns of
            the fit.

    Raises:
        InputError: if the model is unknown, or did not score the table.
    """
    runner, settings = scorer_of(table, model=model)
    fit = fit_of(model)
    parts = []
    with ThreadPoolExecutor(THREADS) as pool:
        for start in range(0, len(readers), BATCH):
            some = readers[start : start + BATCH]
            parts.append(_scored(runner, fit, list(pool.map(lambda reader: _decoded(reader, runner, settings), some))))
    return ScoredImages(
        np.concatenate([part.vectors for part in parts]),
        {name: np.concatenate([part.columns[name] for part in parts]) for name in parts[0].columns},
        [problem for part in parts for problem in part.problems],
    )


@BODIES.image()
def _decoded(read: Callable[[], bytes], runner: Runner, settings: ScoreSettings) -> DecodedImage | str:
    """Return the decoded image, or why it cannot be decoded."""
    try:
        image = decode(
            read(), runner.model.spec.preprocessing, settings.decode_options(), with_quality=settings.quality
        )
    except ReadError as error:
        return f"cannot be read ({error.status}: {error})"
    return image if image.pixels is not None else f"is not a readable image ({image.status})"


def _scored(runner: Runner, fit: DatasetFit | None, images: Sequence[DecodedImage | str]) -> ScoredImages:
    decoded = [at for at, image in enumerate(images) if not isinstance(image, str)]
    problems = [image if isinstance(image, str) else "" for image in images]
    vectors = np.zeros((len(images), runner.model.embedding_width), np.float32)
    names = (*runner.columns, *(PER_IMAGE if fit is not None else ()))
    columns = {name: np.full(len(images), np.nan) for name in names}
    pixels = [image.pixels for image in images if not isinstance(image, str) and image.pixels is not None]
    if pixels:
        scores = runner.submit(np.stack(pixels)).result()
        vectors[decoded] = scores.embedding
        scored = dict(scores.columns)
        if fit is not None:
            quality = quality_values(image.quality for image in images if not isinstance(image, str))
            scored |= fit.score_images(JunkInputs({**scored, **quality}, scores.embedding.astype(np.float16))).columns
        for name, values in columns.items():
            values[decoded] = scored[name]
    return ScoredImages(vectors, columns, problems)
