"""A network of three convolutions, trained from random weights for a fixed number of steps."""

import io
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

SIDE = 32
BATCH = 128
PEAK = 3e-3  # of the learning rate
DECAY = 0.05


def pixels(pictures: list[bytes]) -> Tensor:
    """Return encoded pictures at 32 x 32, shape (N, 3, 32, 32), uint8."""
    found = torch.empty((len(pictures), 3, SIDE, SIDE), dtype=torch.uint8)
    for at, picture in enumerate(pictures):
        image = Image.open(io.BytesIO(picture)).convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC)
        found[at] = torch.from_numpy(np.array(image)).permute(2, 0, 1)
    return found


def network(classes: int) -> nn.Module:
    """Return three convolutions and a linear layer; 3 million multiplications an image."""
    layers: list[nn.Module] = []
    for channels, wider, size in ((3, 32, 5), (32, 64, 3), (64, 128, 3)):
        layers += [nn.Conv2d(channels, wider, size, 2, size // 2, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def accuracy_of_network(
    images: tuple[Tensor, Tensor], labels: tuple[NDArray, NDArray], seed: int, steps: int, device: str
) -> float:
    """Train on pictures and return the share of the test pictures that the network gets right.

    AdamW over one cycle, batches drawn with replacement, mirrored and shifted by up to 4 pixels; products in bfloat16,
    which halves the time. The number of steps is the same whatever the number of pictures, so that a larger subset is
    not trained for longer.

    Args:
        images: to train and to test on, each (N, 3, 32, 32) uint8.
        labels: of both, int64.
        seed: of weights, batches and changes.
        steps: batches of 128.
        device: that trains.
    """
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    classes = int(max(labels[0].max(), labels[1].max())) + 1
    model = network(classes).to(device, memory_format=torch.channels_last).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, total_steps=steps)
    target = torch.from_numpy(labels[0])
    for _ in range(steps):
        at = torch.randint(len(target), (BATCH,), generator=generator)
        batch = changed(images[0][at], generator).to(device, memory_format=torch.channels_last)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logits = model(batch)
        loss = F.cross_entropy(logits.float(), target[at].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return accuracy(model.eval(), images[1], labels[1], device)


def changed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a batch as floats around 0, each picture mirrored by chance; the batch is shifted by up to 4 pixels."""
    found = images.float() / 64 - 2
    mirrored = torch.rand(len(found), generator=generator) < 0.5
    found[mirrored] = found[mirrored].flip(3)
    across, down = torch.randint(0, 9, (2,), generator=generator).tolist()
    return F.pad(found, (4, 4, 4, 4), mode="reflect")[:, :, down : down + SIDE, across : across + SIDE]


@torch.no_grad()
def accuracy(model: Any, images: Tensor, labels: NDArray, device: str) -> float:
    """Return the share of pictures that a model gets right."""
    said = []
    for part in images.split(1000):
        batch = (part.float() / 64 - 2).to(device, memory_format=torch.channels_last)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            said.append(model(batch).argmax(1).cpu())
    return float((torch.cat(said).numpy() == labels).mean())
