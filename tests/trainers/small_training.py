"""The recipe of a training run of seconds."""

from dataclasses import replace

import torch

from trainers.config import TrainConfig
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS

CPU = torch.device("cpu")


def recipe(method="visimsiam", **changes):
    kind = METHODS[method].Settings
    settings = {"latent_dim": 16, "hidden_dim": 16, "n_small": 1, "small_size": 16}
    base = TrainConfig(
        method=method,
        backbone="test_resnet",
        size=32,
        epochs=2,
        batch_size=16,
        lr=0.05,
        settings=kind(**{name: value for name, value in settings.items() if name in kind.about()}),
        augmentation=Augmentation(scale=(0.5, 1.0)),
    )
    return replace(base, **changes)


def weights(model):
    return torch.cat([value.float().flatten() for value in model.state_dict().values()])
