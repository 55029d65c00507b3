"""One flat loop for every method."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scoring.backbones import create_backbone
from scoring.errors import InputError
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from trainers.augment import Draw, view
from trainers.config import TrainConfig
from trainers.data import TrainingSet, batches
from trainers.methods import METHODS
from trainers.methods.method import Method, Step
from trainers.state import load_state, save_state

COLLAPSED = 0.1  # of the spread of embeddings that fill the sphere evenly
HEAD_HIDDEN = 512


@dataclass(frozen=True)
class Progress:
    """Where a run is: after which step of how many, and what was measured since the last report."""

    step: int
    steps: int
    epoch: int
    measures: dict[str, float]
    images_per_second: float
    warning: str | None


def build(
    config: TrainConfig, n_classes: int, *, init: ScoringModel | None = None, pretrained: bool = False
) -> tuple[ScoringModel, Method]:
    """Return a fresh model and the modules of its method; the same seed gives the same weights.

    Args:
        config: the recipe.
        n_classes: for methods that read labels.
        init: a model whose backbone to start from.
        pretrained: start from the weights that timm publishes.
    """
    kind = METHODS[config.method]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        backbone = init.backbone if init else create_backbone(config.backbone, pretrained=pretrained)
        heads = {config.method: KappaHeadSpec(HEAD_HIDDEN, float(config.latent_dim - 1))} if kind.kappa else {}
        preprocessing = Preprocessing(size=config.size, resize=config.size)
        options = init.spec.backbone_options if init else {}
        name = init.spec.backbone if init else config.backbone
        model = ScoringModel(ModelSpec(name, options, heads, preprocessing), backbone=backbone)
        return model, kind(model.width, config, n_classes)


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return the rate of a step: a linear rise over the warm-up, then constant or half a cosine down to 0."""
    rising = config.warmup * steps
    if step < rising:
        return config.lr * (step + 1) / rising
    if config.schedule == "constant":
        return config.lr
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))


def train(
    config: TrainConfig,
    data: TrainingSet,
    *,
    state: Path,
    device: torch.device,
    init: ScoringModel | None = None,
    pretrained: bool = False,
    compiled: bool = False,
    save_every: float = 60.0,
    report: Callable[[Progress], None] = lambda progress: None,
) -> tuple[ScoringModel, dict[str, float]]:
    """Fit a model; pick up from ``state`` where an earlier run of the same recipe left off.

    Args:
        config: the recipe.
        data: images, moved to ``device`` whole.
        state: file for the training state; removed by the caller once the model is safe.
        device: where to train.
        init: a model whose backbone to start from.
        pretrained: start from the weights that timm publishes.
        compiled: compile the backbone; pays on a GPU.
        save_every: seconds between two states.
        report: told of the progress about once a second.

    Returns:
        The model, on the CPU and in evaluation mode, and the last epoch's mean measures.

    Raises:
        InputError: if ``state`` belongs to another recipe, or the loss is no longer finite.
    """
    model, method = build(config, len(data.classes), init=init, pretrained=pretrained)
    both = nn.ModuleDict({"model": model, "method": method}).to(device)
    both.to(memory_format=torch.channels_last)
    optimizer = _optimizer(config, model, method)
    pixels = data.pixels.to(device)
    labels = None if data.labels is None else data.labels.to(device)
    per_epoch = len(batches(len(pixels), config.batch_size, epoch=0, seed=config.seed))
    steps = config.epochs * per_epoch
    done = load_state(state, config, both, optimizer)
    _set_mode(config, model, method)
    backbone = torch.compile(model.backbone) if compiled else model.backbone

    measured: dict[str, float] = {}
    since: dict[str, Tensor] = {}
    n_since, saved, reported = 0, time.monotonic(), time.monotonic()
    for epoch in range(done // per_epoch, config.epochs):
        for at, rows in enumerate(batches(len(pixels), config.batch_size, epoch=epoch, seed=config.seed)):
            step = epoch * per_epoch + at
            if step < done:
                continue
            rate = learning_rate(config, step, steps)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            rows = rows.to(device)
            result = _forward(
                config, model, method, backbone, pixels[rows], None if labels is None else labels[rows], step
            )
            if not result.loss.isfinite():
                raise InputError(f"the loss is {result.loss.item()} at step {step}; expected a number: lower --lr")
            optimizer.zero_grad(set_to_none=True)
            result.loss.backward()
            optimizer.step()
            method.after_step()

            for name, value in {"loss": result.loss.detach(), **result.measures}.items():
                since[name] = since.get(name, torch.zeros((), device=device)) + value
            n_since += 1
            now = time.monotonic()
            last = step + 1 == steps
            if now - reported > 1 or last:
                measured = {name: float(value) / n_since for name, value in since.items()}
                speed = n_since * len(rows) / (now - reported)
                report(Progress(step + 1, steps, epoch + 1, measured, speed, warn(measured)))
                since, n_since, reported = {}, 0, now
            if now - saved > save_every or (last and save_every >= 0):
                save_state(state, config, both, optimizer, step + 1)
                saved = time.monotonic()
    return model.cpu().eval(), measured


def warn(measures: dict[str, float]) -> str | None:
    """Return what is going wrong, or None.

    ``spread`` is the standard deviation of the unit embeddings times sqrt(M): 1 where they fill the sphere, 0 where
    all images have become the same point (Chen & He 2021, sec. 4.1).
    """
    if measures.get("spread", 1.0) < COLLAPSED:
        return f"the embeddings collapse: their spread is {measures['spread']:.3f} of 1; lower --lr, or use more views"
    return None


def _forward(
    config: TrainConfig,
    model: ScoringModel,
    method: Method,
    backbone: Callable[[Tensor], Tensor],
    images: Tensor,
    labels: Tensor | None,
    step: int,
) -> Step:
    draw = Draw(len(images), images.device, config.seed * 1_000_003 + step)
    recipe = config.augmentation
    standard = [view(images, config.size, recipe.scale, recipe, draw) for _ in range(method.n_standard)]
    n_small = config.n_small if method.multi_crop else 0
    small = [view(images, config.small_size, recipe.small_scale, recipe, draw) for _ in range(n_small)]
    features = []
    autocast = torch.autocast(images.device.type, torch.bfloat16, enabled=config.precision == "bf16")
    with autocast:
        for group in (standard, small):  # one pass for each resolution
            if group:
                stacked = model.normalize(torch.cat(group)).contiguous(memory_format=torch.channels_last)
                features.append(backbone(stacked).float())
    together = torch.cat(features)  # (V * N, D)
    head = model.heads[config.method] if type(method).kappa else None
    kappas = None if head is None else head(together).view(-1, len(images))
    return method(together.view(-1, len(images), together.shape[1]), kappas, labels)


def _set_mode(config: TrainConfig, model: ScoringModel, method: Method) -> None:
    model.train()
    method.train()
    if config.freeze == "nothing":
        return
    for module in model.backbone.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.eval()
    if config.freeze == "trunk":
        model.backbone.eval().requires_grad_(False)


def _optimizer(config: TrainConfig, model: ScoringModel, method: Method) -> torch.optim.SGD:
    if config.freeze == "trunk":
        model.backbone.requires_grad_(False)
    trunk = [p for p in model.backbone.parameters() if p.requires_grad]
    rest = [*model.heads.parameters(), *method.parameters()]
    groups: list[dict[str, Any]] = []
    for parameters, share in ((trunk, config.trunk_lr), (rest, 1.0)):
        # biases and normalisation scales are not decayed: they set no direction
        for decay, chosen in (
            (True, [p for p in parameters if p.ndim > 1]),
            (False, [p for p in parameters if p.ndim < 2]),
        ):
            if chosen:
                weight_decay = config.weight_decay if decay else 0.0
                groups.append({"params": chosen, "weight_decay": weight_decay, "share": share})
    return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum)
