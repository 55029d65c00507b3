"""The features of a step: of augmented images that go through the backbone, or from a cache."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from scoring.errors import InputError
from scoring.model import ScoringModel
from trainers import ranks
from trainers.augment import Draw, changed, view
from trainers.cache import PLAIN, CachedFeatures
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.half import autocast
from trainers.memory import hold
from trainers.methods.method import Method
from trainers.methods.settings import Augmentation
from trainers.stream import CropGroup, CroppedBatches, ImageStream

AT_ONCE = 1 << 22  # maximum pixels that a GPU augments together, since for small views kernel launches dominate

Backbone = Callable[[Tensor], Tensor]
Data = TrainingSet | ImageStream | CachedFeatures


@dataclass(frozen=True)
class Seen:
    """The views of a batch, gathered from all processes.

    Attributes:
        features: of every view except unread ones, shape (V, N, D), float32; standard views come first.
        pixels: as ``Batch.pixels``.
        rows: row numbers, where an unusable image was replaced by another; None for the requested rows.
        failures: row -> status of unusable images.
    """

    features: Tensor
    pixels: tuple[Tensor, ...] = ()
    rows: Tensor | None = None
    failures: dict[int, str] = field(default_factory=dict)


class Views(Protocol):
    """Provides the views of a batch."""

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Seen:
        """Return every view of the images with these row numbers."""


class _BackboneReader:
    """Runs views through the backbone, one call per resolution, and gathers the results of all processes."""

    def __init__(self, config: TrainConfig, model: ScoringModel, method: Method[Any], backbone: Backbone) -> None:
        self._config, self._model, self._backbone = config, model, backbone
        self._n_unread, self._reads_pixels = method.n_unread, method.reads_pixels(config.settings)

    def __call__(self, standard: list[Tensor], small: list[Tensor]) -> Seen:
        """Run lists of views of shape (V, N, 3, S, S), float in [0, 255]; ``small`` are low-resolution ones."""
        features, pixels = [], []
        device, n = standard[0].device, standard[0].shape[1]
        with autocast(device, self._config.precision):
            for parts, unread in ((standard, self._n_unread), (small, 0)):  # one pass for each resolution
                if parts:
                    group = torch.cat(parts)  # (V, N, 3, S, S)
                    stacked = self._model.normalize(group.flatten(0, 1)).contiguous(memory_format=torch.channels_last)
                    features.append(self._backbone(stacked[: (len(group) - unread) * n]).float())
                    pixels.append(stacked.unflatten(0, (len(group), n)))
        together = torch.cat(features)  # (V * N, D)
        seen = ranks.gather(together.view(-1, n, together.shape[1]), 1)
        return Seen(seen, tuple(ranks.gather(each, 1) for each in pixels) if self._reads_pixels else ())


class ImageViews:
    """Augments images in memory and runs them through the backbone, compiled or not, on a device."""

    def __init__(
        self,
        config: TrainConfig,
        images: TrainingSet,
        model: ScoringModel,
        method: Method[Any],
        *,
        backbone: Backbone,
        device: torch.device,
    ) -> None:
        self._config, self._read = config, _BackboneReader(config, model, method, backbone)
        self._n_standard, self._n_plain = method.n_standard, method.n_plain
        self._n_small, self._small_size = method.n_small, method.small_size
        self._pixels = hold(images, device)

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Seen:
        """Draw the views of this step, determined by seed and step, and run them."""
        config, recipe = self._config, self._config.augmentation
        drawn, part = _process_parts(len(rows), recipe)
        images = self._pixels[rows[drawn]]
        draw = Draw(len(rows), images.device, config.seed * 1_000_003 + step, drawn)

        def drawn_views(count: int, size: int, scale: tuple[float, float]) -> list[Tensor]:
            return [
                view(images, size, scale, recipe, draw.of_views(n_views)).unflatten(0, (n_views, -1))
                for n_views in _views_at_once(count, len(rows) * size**2, images.device)
            ]

        plain = [images.float().expand(self._n_plain, *images.shape)] if self._n_plain else []
        standard = plain + drawn_views(self._n_standard - self._n_plain, config.size, recipe.scale)
        small = drawn_views(self._n_small, self._small_size, recipe.small_scale)
        return self._read([each[:, part] for each in standard], [each[:, part] for each in small])


def _views_at_once(count: int, n_pixels: int, device: torch.device) -> list[int]:
    """Return how many of ``count`` views per image are augmented at once; the same in all processes of a run.

    A CPU is fastest with one at a time. ``n_pixels`` is the number of pixels of one view of all images of the batch.
    """
    most = max(1, AT_ONCE // n_pixels) if count and device.type == "cuda" else 1
    return [min(most, count - start) for start in range(0, count, most)]


def _process_parts(n: int, recipe: Augmentation) -> tuple[slice, slice]:
    """Return which of n images a process augments, and which of these it runs.

    The number of random draws of damage depends on all images of a batch, so with it every process augments all of
    them.
    """
    mine = ranks.part(n)
    return (slice(None), mine) if recipe.damage else (mine, slice(None))


class StreamedViews:
    """Takes crops of images decoded ahead, augments them and runs them through the backbone, compiled or not."""

    def __init__(
        self,
        config: TrainConfig,
        images: ImageStream,
        per_epoch: int,
        model: ScoringModel,
        method: Method[Any],
        *,
        backbone: Backbone,
        device: torch.device,
    ) -> None:
        self._config, self._read, self._device = config, _BackboneReader(config, model, method, backbone), device
        self._n_plain, self._n_drawn = method.n_plain, method.n_standard - method.n_plain
        views = config.augmentation
        groups = (
            CropGroup(self._n_drawn, config.size, views.scale),
            CropGroup(method.n_small, method.small_size, views.small_scale),
        )
        self._batches = CroppedBatches(
            images,
            [group for group in groups if group.count],
            plain=method.n_plain > 0,
            seed=config.seed,
            batch_size=config.batch_size,
            per_epoch=per_epoch,
            epochs=config.epochs,
            pinned=device.type == "cuda",
        )

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Seen:
        """Take the crops of this step, determined by seed, step and images, augment and run them."""
        recipe, batch = self._config.augmentation, self._batches.take(step)
        drawn, part = _process_parts(len(rows), recipe)
        draw = Draw(len(rows), self._device, self._config.seed * 1_000_003 + step, drawn)
        groups = [group.to(self._device, non_blocking=True) for group in batch.groups]  # (V, N, 3, S, S) each
        plain = [groups.pop(0).float().expand(self._n_plain, -1, -1, -1, -1)] if self._n_plain else []
        if recipe.damage:  # images of other processes only affect random numbers here
            groups = [_padded(group, part, len(rows)) for group in groups]

        def changed_views(group: Tensor) -> list[Tensor]:
            return [
                changed(crops.flatten(0, 1).float(), recipe, draw.of_views(len(crops))).unflatten(0, crops.shape[:2])
                for crops in group.split(_views_at_once(len(group), len(rows) * group.shape[-1] ** 2, self._device))
            ]

        views = [[each[:, part] for each in changed_views(group)] for group in groups]
        standard = views.pop(0) if self._n_drawn else []
        seen = self._read(plain + standard, views[0] if views else [])
        is_same = ranks.group().size == 1 and not batch.failures
        read = rows if is_same else ranks.gather(batch.rows.to(self._device))
        return replace(seen, rows=read, failures=batch.failures)

    def close(self) -> None:
        """Stop decoding."""
        self._batches.close()


def _padded(crops: Tensor, part: slice, n: int) -> Tensor:
    """Return crops (V, n, 3, S, S) of a whole batch, black except for this process's part."""
    batch = crops.new_zeros(len(crops), n, *crops.shape[2:])
    batch[:, part] = crops
    return batch


class CachedViews:
    """Takes an image's views from different epochs of a cache.

    An epoch stays in memory if another one takes less than half of the free memory; else the oldest are dropped and
    read again when needed. The epochs of the current step are always held.

    Raises:
        InputError: if the cache has fewer epochs than the method has views.
    """

    def __init__(
        self, config: TrainConfig, cache: CachedFeatures, method: Method[Any], *, device: torch.device
    ) -> None:
        self._seed, self._cache, self._device = config.seed, cache, device
        self._n_views, self._plain = method.n_standard - method.n_plain, [PLAIN] * method.n_plain
        if len(cache.augmented) < self._n_views:
            raise InputError(
                f"{config.method} takes {self._n_views} views of an image, each from its own epoch, and "
                f"{cache.folder} has {len(cache.augmented)}; build more: curate cache ... --epochs "
                f"{self._n_views + 1}"
            )
        self._held: dict[int, Tensor] = {}

    def turn(self, epoch: int) -> list[int]:
        """Return the cached epochs for a training epoch: each is used once before any is repeated."""
        at_once = len(self._cache.augmented) // self._n_views
        generator = torch.Generator().manual_seed(self._seed * 1_000_003 + epoch // at_once)
        order = torch.randperm(len(self._cache.augmented), generator=generator).tolist()
        start = epoch % at_once * self._n_views
        return self._plain + [self._cache.augmented[index] for index in order[start : start + self._n_views]]

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Seen:
        """Return the features of these images in the cached epochs of this training epoch."""
        epochs = self.turn(epoch)
        if set(epochs) - set(self._held):
            self._fetch(epochs)
        return Seen(torch.stack([self._held[at][rows].float() for at in epochs]))

    def _fetch(self, epochs: list[int]) -> None:
        """Read the missing epochs, dropping the oldest for room."""
        for number in epochs:
            if number in self._held:
                continue
            others = [held for held in self._held if held not in epochs]
            while others and not self._cache.has_room(self._device):
                del self._held[others.pop(0)]
            self._held[number] = self._cache.epoch(number).to(self._device)


def views_of(
    data: Data,
    config: TrainConfig,
    model: ScoringModel,
    method: Method[Any],
    *,
    per_epoch: int,
    backbone: Backbone,
    device: torch.device,
) -> Views:
    """Return the views of some data, of the class for its type; arguments as of that class."""
    if isinstance(data, CachedFeatures):
        return CachedViews(config, data, method, device=device)
    if isinstance(data, TrainingSet):
        return ImageViews(config, data, model, method, backbone=backbone, device=device)
    return StreamedViews(config, data, per_epoch, model, method, backbone=backbone, device=device)
