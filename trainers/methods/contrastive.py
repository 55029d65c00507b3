"""MCInfoNCE, InfoNCE, HIB and ELK as methods: they share everything but the loss.

Each image has mu, the direction of a projection of its features, and kappa, from a head or from the length of that
projection. Positives are views of one image, images of one class, or images whose votes agree.
"""

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.errors import InputError
from scoring.heads import HeadSpec, KappaHeadSpec, NormHead, NormHeadSpec
from trainers.config import Contrastive as ContrastiveRecipe
from trainers.config import TrainConfig
from trainers.methods import contrast, contrastive_losses
from trainers.methods.contrast import Contrast
from trainers.methods.method import Batch, Method, Step
from trainers.methods.siamese import projector

HEAD_HIDDEN = 512


class Contrastive(Method):
    """What the four methods share: mu, kappa, the pairs and the phases. The loss is left to each."""

    multi_crop = False
    defaults: ClassVar = {
        "optimizer": "adamw",
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 0.05,
        "latent_dim": 16,
        "hidden_dim": 512,
    }

    def __init__(self, width: int, config: TrainConfig, n_classes: int) -> None:
        super().__init__(width, config, n_classes)
        self.settings = config.contrastive
        if self.reads_labels(config) and n_classes < 2:
            raise InputError(
                f"positives of one class need labels of at least 2 classes, got {n_classes}; use --positives views"
            )
        self.share = 0.0  # of all steps, done
        # a norm head is the projection itself
        self.projector = None if isinstance(self.head(config), NormHeadSpec) else projector(width, config)

    @classmethod
    def head(cls, config: TrainConfig) -> HeadSpec | None:
        """Return a kappa head, or a projection whose length is kappa; each begins near ``kappa_init``."""
        start = config.contrastive.kappa_init
        if config.contrastive.kappa == "norm":
            # features of mean square 1 give a fresh linear map outputs of mean square 1/3
            return NormHeadSpec(config.latent_dim, scale=start / math.sqrt(config.latent_dim / 3))
        return KappaHeadSpec(HEAD_HIDDEN, scale=start / math.log(2))  # softplus(0) = log 2

    @classmethod
    def reads_labels(cls, config: TrainConfig) -> bool:
        """Return whether positives come from labels."""
        return config.contrastive.positives == "labels"

    def before_step(self, batch: Batch) -> None:
        """Note how far the run is, which decides the phase."""
        self.share = batch.share

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss of a batch; ``labels`` may also be votes, shape (N, C), float."""
        n_views, n = features.shape[:2]
        mu, kappa = self.embed(features.flatten(0, 1), head)
        pairs = self.pairs(n_views, n, labels, features.device)
        if pairs is None:  # a batch of one class, by chance: nothing to learn from
            return Step(0.0 * features.sum() + 0.0 * mu.sum(), {})
        with torch.no_grad():
            positive = (mu[pairs.anchors] * mu[pairs.positives]).sum(1).mean()
            spread = mu.std(0).mean() * mu.shape[1] ** 0.5  # 1 where mu fills the sphere, 0 where it is one point
        measures = {"cosine": positive, "spread": spread}
        if kappa is not None:
            measures["kappa"] = kappa.detach().mean()
        return Step(self.loss(*self.in_phase(mu, kappa), pairs), measures)

    def embed(self, features: Tensor, head: nn.Module | None) -> tuple[Tensor, Tensor | None]:
        """Return mu, unit vectors (B, M), and kappa (B,) or None, of features (B, D)."""
        if isinstance(head, NormHead):
            projected = head.project(features)
            return F.normalize(projected, dim=1), projected.norm(dim=1)
        if self.projector is None:
            raise ValueError("a method whose kappa is a norm needs its NormHead")
        mu = F.normalize(self.projector(features).float(), dim=1)
        return mu, None if head is None else head(features)

    def in_phase(self, mu: Tensor, kappa: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return both, without the gradient of the one that is not learning now.

        With kappa from the norm, the second phase still moves the projection that gives mu, through its length alone;
        and with a backbone that is not frozen, it moves that for kappa.
        """
        if kappa is None or not self.settings.phases:
            return mu, kappa
        return (mu, kappa.detach()) if self.share < self.settings.phases else (mu.detach(), kappa)

    def pairs(self, n_views: int, n: int, labels: Tensor | None, device: torch.device) -> Contrast | None:
        """Return who is compared with whom in a batch; None where labels make no pair.

        Raises:
            InputError: if there is a single image, labels are missing, or there are fewer negatives than asked for.
        """
        negatives = self.settings.negatives or None
        if self.settings.positives == "views":
            if n < 2 or n_views < 2:
                raise InputError(f"expected at least 2 views of 2 images in a batch, got {n_views} of {n}")
            most = n_views * (n - 1)
            if negatives is not None and negatives > most:
                raise InputError(f"expected at most {most} negatives with {n} images in a batch, got {negatives}")
            return contrast.of_views(n_views, n, negatives=negatives, device=device)
        if labels is None:
            raise InputError("positives of one class need labels, got data without; use --positives views")
        if labels.ndim == 2:
            return contrast.of_votes(labels.repeat(n_views, 1))
        return contrast.of_labels(labels.repeat(n_views), negatives=negatives)

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return the loss of this method."""
        raise TypeError(f"{type(self).__name__} has no loss")


def _present(kappa: Tensor | None) -> Tensor:
    if kappa is None:
        raise ValueError("this loss needs a head that gives kappa")
    return kappa


class MCInfoNCE(Contrastive):
    """InfoNCE over draws from each image's distribution: kappa says how sure it is of mu."""

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return equation 7, or what the recipe makes of it."""
        recipe = self.settings
        return contrastive_losses.mcinfonce(
            *(mu, _present(kappa), pairs),
            kappa_pos=recipe.kappa_pos,
            samples=recipe.samples,
            denominator=recipe.denominator,
            cross=recipe.cross,
        )


class InfoNCE(Contrastive):
    """The baseline without uncertainty."""

    @classmethod
    def head(cls, config: TrainConfig) -> HeadSpec | None:
        """Return None: there is no kappa."""
        return None

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return InfoNCE of mu."""
        recipe = self.settings
        return contrastive_losses.infonce(mu, pairs, kappa_pos=recipe.kappa_pos, denominator=recipe.denominator)


class HIB(Contrastive):
    """Hedged instance embeddings: the chance that two images match, averaged over draws."""

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return equation 54."""
        recipe = self.settings
        return contrastive_losses.hib(
            mu, _present(kappa), pairs, a=recipe.hib_a, b=recipe.hib_b, samples=recipe.samples
        )


class ELK(Contrastive):
    """InfoNCE with the expected likelihood of two distributions as the similarity; no draws."""

    # the kernel is a log-likelihood already: at 16 times it, kappa falls to about 1 (docs/cifar10h.md)
    defaults: ClassVar = {**Contrastive.defaults, "contrastive": ContrastiveRecipe(kappa_pos=1.0)}

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return equation 55."""
        recipe = self.settings
        return contrastive_losses.elk(
            mu, _present(kappa), pairs, kappa_pos=recipe.kappa_pos, denominator=recipe.denominator
        )
