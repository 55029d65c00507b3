"""The small network of ``curate evaluate --subset --network``, on encoded images and as an accuracy."""

import io

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from curate.probes.network import SIDE, predicted, thumbnail, train_network


def pixels(pictures: list[bytes]) -> Tensor:
    """Return encoded images at 32 x 32, shape (N, 3, 32, 32), uint8."""
    images = torch.empty((len(pictures), 3, SIDE, SIDE), dtype=torch.uint8)
    for at, picture in enumerate(pictures):
        images[at] = torch.from_numpy(thumbnail(np.array(Image.open(io.BytesIO(picture)).convert("RGB"))))
    return images


def accuracy_of_network(
    images: tuple[Tensor, Tensor], labels: tuple[NDArray, NDArray], seed: int, steps: int, device: str
) -> float:
    """Train on images and return the share of the test images that the network gets right.

    Args:
        images: to train and to test on, each (N, 3, 32, 32) uint8.
        labels: of both, int64.
        seed: of weights, batches and changes.
        steps: batches of 128.
        device: that trains.
    """
    classes = int(max(labels[0].max(), labels[1].max())) + 1
    model = train_network(images[0], labels[0], classes, seed=seed, steps=steps, device=device)
    return float((predicted(model, images[1], device) == labels[1]).mean())
