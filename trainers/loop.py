"""The training loop of every method."""

import json
import math
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from scoring.errors import InputError
from scoring.model import ScoringModel
from scoring.runner import is_out_of_memory
from trainers import half, ranks
from trainers.build import build, make_optimizer, set_mode, small_map
from trainers.cache import CachedFeatures
from trainers.config import TrainConfig, rate_steps
from trainers.data import batches, require_batch
from trainers.memory import ran_out
from trainers.methods.method import Batch, Method, Step
from trainers.methods.table import METHODS
from trainers.monitor import Course, Epoch, Monitor, Progress, Sums, warn
from trainers.state import Keeper, RunState
from trainers.stream import ImageStream
from trainers.views import Data, Seen, StreamedViews, Views, views_of

GRADIENT = "gradient_norm"


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Return the learning rate of a step: linear warm-up, then constant, step schedule or half-cosine to 0."""
    rising = config.warmup * steps
    if step < rising:
        return config.lr * min(1.0, (step + 1) / rising)  # warm-up can end within a step
    if config.schedule == "constant":
        return config.lr
    if config.schedule != "cosine":
        factors = [factor for share, factor in rate_steps(config.schedule) if share * steps <= step]
        return config.lr * (factors[-1] if factors else 1.0)
    return config.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1.0, steps - rising)))


def train(
    config: TrainConfig,
    data: Data,
    *,
    state: Path,
    device: torch.device,
    start: tuple[ScoringModel, Method[Any]] | None = None,
    origin: dict[str, Any] | None = None,
    compiled: bool = False,
    monitor: Monitor | None = None,
) -> tuple[ScoringModel, dict[str, float]]:
    """Train a model; resume from ``state`` if it holds an earlier run of the same recipe.

    In a distributed run (``trainers.ranks``), each process reads its part of every batch on its device; the result
    equals a run of one process up to rounding. Only the first process writes the state and reports.

    Args:
        config: the recipe.
        data: images, moved to ``device`` at once; an image stream, with ``config.stream``; or a feature cache, for a
            frozen backbone.
        state: file of the training state; the caller removes it after saving the model.
        device: where to train.
        start: from ``build``; by default built from the recipe alone.
        origin: further identity of the run, such as digests of data and start; a state with another origin is refused.
        compiled: compile the backbone for each view size.
        monitor: save interval and callbacks.

    Returns:
        The model, on the CPU in evaluation mode, and the mean measures of the last epoch.

    Raises:
        InputError: if the data do not suffice for the recipe, ``state`` belongs to another run, the loss is not finite
            (the last good state is kept), memory runs out, or processes have different data or cannot split a batch
            evenly.
    """
    monitor = monitor or Monitor()
    require_enough(config, data)
    _require_suitable(config, data)
    _require_ranks(config, data)
    model, method = start or build(config, len(data.classes), n=data.n)
    if config.accumulate > 1 and method.keeps_batch:
        raise InputError(f"{config.method} keeps the images of one batch per step; leave --set accumulate out")
    modules = _on_device(config, model, method, device)
    optimizer = make_optimizer(config, model, method)
    identity = {**config.to_json(), "images": data.n, "classes": data.classes, **(origin or {})}
    cause = small_map(config, model, method) if config.precision == "bf16" else None
    ranks.require_same(identity)
    keeper = Keeper(state, identity, modules, optimizer, monitor.save_every, cause)
    _require_epochs(config, data.n, keeper)
    ranks.require_same({"steps done": keeper.done.step})
    if monitor.course is not None:
        monitor.course.begin(keeper.done.step)
    measures = _fit(config, data, model, method, keeper, monitor, device=device, compiled=compiled)
    return model.cpu().eval(), measures


def _on_device(config: TrainConfig, model: ScoringModel, method: Method[Any], device: torch.device) -> nn.ModuleDict:
    """Move model and method to a device and to training mode; return both."""
    model.to(device)
    if config.freeze == "nothing":
        model.backbone = ranks.synchronized(model.backbone)
    modules = nn.ModuleDict({"model": model, "method": method}).to(device)
    modules.to(memory_format=torch.channels_last)
    if device.type == "cuda":
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.allow_tf32 = config.precision != "fp32"
    return modules


def require_enough(config: TrainConfig, data: Data) -> None:
    """Raise ``InputError`` unless the data suffice for the recipe: a full batch, labels, two classes."""
    require_batch(data.n, config.batch_size)
    kind = METHODS[config.method]
    kind.check_amount(config.settings, config.batch_size, data.n)
    if kind.reads_pixels(config.settings) and isinstance(data, CachedFeatures):
        raise InputError(f"{config.method} reads pixels, and {data.folder} holds features; pass images instead")
    column = kind.reads_losses(config.settings)
    if column is not None and data.losses is None:
        raise InputError(f"{config.method} predicts the losses in {column!r}, and the data have none; add them")
    if not kind.reads_labels(config.settings):
        return
    if data.labels is None:
        raise InputError(
            f"{config.method} needs labels, and the data have none; choose a column of classes with --label"
        )
    if len(data.classes) < 2:
        raise InputError(
            f"{config.method} needs labels of at least 2 classes, and all {data.n} images are of class "
            f"{data.classes[0]!r}; choose another column with --label, or pass more images"
        )


def _fit(
    config: TrainConfig,
    data: Data,
    model: ScoringModel,
    method: Method[Any],
    keeper: Keeper,
    monitor: Monitor,
    *,
    device: torch.device,
    compiled: bool,
) -> dict[str, float]:
    """Create the views of the data and run the remaining steps; return the mean measures of the last epoch."""
    set_mode(config, model, method)
    backbone = half.compiled(model.backbone, device, config.precision) if compiled else model.backbone
    views: Views | None = None
    try:
        per_epoch = sum(map(len, _batches_by_step(config, data.n, 0)))
        views = views_of(data, config, model, method, per_epoch=per_epoch, backbone=backbone, device=device)
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []), keeper.signals:
            return _all_steps(config, data, views, model, method, keeper, monitor)
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise ran_out(config, data, device) from None
    finally:
        if isinstance(views, StreamedViews):
            views.close()


def _all_steps(
    config: TrainConfig,
    data: Data,
    views: Views,
    model: ScoringModel,
    method: Method[Any],
    keeper: Keeper,
    monitor: Monitor,
) -> dict[str, float]:
    """Run the remaining steps; return the mean measures of the last epoch."""
    optimizer, done = keeper.optimizer, keeper.done
    scale = half.LossScale(next(model.parameters()).device, config.precision, done.scale)
    batch = _Batches(config, data, views, model, method, scale)
    per_epoch = len(_batches_by_step(config, data.n, 0))
    steps = config.epochs * per_epoch
    of_epoch, of_window = Sums(done.sums, done.n), Sums()
    batch.failures.update(done.failures)
    reported = time.monotonic()
    for epoch in range(done.step // per_epoch, config.epochs):
        for index, turn in enumerate(_batches_by_step(config, data.n, epoch)):
            step = epoch * per_epoch + index
            if step < done.step:
                continue
            if index == 0:
                of_epoch = Sums()
            rate = _set_rate(optimizer, config, step, steps)
            optimizer.zero_grad(set_to_none=True)
            measured = [batch.backward(rows, epoch, step, part, len(turn), steps) for part, rows in enumerate(turn)]
            for measures in measured:
                if not measures["loss"].isfinite():
                    keeper.stop(step, f"the loss is {measures['loss'].item()}", config.lr)
            ranks.add_gradients(keeper.parameters)
            norm = scale.norm(optimizer, keeper.parameters, config.clip)
            is_taken = scale.step(optimizer, norm)
            if not is_taken and scale.is_lost:
                keeper.stop(step, "the gradient is not finite", config.lr)
            method.after_step(step)
            for measures in measured if is_taken else []:
                of_window.add(measures)
                of_epoch.add({**measures, GRADIENT: norm})
            now, last = time.monotonic(), step + 1 == steps
            if monitor.course is not None and index + 1 == per_epoch:
                ended = Epoch(step + 1, epoch + 1, config.epochs, rate, of_epoch.means(), model, done.earlier)
                _report_epoch(ended, monitor.course)
                set_mode(config, model, method)
            if ranks.is_first() and (last or keeper.is_due(now)):
                batch.add_remote_failures()
                failures = list(batch.failures.items())
                state = RunState(step + 1, of_epoch.totals(), of_epoch.n, failures, None, scale.to_json(), done.earlier)
                keeper.keep(state, now, config.lr)
            elif not ranks.is_first():
                keeper.signals.deliver_later()
            if now - reported > 1 or last:
                means = of_window.means()
                speed = of_window.n * config.batch_size / max(now - reported, 1e-9)
                monitor.report(Progress(step + 1, steps, epoch + 1, means, speed, warn(means)))
                of_window, reported = Sums(), now
    if isinstance(data, ImageStream):
        data.failures.update(Counter(batch.failures.values()))
    return {name: value for name, value in of_epoch.means().items() if name != GRADIENT}


def _set_rate(optimizer: torch.optim.Optimizer, config: TrainConfig, step: int, steps: int) -> float:
    """Set the learning rate of each parameter group for a step; return the base rate."""
    rate = learning_rate(config, step, steps)
    for group in optimizer.param_groups:
        group["lr"] = rate * group["share"]
    return rate


def _report_epoch(epoch: Epoch, course: Course) -> None:
    """Pass a finished epoch to the course, with the model in evaluation mode."""
    epoch.model.eval()
    course.add(epoch)


class _Batches:
    """Computes gradients batch by batch, and counts unusable images."""

    def __init__(
        self,
        config: TrainConfig,
        data: Data,
        views: Views,
        model: ScoringModel,
        method: Method[Any],
        scale: half.LossScale,
    ) -> None:
        self.config, self.views, self.method, self.scale = config, views, method, scale
        self.failures: dict[int, str] = {}  # row -> status
        self.device = next(model.parameters()).device
        self.head = dict(model.heads.items()).get(config.method)
        self.labels, self.losses = (
            None if values is None else values.to(self.device) for values in (data.labels, data.losses)
        )

    def _batch_views(self, rows: Tensor, epoch: int, draw: int) -> Seen:
        """Return the views of a batch; all random numbers are functions of seed and step."""
        seed = self.config.seed * 1_000_003 + draw
        torch.manual_seed(
            seed + (ranks.group().rank << 40)
        )  # for random layers of the backbone, such as stochastic depth
        seen = self.views(rows, epoch=epoch, step=draw)
        if ranks.group().size > 1:
            torch.manual_seed(seed)  # the loss draws equal numbers in all processes
        if seen.failures:
            self.failures.update(seen.failures)
            ranks.publish("failures", json.dumps(list(self.failures.items())))
        return seen

    def add_remote_failures(self) -> None:
        """Add the failures of other processes."""
        for text in ranks.published("failures"):
            self.failures.update(json.loads(text))

    def backward(self, rows: Tensor, epoch: int, step: int, part: int, parts: int, steps: int) -> dict[str, Tensor]:
        """Add the gradient of a batch, one of ``parts`` of a step; return the measures."""
        config, draw = self.config, step * parts + part
        rows = rows.to(self.device)
        seen = self._batch_views(rows, epoch, draw)
        rows = rows if seen.rows is None else seen.rows
        losses = None if self.losses is None else self.losses[rows]
        begins_pass = part == 0 and step % (steps // config.epochs) == 0
        self.method.before_step(Batch(rows, losses, step / steps, seen.pixels, begins_pass))
        result = self.method(seen.features, self.head, None if self.labels is None else self.labels[rows])
        if (wrong := _step_error(result)) is not None:
            raise InputError(f"expected {config.method} to return a Step with {wrong}; repair it")
        self.scale.backward(result.loss / (parts * ranks.group().size))
        return {"loss": result.loss.detach(), **{name: value.detach() for name, value in result.measures.items()}}


def _step_error(result: object) -> str | None:
    """Return the expected and the returned type if a method did not return a valid step; None if it did."""
    if not isinstance(result, Step):
        return f"a scalar loss, got {type(result).__name__}"
    if not isinstance(result.loss, Tensor) or result.loss.ndim:
        return f"a scalar loss, got a loss {_kind(result.loss)}"
    if not result.loss.requires_grad:
        return "a loss that has a gradient, got one without"
    if not isinstance(result.measures, dict):
        return f"a dict of measures, got {type(result.measures).__name__}"
    for name, value in result.measures.items():
        if not isinstance(value, Tensor) or value.ndim:
            return f"measures that are scalar tensors, got {name!r} {_kind(value)}"
    return None


def _kind(value: object) -> str:
    return f"of shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"of type {type(value).__name__}"


def _require_suitable(config: TrainConfig, data: Data) -> None:
    """Raise unless there are enough images for a step, of the kind that the recipe needs."""
    if data.n < config.batch_size * config.accumulate:
        raise InputError(
            f"expected at least {config.accumulate} batches of {config.batch_size} images for a step, got {data.n} "
            "images; lower --set accumulate or --batch-size"
        )
    if isinstance(data, CachedFeatures) and config.freeze != "trunk":
        raise ValueError("features from a cache are of a frozen backbone, and the recipe trains it")
    if config.stream != isinstance(data, ImageStream):
        raise ValueError("a recipe with stream is only for images that are read during the run")


def _require_ranks(config: TrainConfig, data: Data) -> None:
    """Raise ``InputError`` if the training cannot be split over several processes."""
    size = ranks.group().size
    if size > 1 and isinstance(data, CachedFeatures):
        raise InputError("a head on cached features trains in one process; leave --devices out")
    if config.batch_size % size:
        even = max(1, min(config.batch_size, data.n) // size) * size
        raise InputError(
            f"expected a batch that {size} processes share evenly, got {config.batch_size} images; use --batch-size "
            f"{even}"
        )


def _require_epochs(config: TrainConfig, n: int, keeper: Keeper) -> None:
    """Raise ``InputError`` if a run would end before the epochs that it has completed."""
    per_epoch = len(_batches_by_step(config, n, 0))
    if keeper.done.step > config.epochs * per_epoch:
        done = -(-keeper.done.step // per_epoch)
        raise InputError(
            f"{keeper.path} has {done} epochs finished or begun; expected --epochs {done} or more, got {config.epochs}"
        )


def _batches_by_step(config: TrainConfig, n: int, epoch: int) -> list[list[Tensor]]:
    """Return the batches of each step of an epoch; batches that do not fill the last step are left out."""
    rows = batches(n, config.batch_size, epoch=epoch, seed=config.seed, stream=config.stream)
    each = config.accumulate
    return [rows[start : start + each] for start in range(0, len(rows) - each + 1, each)]
