"""UMM: an image is a Gaussian, or a mixture, separated from other images by draws from it.

Three variants provide the other view of an image and the negatives. End-to-end: the network reads both views; negatives
are the other images of the batch. moco: a momentum encoder reads the other view; a queue stores sets of earlier
batches. bank: a memory bank stores the last predictions for every image.
"""

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.errors import InputError
from scoring.heads import MOST_BRANCHES, GaussiansHeadSpec
from trainers.methods.concentration import spread
from trainers.methods.gaussian_losses import draw, ranking_loss, set_loss, symmetric_kl
from trainers.methods.method import Batch, Method, Step, Task, needed
from trainers.methods.moco import MOST_GROUPS, check_groups, fitted_groups, queue_loss
from trainers.methods.momentum import MomentumEncoder, Queue, check_queue, fitted_queue
from trainers.methods.settings import MOST_WIDTH, Settings, setting

LEARNERS = ("end-to-end", "moco", "bank")
MOST_SAMPLES = 256
BANK_MOMENTUM = 0.5  # of bank entries: Wu et al. 2018, as in their code


@dataclass(frozen=True)
class UMMSettings(Settings):
    """The settings of UMM; defaults are its CIFAR-10 runs', where the paper gives a value.

    The paper's ``lambda_n`` of 10 has an unstated scale: with our loss it collapses all embeddings within a few hundred
    steps (docs/studies/training.md).
    """

    latent_dim: int = setting(128, "width M of the Gaussians", least=2, most=MOST_WIDTH)
    branches: int = setting(1, "number C of Gaussians per image", least=1, most=MOST_BRANCHES)
    samples: str = setting("5,3@0.5,1@0.75", "draws of each Gaussian; 3@0.5: 3 from half of the steps on")
    temperature: float = setting(0.1, "by which inner products are divided", above=0, most=1e3)
    lambda_s: float = setting(1.0, "weight of the cross-entropy of sets of draws; 0: off", least=0, most=1e6)
    lambda_n: float = setting(
        1.0, "weight of the KL divergence between two views, per dimension; 0: off", least=0, most=1e6
    )
    lambda_r: float = setting(10.0, "weight of 1 - mean average precision of all draws; 0: off", least=0, most=1e6)
    bins: int = setting(10, "bins of the histogram that average precision is computed from", least=1, most=1000)
    learner: str = setting("end-to-end", "source of negatives: the batch, a queue or a memory bank", choices=LEARNERS)
    queue: int = setting(
        4096, "number of negatives: length of the queue (moco), or draws from the bank", least=1, most=1 << 22
    )
    momentum: float = setting(0.999, "share of its weights that the slow copy keeps in a step (moco)", least=0, below=1)
    key_groups: int = setting(
        8, "shuffled parts of a batch that the slow copy normalises separately (moco)", least=1, most=MOST_GROUPS
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        schedule(self.samples)
        if not self.lambda_s + self.lambda_n + self.lambda_r:
            raise InputError(
                "lambda_s, lambda_n and lambda_r are all 0, and nothing would be learned; keep one of them"
            )


def schedule(text: str) -> list[tuple[float, int]]:
    """Return pairs (share of all steps, number of draws from there on), in order.

    Raises:
        InputError: for text in another format.

    >>> schedule("5,3@0.5")
    [(0.0, 5), (0.5, 3)]
    """
    steps = []
    for part in text.split(","):
        number, separator, share = part.strip().partition("@")
        try:
            steps.append((float(share) if separator else 0.0, int(number)))
        except ValueError:
            break
    else:
        in_order = all(before < after for (before, _), (after, _) in pairwise(steps))
        if steps[0][0] == 0 and steps[-1][0] < 1 and in_order and all(1 <= k <= MOST_SAMPLES for _, k in steps):
            return steps
    raise InputError(
        f"samples is a number of draws from 1 to {MOST_SAMPLES}, and others with the share of the steps, below 1, that "
        f"they begin at, such as 5,3@0.5,1@0.75; got {text!r}"
    )


class Bank(nn.Module):
    """Memory bank of each image's Gaussians as a running mean, n x (2, C, M); random directions at first.

    Source: Wu et al. 2018, arXiv:1805.01978, sec. 3.1.
    """

    held: Tensor

    def __init__(self, n: int, shape: tuple[int, int]) -> None:
        super().__init__()
        mean = F.normalize(torch.randn(n, *shape), dim=-1)
        self.register_buffer("held", torch.stack([mean, torch.full_like(mean, -math.log(shape[1]))], dim=1))

    def others(self, rows: Tensor, count: int) -> Tensor:
        """Return Gaussians of ``count`` random images other than these rows, shape (count, 2, C, M)."""
        order = torch.randperm(len(self.held), device=rows.device)
        return self.held[order[~torch.isin(order, rows)][:count]]

    @torch.no_grad()
    def follow(self, rows: Tensor, predicted: Tensor) -> None:
        """Move the entries of these rows half way to new predictions, shape (N, 2, C, M)."""
        mean, log_variance = torch.lerp(predicted, self.held[rows], BANK_MOMENTUM).unbind(1)
        self.held[rows] = torch.stack([F.normalize(mean, dim=-1), log_variance], dim=1)


class UMM(Method[UMMSettings]):
    """An image as a Gaussian, or a mixture, whose covariance is the uncertainty."""

    paper = "Zhou et al. 2022, arXiv:2107.08892"
    Settings = UMMSettings
    embeds = True
    defaults: ClassVar = {"lr": 0.06, "schedule": "cosine", "batch_size": 128}

    def __init__(self, settings: UMMSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.n_standard = 1 if settings.learner == "bank" else 2
        self.n_unread = 1 if settings.learner == "moco" else 0
        self.keeps_batch = settings.learner != "end-to-end"
        self.slow: MomentumEncoder | None = None
        if settings.learner == "moco":
            self.slow = MomentumEncoder(
                [needed(task.backbone, "the trained backbone to copy"), needed(task.head, "the trained head to copy")],
                momentum=settings.momentum,
                groups=settings.key_groups,
                precision=task.precision,
            )
        is_moco, is_bank = settings.learner == "moco", settings.learner == "bank"
        self.queue = Queue(settings.queue, settings.latent_dim) if is_moco else None
        self.bank = Bank(task.n, (settings.branches, settings.latent_dim)) if is_bank else None

    @classmethod
    def head(cls, settings: UMMSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return a head that predicts C Gaussians of M dimensions."""
        return GaussiansHeadSpec(settings.latent_dim, settings.branches)

    @classmethod
    def reads_pixels(cls, settings: UMMSettings) -> bool:
        """Return whether a momentum encoder reads the other view."""
        return settings.learner == "moco"

    @classmethod
    def fitted(cls, settings: UMMSettings, batch_size: int, n: int) -> UMMSettings:
        """Return settings whose queue and groups, or draws from the bank, fit the batch and n images."""
        if settings.learner == "moco":
            queue = fitted_queue(settings.queue, batch_size, n)
            return replace(settings, queue=queue, key_groups=fitted_groups(settings.key_groups, batch_size))
        if settings.learner == "bank":
            return replace(settings, queue=max(min(settings.queue, n - batch_size), 1))
        return settings

    @classmethod
    def check_amount(cls, settings: UMMSettings, batch_size: int, n: int) -> None:
        """Raise ``InputError`` unless the queue, or the draws from the bank, fit the batch and the data."""
        if settings.learner == "moco":
            check_queue(settings.queue, batch_size, n)
            check_groups(settings.key_groups, batch_size)
        if settings.learner == "bank" and settings.queue > n - batch_size:
            raise InputError(
                f"the bank holds {n - batch_size} images next to a batch of {batch_size}, and an image is to be "
                f"reported from {settings.queue} of them; use --set queue={n - batch_size}, or a smaller --batch-size"
                if n > batch_size
                else f"the bank holds nothing next to a batch of all {n} images; use a smaller --batch-size"
            )

    @property
    def samples(self) -> int:
        """Number of draws of each Gaussian in the next step."""
        return [k for start, k in schedule(self.settings.samples) if start <= self._batch.share][-1]

    def before_step(self, batch: Batch) -> None:
        """Store the rows, and run the other view through the momentum encoder."""
        self._batch = batch
        self._other = None if self.slow is None else self.slow(batch.pixels[0][1])

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the weighted sum of L_S, L_N (weight lambda_n) and L_R (lambda_r)."""
        n_read = self.n_standard - self.n_unread
        if len(features) != n_read or features.shape[1] < 2:
            raise InputError(
                f"the learner {self.settings.learner} takes {n_read} views of 2 images or more, got {len(features)} of "
                f"{features.shape[1]}; pass as many"
            )
        predicted = needed(head, "a head of Gaussians")(features.flatten(0, 1)).unflatten(
            0, features.shape[:2]
        )  # (V, N, 2, C, M)
        self._predicted = predicted[0].detach()
        return self.loss(predicted[0], predicted[1] if n_read == 2 else self.other())

    def other(self) -> Tensor:
        """Return the other view's Gaussians, shape (N, 2, C, M), from the momentum encoder or the bank."""
        if self.bank is not None:
            return self.bank.held[self._batch.rows]
        return needed(self._other, "the pixels of these features before the step")

    def loss(self, predicted: Tensor, other: Tensor) -> Step:
        """Return the loss of two views' Gaussians, each of shape (N, 2, C, M)."""
        settings = self.settings
        (mean, log_variance), (other_mean, other_log_variance) = predicted.unbind(1), other.unbind(1)
        sets, others = draw(mean, log_variance, self.samples), draw(other_mean, other_log_variance, self.samples)
        self._keys = others.detach().mean(1)
        terms: dict[str, Tensor] = {}
        if settings.lambda_s:
            terms["set"] = settings.lambda_s * self.set_loss(sets, others)
        if settings.lambda_n:
            divergence = symmetric_kl(mean, log_variance, other_mean, other_log_variance)  # (N, C)
            terms["kl"] = settings.lambda_n * divergence.mean() / settings.latent_dim
        if settings.lambda_r:
            terms["ranking"] = settings.lambda_r * ranking_loss(torch.cat([sets, others], dim=1), bins=settings.bins)
        with torch.no_grad():
            cosine = (mean * other_mean).sum(-1).mean()
            shown = {"cosine": cosine, "spread": spread(mean[:, 0]), "unc": log_variance.exp().sum(-1).mean()}
        return Step(torch.stack(list(terms.values())).sum(), {**{k: v.detach() for k, v in terms.items()}, **shown})

    def set_loss(self, sets: Tensor, others: Tensor) -> Tensor:
        """Return L_S against the batch, the queue or the bank; stored sets are represented by their means."""
        settings = self.settings
        if self.queue is not None:
            negatives = self.queue.keys
        elif self.bank is not None:
            bank = self.bank.others(self._batch.rows, settings.queue)
            negatives = draw(bank[:, 0], bank[:, 1], self.samples).mean(1)
        else:
            return set_loss(sets, others, temperature=settings.temperature)
        return queue_loss(sets.mean(1), others.mean(1), negatives, temperature=settings.temperature)

    def after_step(self, step: int) -> None:
        """Update the momentum encoder, the queue and the bank."""
        if self.slow is not None and self.queue is not None:
            self.slow.follow()
            self.queue.push(self._keys)
        if self.bank is not None:
            self.bank.follow(self._batch.rows, self._predicted)
