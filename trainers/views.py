"""Where the features of a step come from: images that are augmented and go through the backbone."""

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from scoring.model import ScoringModel
from trainers.augment import Draw, view
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.methods.method import Method

Backbone = Callable[[Tensor], Tensor]


class Views(Protocol):
    """Gives the features of a batch."""

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Tensor:
        """Return features of every view of these images, shape (V, N, D), float32; standard views come first."""


class ImageViews:
    """Augments images that are held in memory and sends them through the backbone.

    Args:
        config: the recipe.
        images: moved to ``device`` whole.
        model: whose normalisation to use.
        method: how many views it asks for.
        backbone: the model's own, compiled or not.
        device: where everything happens.
    """

    def __init__(
        self,
        config: TrainConfig,
        images: TrainingSet,
        model: ScoringModel,
        method: Method,
        *,
        backbone: Backbone,
        device: torch.device,
    ) -> None:
        self._config, self._model, self._backbone = config, model, backbone
        self._n_standard = method.n_standard
        self._n_small = config.n_small if method.multi_crop else 0
        self._pixels = images.pixels.to(device)

    def __call__(self, rows: Tensor, *, epoch: int, step: int) -> Tensor:
        """Draw the views of this step, a function of seed and step alone, and return their features."""
        config, recipe = self._config, self._config.augmentation
        images = self._pixels[rows]
        draw = Draw(len(images), images.device, config.seed * 1_000_003 + step)
        standard = [view(images, config.size, recipe.scale, recipe, draw) for _ in range(self._n_standard)]
        small = [view(images, config.small_size, recipe.small_scale, recipe, draw) for _ in range(self._n_small)]
        features = []
        with torch.autocast(images.device.type, torch.bfloat16, enabled=config.precision == "bf16"):
            for group in (standard, small):  # one pass for each resolution
                if group:
                    stacked = self._model.normalize(torch.cat(group)).contiguous(memory_format=torch.channels_last)
                    features.append(self._backbone(stacked).float())
        together = torch.cat(features)  # (V * N, D)
        return together.view(-1, len(images), together.shape[1])
