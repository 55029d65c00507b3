"""MoCo v2: separate an image from earlier images, embedded by a momentum encoder."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError
from trainers.methods.concentration import spread
from trainers.methods.method import Batch, Method, Step, Task, needed
from trainers.methods.momentum import MomentumEncoder, Queue, check_queue, fitted_queue
from trainers.methods.settings import MOST_WIDTH, Settings, setting

MOST_GROUPS = 64


def queue_loss(queries: Tensor, keys: Tensor, negatives: Tensor, *, temperature: float) -> Tensor:
    """Return the mean cross-entropy of identifying an image's key among the keys of a queue, in nats.

    -log e^{q.k / T} / (e^{q.k / T} + sum_j e^{q.n_j / T}).

    Args:
        queries: shape (N, M).
        keys: of the same images, same shape.
        negatives: keys of other images, shape (K, M).
        temperature: T, > 0.

    Raises:
        ValueError: if the shapes do not fit.

    Source: He et al. 2020 (MoCo), arXiv:1911.05722, eq. 1.
    """
    if queries.ndim != 2 or queries.shape != keys.shape or negatives.ndim != 2 or negatives.shape[1] != keys.shape[1]:
        got = f"{tuple(queries.shape)}, {tuple(keys.shape)} and {tuple(negatives.shape)}"
        raise ValueError(f"expected shapes (N, M), (N, M) and (K, M), got {got}")
    positive = (queries * keys).sum(1, keepdim=True)  # (N, 1)
    logits = torch.cat([positive, queries @ negatives.T], dim=1) / temperature
    return (logits.logsumexp(1) - logits[:, 0]).mean()


@dataclass(frozen=True)
class MoCoSettings(Settings):
    """The settings of MoCo v2; defaults are its own except the queue (65,536 for a million images)."""

    latent_dim: int = setting(
        128, "width M of the space in which images are compared, a sphere", least=2, most=MOST_WIDTH
    )
    hidden_dim: int = setting(2048, "width of the hidden layer of the projector", least=1, most=MOST_WIDTH)
    queue: int = setting(
        4096,
        "negatives from earlier batches; a multiple of the batch, at most the number of images",
        least=1,
        most=1 << 22,
    )
    momentum: float = setting(0.999, "share of its weights that the slow copy keeps in a step", least=0, below=1)
    temperature: float = setting(0.2, "by which cosines are divided", above=0, most=1e3)
    key_groups: int = setting(
        8, "shuffled parts of a batch of keys, each normalised separately", least=1, most=MOST_GROUPS
    )


def fitted_groups(groups: int, batch_size: int) -> int:
    """Return the largest number of groups of keys, at most ``groups``, with two images in each; at least one."""
    return max(min(groups, batch_size // 2), 1)


def check_groups(groups: int, batch_size: int) -> None:
    """Raise ``InputError`` unless every group of keys has two images, as batch normalisation needs."""
    if batch_size < 2 * groups:
        raise InputError(
            f"expected at least 2 images in each of {groups} groups of keys, got a batch of {batch_size}; use --set "
            f"key_groups={fitted_groups(groups, batch_size)}"
        )


class MoCo(Method[MoCoSettings]):
    """Momentum contrast with the projector, views and schedule of version 2; no uncertainty."""

    paper = "Chen et al. 2020, arXiv:2003.04297"
    Settings = MoCoSettings
    needs_pixels = True
    n_unread = 1
    keeps_batch = True
    defaults: ClassVar = {"lr": 0.03, "schedule": "cosine", "batch_size": 256}

    def __init__(self, settings: MoCoSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.projector = nn.Sequential(
            nn.Linear(task.width, settings.hidden_dim), nn.ReLU(), nn.Linear(settings.hidden_dim, settings.latent_dim)
        )
        self.slow = MomentumEncoder(
            [needed(task.backbone, "the trained backbone to copy"), self.projector],
            momentum=settings.momentum,
            groups=settings.key_groups,
            precision=task.precision,
        )
        self.queue = Queue(settings.queue, settings.latent_dim)

    @classmethod
    def fitted(cls, settings: MoCoSettings, batch_size: int, n: int) -> MoCoSettings:
        """Return settings whose queue and groups fit the batch size and the number of images."""
        queue = fitted_queue(settings.queue, batch_size, n)
        return replace(settings, queue=queue, key_groups=fitted_groups(settings.key_groups, batch_size))

    @classmethod
    def check_amount(cls, settings: MoCoSettings, batch_size: int, n: int) -> None:
        """Raise ``InputError`` unless the queue fits batch and data, and the groups fit the batch."""
        check_queue(settings.queue, batch_size, n)
        check_groups(settings.key_groups, batch_size)

    def before_step(self, batch: Batch) -> None:
        """Run the second view through the momentum encoder."""
        self.keys = F.normalize(self.slow(batch.pixels[0][1]).float(), dim=1)  # (N, M)

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the cross-entropy of identifying the first view's key among the queue's."""
        queries = F.normalize(self.projector(features[0]).float(), dim=1)
        loss = queue_loss(queries, self.keys, self.queue.keys, temperature=self.settings.temperature)
        with torch.no_grad():
            cosine = (queries * self.keys).sum(1).mean()
            return Step(loss, {"cosine": cosine, "spread": spread(queries)})

    def after_step(self, step: int) -> None:
        """Update the momentum encoder, and push the keys of this batch to the queue."""
        self.slow.follow()
        self.queue.push(self.keys)
