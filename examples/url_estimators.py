"""The estimators of the URL benchmark: how each is trained on cached features, and what it then says of features."""

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from curate.training.recipe import recipe
from scoring.lookup import lookup
from scoring.model import ScoringModel
from scoring.settings import parse_settings
from trainers.build import build
from trainers.cache import CachedFeatures
from trainers.config import TrainConfig
from trainers.loop import train

BLOCK = 2000  # rows that heads read at a time
BATCH = 256
FEW_BATCH, FEW_STEPS = 32, 100  # of learning from a few images: a step, and how many
SHARED = ("lr", "weight_decay", "optimizer", "schedule")  # of a candidate that are options of every method


@dataclass(frozen=True)
class Fitted:
    """What a run of training left: the model with its head, and the modules that only training needs."""

    model: ScoringModel
    method: Any


Reader = Callable[[Fitted, Tensor], Tensor]


def column(name: str) -> Reader:
    """Return what reads a column of the model's own heads."""
    return lambda fitted, features: fitted.model.read(features).columns[name]


def inverse_norm(fitted: Fitted, features: Tensor) -> Tensor:
    """Return one over the length of the projection before it is brought to the sphere."""
    return 1 / fitted.method.projector(features).double().norm(dim=1)


@dataclass(frozen=True)
class Published:
    """What the paper's authors found, means of three seeds over CUB, CARS and SOP, by ResNet-50 and ViT-Medium.

    Attributes:
        r_auroc: of both.
        recall: at 1, of both.
        crop: share of images of which a crop is less certain, of both.
    """

    r_auroc: tuple[float, float]
    recall: tuple[float, float]
    crop: tuple[float, float]


@dataclass(frozen=True)
class Estimator:
    """A line of the table.

    Attributes:
        method: of `curate train`.
        read: what says how uncertain rows are, shape (N,), from features (N, D); higher is less certain.
        settings: that all its runs share: the method's own, or of ``SHARED``.
        candidates: of which one is chosen on the upstream classes that are held out for it, by R-AUROC; one with the
            key ``column`` reads that column of the model instead of ``read``.
        published: the numbers of the paper, if it has the estimator.
    """

    method: str
    read: Reader
    settings: Mapping[str, Any] = field(default_factory=dict)
    candidates: tuple[Mapping[str, Any], ...] = ({},)
    published: Published | None = None


TEMPERATURES = ({"kappa_pos": 16}, {"kappa_pos": 52})  # paper: 8 to 64, of which 52 was best for MCInfoNCE
CLASSES = {
    "latent_dim": 32,
    "kappa_init": 50,
    "temperature": 1,
}  # of the same; 50 is a mean cosine of .73 in 32 dimensions
KAPPAS = ({"kappa": "norm"}, {"kappa": "head"})  # of methods with class distributions; the paper's is a head
ESTIMATORS: dict[str, Estimator] = {  # to add one, add a line
    "CE": Estimator(
        *("supervised", column("unc_supervised_entropy")),
        candidates=({"lr": 0.2}, {"lr": 0.02}),
        published=Published((0.5044, 0.5285), (0.4073, 0.4047), (0.678, 0.701)),
    ),
    "InfoNCE": Estimator(
        *("infonce", inverse_norm),
        candidates=TEMPERATURES,
        published=Published((0.5203, 0.5115), (0.3740, 0.3999), (0.569, 0.388)),
    ),
    "MCInfoNCE": Estimator(
        *("mcinfonce", column("unc_mcinfonce")),
        {"cross": False},
        TEMPERATURES,
        Published((0.5694, 0.4953), (0.4317, 0.4917), (0.660, 0.603)),
    ),
    "ELK": Estimator(
        *("nivmf", column("unc_nivmf")),
        {"distance": "el-vmf", **CLASSES},
        KAPPAS,
        Published((0.5598, 0.5662), (0.3906, 0.3579), (0.858, 0.753)),
    ),
    "ELK, pairs": Estimator("elk", column("unc_elk"), {"positives": "labels"}, ({"kappa_pos": 1}, {"kappa_pos": 16})),
    "nivMF": Estimator(
        *("nivmf", column("unc_nivmf")),
        {"samples": 5, **CLASSES},
        KAPPAS,
        Published((0.5671, 0.5448), (0.4305, 0.5682), (0.696, 0.652)),
    ),
    "HIB": Estimator(
        *("hib", column("unc_hib")),
        {"positives": "labels"},
        ({"hib_a": 2, "hib_b": 1}, {"hib_a": 27, "hib_b": 2}),
        Published((0.5385, 0.5407), (0.3048, 0.2866), (0.613, 0.476)),
    ),
    "HET-XL": Estimator(
        *("hetxl", column("unc_hetxl_entropy")),
        {"samples": 10},
        ({}, {"column": "unc_hetxl_logdet"}),
        Published((0.5115, 0.5292), (0.2915, 0.5151), (0.670, 0.671)),
    ),
    "SNGP": Estimator(
        *("sngp", column("unc_sngp_entropy")),
        {},
        ({"length": 1.0}, {"length": 2.0}),
        Published((0.5099, 0.5644), (0.2880, 0.4113), (0.694, 0.647)),
    ),
    "shallow ensemble": Estimator(
        *("ensemble", column("unc_ensemble_entropy")),
        {},
        ({}, {"column": "unc_ensemble_jsd"}),
        Published((0.5235, 0.5218), (0.3691, 0.4090), (0.753, 0.755)),
    ),
    "MC dropout": Estimator(
        *("mcdropout", column("unc_mcdropout_entropy")),
        {"dropout": 0.1},
        ({}, {"column": "unc_mcdropout_jsd"}),
        Published((0.5171, 0.5218), (0.3145, 0.4792), (0.511, 0.687)),
    ),
    "loss prediction, squares": Estimator(
        *("losspred", column("unc_losspred")),
        {"form": "l2"},
        ({"folds": 1}, {"folds": 5}),
        Published((0.5496, 0.5677), (0.3953, 0.5251), (0.875, 0.879)),
    ),
    "loss prediction, ranks": Estimator("losspred", column("unc_losspred"), {}, ({"within": 0}, {"within": 0.4})),
}


def add_variant(text: str) -> str:
    """Add ``NAME: SETTING=VALUE ...`` to the estimators: one with other settings of its method, and no candidates.

    The text is returned; the name of an estimator changes nothing.

    Raises:
        InputError: for an estimator that does not exist, or what is no setting.
    """
    name, _, changes = text.partition(": ")
    known = lookup(ESTIMATORS, name, kind="estimator")
    if changes and text not in ESTIMATORS:
        changed = parse_settings(changes.split(), flag=f"a variant of {name}", example="depth=1")
        variant = replace(known, settings={**known.settings, **changed}, candidates=({},), published=None)
        config_of(variant, {})  # refuses what is no setting
        ESTIMATORS[text] = variant
    return text


def config_of(estimator: Estimator, chosen: Mapping[str, Any], **shared: Any) -> TrainConfig:
    """Return the recipe of one of an estimator's candidates; ``shared`` are options of every method."""
    both = {name: value for name, value in {**estimator.settings, **chosen}.items() if name != "column"}
    of_candidate = {name: both.pop(name) for name in SHARED if name in both}
    return recipe(estimator.method, {**of_candidate, **shared}, both)


def fit(
    estimator: Estimator,
    chosen: Mapping[str, Any],
    backbone: ScoringModel,
    data: CachedFeatures,
    *,
    seed: int,
    epochs: int,
    state: Path,
    before: Fitted | None = None,
) -> Fitted:
    """Train an estimator on cached features, by the loop that `curate train --cached` runs.

    Args:
        estimator: what to train.
        chosen: one of its candidates.
        backbone: without heads; its backbone is not copied.
        data: features.
        seed: of weights, batches and draws.
        epochs: over the data.
        state: where a run that is cut off goes on from.
        before: an earlier fit to go on from; weights whose names and shapes are the same are taken over.
    """
    batch = min(BATCH if before is None else FEW_BATCH, data.n)
    of_backbone = {"backbone": backbone.spec.backbone, "size": backbone.spec.preprocessing.size, "freeze": "trunk"}
    config = config_of(estimator, chosen, epochs=epochs, batch_size=batch, seed=seed, **of_backbone)
    model, method = build(config, len(data.classes), init=backbone, n=data.n)
    if before is not None:
        take_over(before.model.heads, model.heads)
        take_over(before.method, method)
    trained, _ = train(config, data, state=state, device=torch.device("cpu"), start=(model, method))
    state.unlink(missing_ok=True)
    return Fitted(trained, method.cpu().eval())


def fit_few(
    estimator: Estimator, chosen: Mapping[str, Any], before: Fitted, data: CachedFeatures, **how: Any
) -> Fitted:
    """Go on with a few images of other classes, for ``FEW_STEPS`` steps; ``before`` stays as it is."""
    epochs = math.ceil(FEW_STEPS / max(1, data.n // min(FEW_BATCH, data.n)))
    return fit(estimator, chosen, data=data, epochs=epochs, before=before, **how)


def take_over(old: nn.Module, new: nn.Module) -> None:
    """Copy weights whose names and shapes are the same."""
    weights, ours = deepcopy(old.state_dict()), new.state_dict()
    new.load_state_dict(
        {
            name: weights.get(name, value)
            for name, value in ours.items()
            if name not in weights or weights[name].shape == value.shape
        },
        strict=False,
    )


@torch.inference_mode()
def uncertainty(estimator: Estimator, chosen: Mapping[str, Any], fitted: Fitted, features: Tensor) -> Tensor:
    """Return how uncertain an estimator is, shape (N,), float64, of features, shape (N, D), float32."""
    read = column(chosen["column"]) if "column" in chosen else estimator.read
    return torch.cat([read(fitted, rows).double() for rows in features.split(BLOCK)])
