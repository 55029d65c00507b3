"""How good a backbone is elsewhere, and with few labels: probes on other sets, and a share of the its own labels."""

import math
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from representation_data import Pictures
from representation_measures import knn_answers, linear_answers, read
from torch import Tensor

from curate.training.recipe import recipe
from scoring.model import ScoringModel
from trainers.build import build
from trainers.data import TrainingSet
from trainers.loop import train

TUNED_BATCH, TUNED_VIEWS = 64, 5000  # of fine-tuning: images a step at most, and how many it sees in all
RATE = 0.2 / 512  # of fine-tuning, an image of a step, as in the package's recipe for labels


def transfer(model: ScoringModel, others: Mapping[str, Pictures], device: torch.device) -> dict[str, float]:
    """Return ``NAME linear`` and ``NAME knn``: accuracies on held-out images of sets that a model was not trained on.

    Probe and vote learn from the labels of the other images of the set; the model stays as it is.

    Source: Nakamura et al. 2023, arXiv:2203.11437, appendix G, who report the linear probe.
    """
    accuracies = {}
    for name, pictures in others.items():
        learned, known = read(model, pictures.train, device)[0], labels_of(pictures.train)
        queries, answer = read(model, pictures.test, device)[0], labels_of(pictures.test)
        said = {
            "linear": linear_answers(learned, known, queries, len(pictures.train.classes)),
            "knn": knn_answers(learned, known, queries),
        }
        accuracies |= {f"{name} {what}": accuracy(answers, answer) for what, answers in said.items()}
    return accuracies


def few_labels(
    model: ScoringModel, pictures: Pictures, shares: Sequence[float], *, seed: int, device: torch.device
) -> dict[str, float]:
    """Return ``P% linear`` and ``P% tuned``: accuracies with the labels of a share of the images alone.

    Linear is a probe of the representation; tuned is the whole backbone with a linear classifier, trained on from here.

    Source: Nakamura et al. 2023, arXiv:2203.11437, appendix H, who tune for 200 epochs in batches of 128.
    """
    learned, known = read(model, pictures.train, device)[0], labels_of(pictures.train)
    queries, answer = read(model, pictures.test, device)[0], labels_of(pictures.test)
    accuracies = {}
    for share in shares:
        rows = labelled(known.numpy(), share, seed)
        probed = linear_answers(learned[rows], known[rows], queries, len(pictures.train.classes))
        some = replace(pictures.train, pixels=pictures.train.pixels[rows], labels=known[rows])
        tuned = tuned_answers(model, some, pictures.test.pixels, seed=seed, device=device)
        accuracies |= {
            f"{percentage(share)} linear": accuracy(probed, answer),
            f"{percentage(share)} tuned": accuracy(tuned, answer),
        }
    return accuracies


def percentage(share: float) -> str:
    """Return a share as the names of measures have it.

    >>> percentage(0.01), percentage(0.125)
    ('1%', '12.5%')
    """
    return f"{100 * share:.3g}%"


def labels_of(images: TrainingSet) -> Tensor:
    """Return the labels, shape (N,)."""
    if images.labels is None:
        raise ValueError("measuring a representation needs labels")
    return images.labels


def accuracy(answers: Tensor, right: Tensor) -> float:
    """Return the share of answers that are right."""
    return float((answers == right).float().mean())


def labelled(labels: NDArray[np.int64], share: float, seed: int) -> NDArray[np.int64]:
    """Return which rows have their label, in order: this share of every class, drawn by seed, and at least one.

    >>> labelled(np.array([0, 0, 0, 0, 1]), 0.5, 0).tolist()[-1], len(labelled(np.array([0, 0, 0, 0, 1]), 0.5, 0))
    (4, 3)
    """
    drawn = np.random.default_rng([seed, 11]).permutation(len(labels))
    each = [drawn[labels[drawn] == each_class] for each_class in np.unique(labels)]
    return np.sort(np.concatenate([rows[: max(1, round(share * len(rows)))] for rows in each]))


def tuned_answers(
    model: ScoringModel, some: TrainingSet, queries: Tensor, *, seed: int, device: torch.device
) -> Tensor:
    """Return the class of each image requested, shape (N,), by a copy of a backbone that was trained on with labels."""
    batch = min(TUNED_BATCH, some.n)
    shared: dict[str, Any] = {
        "backbone": model.spec.backbone,
        "size": model.spec.preprocessing.size,
        "epochs": math.ceil(TUNED_VIEWS / (some.n // batch * batch)),
        "batch_size": batch,
        "lr": RATE * batch,
        "seed": seed,
    }
    config = recipe("supervised", shared)
    start = build(config, len(some.classes), init=deepcopy(model).cpu())
    with TemporaryDirectory() as folder:
        tuned, _ = train(config, some, state=Path(folder) / "state", device=device, start=start)
    with torch.inference_mode():
        said = [tuned.logits(tuned.features(block)) for block in queries.split(500)]
    return torch.cat(said).argmax(1)
