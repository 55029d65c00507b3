"""Every method trained for two steps of a tiny network; run as a script, in one of several processes."""

import sys
from dataclasses import replace
from pathlib import Path

import torch

from trainers import ranks
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.augmentation import Augmentation
from trainers.methods.table import METHODS

SMALL = {
    "latent_dim": 8, "hidden_dim": 8, "n_small": 1, "small_size": 16, "channels": 8, "views": 2, "prototypes": 16,
    "bottleneck": 8, "features": 32, "folds": 2, "queue": 24, "key_groups": 4, "samples": 3, "members": 2, "rank": 2,
}  # fmt: skip


def data():
    """Return 24 images of noise with labels and losses."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (24, 3, 32, 32), generator=generator, dtype=torch.uint8)
    losses = torch.rand(24, generator=generator, dtype=torch.float64)
    return TrainingSet(pixels, torch.arange(24) % 3, ["a", "b", "c"], {}, losses)


def recipe(method, **settings):
    """Return a recipe whose first step leaves its gradient in the momentum of the optimiser."""
    kind = METHODS[method]
    small = {name: value for name, value in SMALL.items() if name in kind.Settings.about()}
    if method == "umm":
        small["samples"] = "3"
    views = Augmentation(scale=(0.5, 1.0), corrupt=0.5, damage=1.0 if method == "junk" else 0.0)
    return TrainConfig(
        method, "test_vit", size=32, epochs=1, batch_size=12, lr=0.01, optimizer="sgd", weight_decay=0.0,
        augmentation=views, settings=kind.Settings(**{**small, **settings}),
    )  # fmt: skip


def cases():
    """Return name -> recipe: every method, and what some of them do only if it is requested."""
    made = {name: recipe(name) for name in METHODS.where}
    made |= {
        "dino-teacher": recipe("dino", momentum=0.9),
        "umm-moco": recipe("umm", learner="moco"),
        "umm-bank": recipe("umm", learner="bank", queue=8),
        "supcon": recipe("mcinfonce", positives="labels"),
        "losspred-column": recipe("losspred", loss_column="loss", form="l2", stop_gradient=False),
        "moco-groups": replace(recipe("moco"), backbone="test_resnet", freeze="batchnorm"),
        "accumulate": replace(recipe("simclr"), batch_size=6, accumulate=2, clip=0.1),
        "damage": replace(recipe("simclr"), augmentation=Augmentation(scale=(0.5, 1.0), damage=0.5)),
    }
    return made


def train_all(folder):
    """Train every case, each to its state in a folder."""
    for name, config in cases().items():
        train(config, data(), state=Path(folder) / name, device=torch.device("cpu"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    with ranks.joined("cpu"):
        train_all(sys.argv[1])
