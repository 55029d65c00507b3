"""A three-layer convolutional network on pixels, trained from scratch for a fixed number of steps."""

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


def thumbnail(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image, uint8 of shape (H, W, 3), resized to 32 x 32, shape (3, 32, 32)."""
    small = Image.fromarray(picture).resize((SIDE, SIDE), Image.Resampling.BICUBIC)
    return np.ascontiguousarray(np.array(small).transpose(2, 0, 1))


def network(classes: int) -> nn.Module:
    """Return a network of three convolutions and a linear layer; 3 million multiplications per image."""
    layers: list[nn.Module] = []
    for channels, wider, size in ((3, 32, 5), (32, 64, 3), (64, 128, 3)):
        layers += [nn.Conv2d(channels, wider, size, 2, size // 2, bias=False), nn.BatchNorm2d(wider), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def train_network(
    images: Tensor, labels: NDArray[np.int64], classes: int, *, seed: int, steps: int, device: str = "cpu"
) -> nn.Module:
    """Train a network on images.

    AdamW with a one-cycle schedule on batches drawn with replacement, mirrored and shifted by up to 4 pixels, in
    bfloat16, which halves the time. The number of steps does not depend on the number of images, so that larger sets
    are not trained for longer.

    Args:
        images: shape (N, 3, 32, 32), uint8.
        labels: shape (N,), in [0, classes).
        classes: C.
        seed: of weights, batches and augmentation.
        steps: number of batches of 128.
        device: torch device.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = network(classes)
    generator = torch.Generator().manual_seed(seed)
    model = model.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK, total_steps=steps)
    target = torch.from_numpy(labels)
    for _ in range(steps):
        at = torch.randint(len(target), (BATCH,), generator=generator)
        batch = changed(images[at], generator).to(device, memory_format=torch.channels_last)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            logits = model(batch)
        loss = F.cross_entropy(logits.float(), target[at].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    trained: nn.Module = model.eval()
    return trained


def changed(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return a batch as floats centred at 0, with images flipped at random and the batch shifted by up to 4 pixels."""
    floats = images.float() / 64 - 2
    mirrored = torch.rand(len(floats), generator=generator) < 0.5
    floats[mirrored] = floats[mirrored].flip(3)
    across, down = torch.randint(0, 9, (2,), generator=generator).tolist()
    return F.pad(floats, (4, 4, 4, 4), mode="reflect")[:, :, down : down + SIDE, across : across + SIDE]


@torch.no_grad()
def predicted(model: nn.Module, images: Tensor, device: str = "cpu") -> NDArray[np.int64]:
    """Return the predicted class of each image, shape (N,)."""
    predicted = []
    for part in images.split(1000):
        batch = (part.float() / 64 - 2).to(device, memory_format=torch.channels_last)
        with torch.autocast(torch.device(device).type, torch.bfloat16):
            predicted.append(model(batch).argmax(1).cpu())
    return np.asarray(torch.cat(predicted).numpy(), np.int64)
