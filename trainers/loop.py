"""One flat loop for every method."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from scoring.backbones import create_backbone, size_options
from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import is_out_of_memory
from trainers.augment import Draw, view
from trainers.config import TrainConfig
from trainers.data import TrainingSet, batches
from trainers.methods import METHODS
from trainers.methods.method import Method, Step
from trainers.state import Done, load_state, save_state

COLLAPSED = 0.1  # of the spread of embeddings that fill the sphere evenly


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
        init: a model whose backbone to start from; it must be the recipe's.
        pretrained: start from the weights that timm publishes.

    Raises:
        InputError: if the backbone cannot read views of the recipe's sizes.
    """
    kind = METHODS[config.method]
    if init is not None and init.spec.backbone != config.backbone:
        raise InputError(f"the checkpoint to start from holds {init.spec.backbone!r}, the recipe {config.backbone!r}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        options = init.spec.backbone_options if init else size_options(config.backbone, config.size)
        backbone = init.backbone if init else create_backbone(config.backbone, pretrained=pretrained, options=options)
        head = kind.head(config)
        heads = {} if head is None else {config.method: head}
        preprocessing = Preprocessing(size=config.size, resize=config.size)
        model = ScoringModel(ModelSpec(config.backbone, options, heads, preprocessing), backbone=backbone)
        method = kind(model.width, config, n_classes)
    sizes = [config.size, config.small_size] if kind.multi_crop and config.n_small else [config.size]
    for size in sizes:
        _try_size(model, size)
    return model, method


@torch.inference_mode()
def _try_size(model: ScoringModel, size: int) -> None:
    """Read one empty view, so that a backbone that cannot says so before any image is decoded."""
    name = model.spec.backbone
    try:
        features = model.eval().features(torch.zeros(1, 3, size, size))
    except (AssertionError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(
            f"{name} cannot read views of {size} pixels ({reason}); choose --size and --small-size that it takes, "
            "or --n-small 0"
        ) from None
    if features.shape != (1, model.width):
        raise InputError(
            f"{name} gives features of shape {tuple(features.shape)}, expected (1, {model.width}): use another"
        )


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
    start: tuple[ScoringModel, Method] | None = None,
    origin: dict[str, Any] | None = None,
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
        start: from ``build``; by default built from the recipe alone.
        origin: what else the run is made of, such as digests of data and start; a state with another is refused.
        compiled: compile the backbone; pays on a GPU.
        save_every: seconds between two states.
        report: told of the progress about once a second.

    Returns:
        The model, on the CPU and in evaluation mode, and the mean measures of the last epoch.

    Raises:
        InputError: if ``state`` belongs to another run, the loss is no longer finite, or memory runs out.
    """
    model, method = start or build(config, len(data.classes))
    both = nn.ModuleDict({"model": model, "method": method}).to(device)
    both.to(memory_format=torch.channels_last)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = config.precision != "fp32"
    optimizer = _optimizer(config, model, method)
    identity = {**config.to_json(), "images": len(data.pixels), "classes": data.classes, **(origin or {})}
    done = load_state(state, identity, both, optimizer)
    _set_mode(config, model, method)
    backbone = torch.compile(model.backbone) if compiled else model.backbone
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            measures = _all_steps(config, data, both, backbone, optimizer, done, identity, state, save_every, report)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"memory ran out on {device} with {config.batch_size} images a step; lower --batch-size, --n-small or "
            "--size, and remove the state of this run if there is one"
        ) from None
    return model.cpu().eval(), measures


def _all_steps(
    config: TrainConfig,
    data: TrainingSet,
    both: nn.ModuleDict,
    backbone: Callable[[Tensor], Tensor],
    optimizer: torch.optim.SGD,
    done: Done,
    identity: dict[str, Any],
    state: Path,
    save_every: float,
    report: Callable[[Progress], None],
) -> dict[str, float]:
    model, method = cast(ScoringModel, both["model"]), cast(Method, both["method"])
    device = next(model.parameters()).device
    pixels = data.pixels.to(device)
    labels = None if data.labels is None else data.labels.to(device)
    per_epoch = len(batches(len(pixels), config.batch_size, epoch=0, seed=config.seed))
    steps = config.epochs * per_epoch
    of_epoch, of_window = Sums(done.sums, done.n), Sums()
    saved = reported = time.monotonic()
    for epoch in range(done.step // per_epoch, config.epochs):
        for at, rows in enumerate(batches(len(pixels), config.batch_size, epoch=epoch, seed=config.seed)):
            step = epoch * per_epoch + at
            if step < done.step:
                continue
            if at == 0:
                of_epoch = Sums()
            torch.manual_seed(config.seed * 1_000_003 + step)  # for what a backbone draws, such as dropped paths
            rate = learning_rate(config, step, steps)
            for group in optimizer.param_groups:
                group["lr"] = rate * group["share"]
            rows = rows.to(device)
            of_rows = None if labels is None else labels[rows]
            result = _forward(config, model, method, backbone, pixels[rows], of_rows, step)
            if not result.loss.isfinite():
                raise InputError(f"the loss is {result.loss.item()} at step {step}; expected a number: lower --lr")
            optimizer.zero_grad(set_to_none=True)
            result.loss.backward()
            optimizer.step()
            method.after_step(step)

            measured = {"loss": result.loss.detach(), **result.measures}
            of_epoch.add(measured)
            of_window.add(measured)
            now, last = time.monotonic(), step + 1 == steps
            if now - reported > 1 or last:
                means = of_window.means()
                speed = of_window.n * len(rows) / max(now - reported, 1e-9)
                report(Progress(step + 1, steps, epoch + 1, means, speed, warn(means)))
                of_window, reported = Sums(), now
            if now - saved > save_every or last:
                save_state(state, identity, both, optimizer, Done(step + 1, of_epoch.totals(), of_epoch.n))
                saved = time.monotonic()
    return of_epoch.means()


class Sums:
    """Sums of measures over steps, kept where the measures are."""

    def __init__(self, totals: dict[str, float] | None = None, n: int = 0) -> None:
        self._totals = {name: torch.tensor(value, dtype=torch.float64) for name, value in (totals or {}).items()}
        self.n = n

    def add(self, measures: dict[str, Tensor]) -> None:
        """Add the measures of one step."""
        for name, value in measures.items():
            before = self._totals.get(name)
            self._totals[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.n += 1

    def totals(self) -> dict[str, float]:
        """Return name -> sum."""
        return {name: float(value) for name, value in self._totals.items()}

    def means(self) -> dict[str, float]:
        """Return name -> mean over the steps."""
        return {name: value / max(self.n, 1) for name, value in self.totals().items()}


def warn(measures: dict[str, float]) -> str | None:
    """Return what is going wrong, or None.

    ``spread`` is the standard deviation of the unit embeddings times sqrt(M): 1 where they fill the sphere, 0 where
    all images have become the same point (Chen & He 2021, sec. 4.1).
    """
    if measures.get("spread", 1.0) < COLLAPSED:
        return f"the embeddings collapse: their spread is {measures['spread']:.3f} of 1; lower --lr, or use more views"
    if measures.get("kappa", 1.0) < 0.01:
        return (
            f"kappa has fallen to {measures['kappa']:.2g} and may not come back; lower --lr, or use --predictor direct"
        )
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
    heads = dict(model.heads.items())
    return method(together.view(-1, len(images), together.shape[1]), heads.get(config.method), labels)


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
