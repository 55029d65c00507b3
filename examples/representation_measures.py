"""How good a representation is on images that were held out: probes, neighbours, and its uncertainty columns."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from curate.columns import is_less_certain
from curate.probes.linear import fit_linear_probe
from curate.probes.mixture import fit_mixture
from curate.probes.perceptron import Steps, perceptron_answers
from scoring.metrics.neighbours import knn_predict
from scoring.metrics.ranking import auroc, r_auroc
from scoring.model import ScoringModel
from trainers.augment import Draw, view
from trainers.data import TrainingSet
from trainers.methods.settings import Augmentation
from trainers.methods.siamese import SimSiam

NEIGHBOURS, TEMPERATURE = 200, 0.1  # of the weighted vote, as UMM and MoCo report it on CIFAR-10
TOLERANCE = 1e-4  # of the linear probe: a tenth of it takes twice as long and moves no more than an image or two
STEPS = Steps(60, 256, 1e-3)  # of the MLP probe
STARTS = 5  # of the mixture of Gaussians: fits to choose from
BLOCK = 500  # images that the network reads at a time
PAIRS = 5  # of views of an image: 100,000 cosines of 10,000 images
NEAR, BINS = 5, 40  # nearest images of a class, and bins of the histograms of their cosines, from -1 to 1
COSINES = {"cosine": 0.5, "cosine low": 0.25, "cosine high": 0.75}  # quantiles over pairs of views


@torch.inference_mode()
def read(model: ScoringModel, images: TrainingSet, device: torch.device) -> tuple[Tensor, dict[str, Tensor], Tensor]:
    """Return representations, shape (N, E), the columns of the model, each of shape (N,), and features, shape (N, D).

    A representation is what the embedding is the direction of: the mu of a head, or the features. All are float32 and
    on the CPU.
    """
    model = model.to(device).eval()
    representations, columns, features = [], [], []
    for block in images.pixels.split(BLOCK):
        batch = model.features(block.to(device))
        head: Any = model.heads[model.spec.embedding] if model.spec.embedding else None
        representations.append((batch if head is None else head.project(batch)).float().cpu())
        features.append(batch.float().cpu())
        said = model.read(batch, block.to(device)).columns
        columns.append({name: values.cpu() for name, values in said.items()})
    together = {name: torch.cat([part[name] for part in columns]) for name in columns[0]}
    return torch.cat(representations), together, torch.cat(features)


def measure(
    model: ScoringModel,
    train: TrainingSet,
    test: TrainingSet,
    *,
    device: torch.device,
    seed: int = 0,
    styles: tuple[Tensor, Tensor] | None = None,
) -> dict[str, Any]:
    """Return how good a model is, measured on ``test`` alone; probes and votes learn from ``train``.

    Returns:
        ``measures``: name -> number: accuracies ``linear``, ``mlp``, ``knn`` and ``gmm``; ``inner``, of
        a linear probe of the features, and ``inner knn``, of their vote, where the representation is the mu of a head;
        ``style``, of a linear probe for the styles, where both have styles. For every main column that the
        model gives its R-AUROC and its AUROC of the linear probe, and of the vote, being right; 0.5 is chance level,
        and higher is better whatever the direction of the column. ``same cosine`` and ``other cosine``: means of
        ``pair_cosines``, and ``pairs``, the AUROC between. ``columns``: name -> value of each test image. ``pairs``:
        counts of the cosines in ``BINS`` bins.
    """
    learned, _, learned_inside = read(model, train, device)
    features, columns, inside = read(model, test, device)
    if train.labels is None or test.labels is None:
        raise ValueError("measuring a representation needs labels")
    n_classes = len(train.classes)
    known, answer = train.labels, test.labels
    said = {
        "linear": linear_answers(learned, known, features, n_classes),
        "mlp": perceptron_answers(learned, known, features, n_classes, seed=seed, steps=STEPS),
        "knn": knn_answers(learned, known, features),
        "gmm": gmm_answers(learned, known, features, n_classes, seed=seed),
    }
    if model.spec.embedding:
        said["inner"] = linear_answers(learned_inside, known, inside, n_classes)
        said["inner knn"] = knn_answers(learned_inside, known, inside)
    right = {name: (answers == answer).numpy() for name, answers in said.items()}
    measures = {name: float(values.mean()) for name, values in right.items()}
    if styles is not None:
        style = linear_answers(learned, styles[0], features, int(styles[0].max()) + 1)
        measures["style"] = float((style == styles[1]).float().mean())
    for name in main_columns(list(columns)):
        measures |= certainty_measures(name, columns[name].double().numpy(), features, answer, right)
    pairs = pair_cosines(features, answer)
    if len(pairs["same"]):
        measures |= {f"{name} cosine": float(values.mean()) for name, values in pairs.items()}
        measures["pairs"] = auroc(np.concatenate(list(pairs.values())), np.repeat([True, False], len(pairs["same"])))
    counted = {name: np.histogram(values, BINS, (-1, 1))[0].tolist() for name, values in pairs.items()}
    return {
        "measures": measures,
        "columns": {name: values.tolist() for name, values in columns.items()},
        "pairs": counted,
    }


def pair_cosines(features: Tensor, labels: Tensor) -> dict[str, NDArray[np.float64]]:
    """Return cosines of each image with its ``NEAR`` nearest others of its class, ``same``, and of other classes.

    Both have shape (N * NEAR,), of the same images; one with fewer than ``NEAR`` of either kind is left out.

    Args:
        features: shape (N, D), of at least ``NEAR`` images.
        labels: shape (N,).
    """
    unit, columns = F.normalize(features, dim=1), torch.arange(len(features))
    kept: dict[str, list[Tensor]] = {"same": [], "other": []}
    for rows in columns.split(BLOCK):
        cosine, is_same = unit[rows] @ unit.T, labels[rows, None] == labels
        left_out = {"same": ~is_same | (rows[:, None] == columns), "other": is_same}
        best = {kind: cosine.masked_fill(left_out[kind], -torch.inf).topk(NEAR).values for kind in kept}
        is_full = best["same"].isfinite().all(1) & best["other"].isfinite().all(1)
        for kind, values in best.items():
            kept[kind].append(values[is_full].flatten().clamp(-1, 1))
    return {kind: torch.cat(values).double().numpy() for kind, values in kept.items()}


@torch.inference_mode()
def view_cosines(
    model: ScoringModel, method: SimSiam, images: TrainingSet, recipe: Augmentation, *, device: torch.device, seed: int
) -> dict[str, float]:
    """Return median and quartiles of the cosine of a prediction and its target, over pairs of random views.

    Source: Nakamura et al. 2023, appendix K, figure 11.
    """
    model, cosines = model.to(device).eval(), []
    method = method.to(device).eval()
    size = model.spec.preprocessing.size
    for number, block in enumerate(images.pixels.repeat(PAIRS, 1, 1, 1).split(BLOCK)):
        views = [
            view(block.to(device), size, recipe.scale, recipe, Draw(len(block), device, seed + 2 * number + side))
            for side in (0, 1)
        ]
        z, mu = method.predict(torch.stack([model.features(each) for each in views]))
        cosines.append((z * mu.flip(0)).sum(-1).flatten().cpu())
    cosine = torch.cat(cosines).double().numpy()
    return {name: float(np.quantile(cosine, share)) for name, share in COSINES.items()}


def certainty_measures(
    name: str, values: NDArray[np.float64], features: Tensor, labels: Tensor, right: Mapping[str, NDArray[np.bool_]]
) -> dict[str, float]:
    """Return how well a column reports which images are right: of their nearest neighbour, the linear probe, the vote.

    An infinite value is the highest there is; one that is not a number is refused, for it has no rank.
    """
    if np.isnan(values).any():
        raise SystemExit(f"{name} is not a number on {int(np.isnan(values).sum())} of {len(values)} test images")
    sure = certainty(name, values)
    return {
        f"{name} R-AUROC": r_auroc(sure, F.normalize(features, dim=1), labels),
        f"{name} AUROC linear": auroc(sure, right["linear"]),
        f"{name} AUROC knn": auroc(sure, right["knn"]),
    }


def certainty(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return a column such that higher is more certain.

    >>> certainty("unc_dino", [1.0, 2.0]).tolist()
    [-1.0, -2.0]
    """
    certainties = np.asarray(values, np.float64)
    return -certainties if is_less_certain(name) else certainties


def main_columns(names: list[str]) -> list[str]:
    """Return columns without those that say the same: of a method with a kappa, the kappa.

    >>> main_columns(["kappa_elk", "unc_elk", "unc_losspred"])
    ['kappa_elk', 'unc_losspred']
    """
    return [name for name in names if not (name.startswith("unc_") and f"kappa_{name[4:]}" in names)]


def linear_answers(learned: Tensor, labels: Tensor, features: Tensor, n_classes: int) -> Tensor:
    """Return the class that a linear probe of the features says, shape (N,)."""
    probe = fit_linear_probe(learned.numpy(), labels.numpy(), n_classes, calibrate=False, tolerance=TOLERANCE)
    return torch.from_numpy(probe.predict(features.numpy()).argmax(1))


def knn_answers(learned: Tensor, labels: Tensor, features: Tensor) -> Tensor:
    """Return the class that the nearest images to learn from vote for, shape (N,); weights exp(cosine / 0.1)."""
    near, all_ = F.normalize(features, dim=1), F.normalize(learned, dim=1)
    return knn_predict(near, all_, labels, k=min(NEIGHBOURS, len(all_)), temperature=TEMPERATURE)


def gmm_answers(learned: Tensor, labels: Tensor, features: Tensor, n_classes: int, *, seed: int) -> Tensor:
    """Return the class of the Gaussian that each row falls to, shape (N,), of a mixture that saw no label.

    Each Gaussian gets one class, so that as many as possible of the rows that it was fitted on are named right.
    """
    mixture = fit_mixture(learned, n_classes, starts=STARTS, seed=seed)
    together = np.zeros((n_classes, n_classes), np.int64)
    np.add.at(together, (mixture.clusters(learned).numpy(), labels.numpy()), 1)
    return torch.from_numpy(linear_sum_assignment(together, maximize=True)[1])[mixture.clusters(features)]
