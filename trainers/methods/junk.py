"""Junk: a head that separates images from corrupted copies."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.errors import InputError
from scoring.heads import JunkHeadSpec
from trainers.methods.method import Method, Step, Task, needed
from trainers.methods.settings import Augmentation, Settings, setting


def damage_cross_entropy(intact: Tensor, damaged: Tensor) -> Tensor:
    """Return the binary cross-entropy of a head that outputs u = -ln p, where p is the probability of an intact image.

    Args:
        intact: u of intact images, shape (N,), >= 0, in nats; their loss is u.
        damaged: u of corrupted views, shape (M,), > 0; their loss is -ln(1 - exp(-u)).

    Returns:
        Scalar: the mean of the two means, so that the number of views per image has no effect.

    >>> round(damage_cross_entropy(torch.tensor([0.0]), torch.tensor([0.6931472])).item(), 4)  # ln 2 / 2
    0.3466
    """
    return (intact.mean() - torch.log(-torch.expm1(-damaged)).mean()) / 2


def pair_loss(intact: Tensor, damaged: Tensor, *, gap: float) -> Tensor:
    """Return the hinge loss of corrupted views below ``gap`` above their own image: mean max(0, gap - (u_v - u)).

    Args:
        intact: u of N images, shape (N,).
        damaged: u of V views of each, shape (V, N).
        gap: margin, in nats.

    Raises:
        ValueError: if the shapes do not fit.
    """
    if intact.ndim != 1 or damaged.ndim != 2 or damaged.shape[1:] != intact.shape:
        raise ValueError(f"expected shapes (N,) and (V, N), got {tuple(intact.shape)} and {tuple(damaged.shape)}")
    return (gap - (damaged - intact)).clamp(min=0).mean()


@dataclass(frozen=True)
class JunkSettings(Settings):
    """The settings of the junk head."""

    margin: float = setting(1.0, "margin between a damaged view and its image, in nats", above=0)
    within: float = setting(0.5, "weight of pairs of an image and its view; the rest is cross-entropy", least=0, most=1)
    noise: float = setting(
        1.0,
        "standard deviation of Gaussian noise on the features in training, as a share of their spread",
        least=0,
        most=100,
    )
    n_damaged: int = setting(1, "damaged views per image", least=1, most=16)


class Junk(Method[JunkSettings]):
    """A head trained without labels to separate images from corrupted views of the same and other images."""

    Settings = JunkSettings
    n_plain = 1
    defaults: ClassVar = {
        "optimizer": "adamw",
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 0.05,
        "augmentation": Augmentation(scale=(0.9, 1.0), jitter=0.0, gray=0.0, blur=0.0, damage=1.0),
    }

    def __init__(self, settings: JunkSettings, task: Task) -> None:
        super().__init__(settings, task)
        self.n_standard = 1 + settings.n_damaged

    @classmethod
    def head(cls, settings: JunkSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return an MLP with two hidden layers of width 256."""
        return JunkHeadSpec(hidden=256)

    @classmethod
    def check_views(cls, augmentation: Augmentation) -> None:
        """Raise ``InputError`` unless every view is corrupted: an intact view would be trained as junk."""
        if augmentation.damage < 1:
            raise InputError(
                "junk learns to separate images from damaged views, so every view must be damaged: expected --set "
                f"damage=1, got {augmentation.damage:g}; set it, or build a cache with curate cache ... --set damage=1 "
                "--set scale=0.9 --set jitter=0"
            )

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the weighted sum of the cross-entropy of intact against corrupted views, and of the pair loss.

        The pair loss compares an image with its own views, so that properties of small or blurred originals, which
        their views share, cannot be used.
        """
        n_views, n = features.shape[:2]
        logits = needed(head, "a head")(self._noisy(features.detach().flatten(0, 1))).view(n_views, n)
        intact, damaged = logits[0], logits[1:]
        within = self.settings.within
        among = damage_cross_entropy(intact, damaged.flatten())
        loss = within * pair_loss(intact, damaged, gap=self.settings.margin) + (1 - within) * among
        above = (damaged > intact).float().mean().detach()
        return Step(loss, {"whole": intact.detach().mean(), "damaged": damaged.detach().mean(), "ordered": above})

    def _noisy(self, features: Tensor) -> Tensor:
        """Return features (B, D) with Gaussian noise, against overfitting on a few thousand images."""
        if not self.settings.noise:
            return features
        spread = features.std(0).square().mean().sqrt()
        return features + self.settings.noise * spread * torch.randn_like(features)
