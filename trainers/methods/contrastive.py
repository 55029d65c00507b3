"""MCInfoNCE, InfoNCE, SimCLR, HIB and ELK as methods, which differ only in the loss.

Mu is the direction of a projection of the features; kappa comes from a head or is the norm of that projection.
Positives are views of one image, images of one class, or images whose votes agree.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.errors import InputError
from scoring.heads import NormHeadSpec
from trainers.methods import contrast, contrastive_losses
from trainers.methods.concentration import MOST_KAPPA, SOURCES, kappa_head, mu_and_kappa, spread
from trainers.methods.contrast import Contrast
from trainers.methods.method import Batch, Method, Step, Task, needed
from trainers.methods.settings import MOST_WIDTH, Settings, setting
from trainers.methods.siamese import projector

KAPPA = "a head that gives kappa"
DENOMINATORS = ("eq7", "authors", "negatives")


def _latent_dim(default: int) -> int:
    meaning = "width M of the space in which images are compared, a sphere"
    return setting(default, meaning, least=2, most=MOST_WIDTH)


def _kappa_pos(default: float) -> float:
    meaning = "concentration of positives around one another: 1 / temperature"
    return setting(default, meaning, above=0, most=MOST_KAPPA)


def _samples() -> int:
    return setting(16, "Monte Carlo draws of an image", least=1, most=4096)


def _denominator() -> str:
    meaning = "of the ratio: equation 7, the authors' code, or the negatives alone (equation 5)"
    return setting("eq7", meaning, choices=DENOMINATORS)


@dataclass(frozen=True)
class ContrastiveSettings(Settings):
    """The common settings of the five methods; defaults as in Kirchhof et al. 2023, where given."""

    latent_dim: int = _latent_dim(16)
    hidden_dim: int = setting(512, "width of the hidden layer of the projector", least=1, most=MOST_WIDTH)
    positives: str = setting("views", "views of one image, or images with equal labels", choices=("views", "labels"))
    negatives: int = setting(0, "negatives per image, drawn in each step; 0: the whole batch", least=0)


@dataclass(frozen=True)
class KappaSettings(ContrastiveSettings):
    """The common settings of the three methods with kappa."""

    kappa: str = setting(
        "head", "source of kappa: a head on the features, or the norm of the projection", choices=SOURCES
    )
    kappa_init: float = setting(16.0, "approximate initial kappa", above=0, most=MOST_KAPPA)
    phases: float = setting(
        0.0, "share of the steps that train mu alone, before kappa alone; 0: jointly", least=0, below=1
    )


@dataclass(frozen=True)
class MCInfoNCESettings(KappaSettings):
    """The settings of MCInfoNCE."""

    samples: int = _samples()
    kappa_pos: float = _kappa_pos(16.0)
    denominator: str = _denominator()
    cross: bool = setting(True, "use all pairs of draws, instead of pairs of equal index as in equation 7")


@dataclass(frozen=True)
class InfoNCESettings(ContrastiveSettings):
    """The settings of InfoNCE."""

    kappa_pos: float = _kappa_pos(16.0)
    denominator: str = _denominator()
    norm: bool = setting(False, "use a linear projection, whose length is kappa")


@dataclass(frozen=True)
class SimCLRSettings(ContrastiveSettings):
    """The settings of SimCLR; the temperature is the paper's best for CIFAR-10."""

    latent_dim: int = _latent_dim(128)
    temperature: float = setting(0.5, "by which cosines are divided", above=0, most=1e3)


@dataclass(frozen=True)
class HIBSettings(KappaSettings):
    """The settings of HIB."""

    samples: int = _samples()
    hib_a: float = setting(2.0, "slope of the probability of a match", above=0, most=MOST_KAPPA)
    hib_b: float = setting(1.0, "offset of the probability of a match")


@dataclass(frozen=True)
class ELKSettings(KappaSettings):
    """The settings of ELK; its kernel is already a log-likelihood: scaled by 16, kappa falls to about 1."""

    kappa_pos: float = _kappa_pos(1.0)  # docs/studies/cifar10h.md
    denominator: str = _denominator()


C = TypeVar("C", bound=ContrastiveSettings)
K = TypeVar("K", bound=KappaSettings)


class Contrastive(Method[C]):
    """Base of the five methods: computes mu and the pairs; subclasses define the loss."""

    defaults: ClassVar = {"optimizer": "adamw", "lr": 1e-3, "schedule": "cosine", "warmup": 0.05}

    def __init__(self, settings: C, task: Task) -> None:
        super().__init__(settings, task)
        if self.reads_labels(settings) and task.n_classes < 2:
            raise InputError(
                f"positives of one class need labels of at least 2 classes, got {task.n_classes}; use --set "
                "positives=views"
            )
        is_norm = isinstance(self.head(settings, task.size), NormHeadSpec)  # the head is the projection
        self.projector = None if is_norm else projector(task.width, settings.hidden_dim, settings.latent_dim)

    @classmethod
    def reads_labels(cls, settings: C) -> bool:
        """Return whether positives come from labels."""
        return settings.positives == "labels"

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss of a batch; ``labels`` may also be votes, shape (N, C), float."""
        n_views, n = features.shape[:2]
        mu, kappa = mu_and_kappa(features.flatten(0, 1), head, self.projector)
        pairs = self.pairs(n_views, n, labels, features.device)
        if pairs is None:  # a batch of a single class has no pairs
            return Step(0.0 * features.sum() + 0.0 * mu.sum(), {})
        with torch.no_grad():
            positive = (mu[pairs.anchors] * mu[pairs.positives]).sum(1).mean()
        measures = {"cosine": positive, "spread": spread(mu.detach())}
        if kappa is not None:
            measures["kappa"] = kappa.detach().mean()
        return Step(self.loss(*self.in_phase(mu, kappa), pairs), measures)

    def in_phase(self, mu: Tensor, kappa: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return mu and kappa, both with gradients."""
        return mu, kappa

    def pairs(self, n_views: int, n: int, labels: Tensor | None, device: torch.device) -> Contrast | None:
        """Return the pairs of a batch; None if the labels form no pair.

        Raises:
            InputError: if there is only one image, labels are missing, or there are fewer negatives than requested.
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
            raise InputError("positives of one class need labels, got data without; use --set positives=views")
        if labels.ndim == 2:
            return contrast.of_votes(labels.repeat(n_views, 1))
        return contrast.of_labels(labels.repeat(n_views), negatives=negatives)

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return the loss of this method, a scalar."""
        raise TypeError(f"{type(self).__name__} has no loss")


class WithKappa(Contrastive[K]):
    """Base of the three methods with kappa: source of kappa and training phases."""

    share = 0.0  # share of all steps done

    @classmethod
    def head(cls, settings: K, size: int, n_classes: int = 2) -> HeadSpec | None:
        """Return a kappa head, or a projection whose norm is kappa; both start near ``kappa_init``."""
        return kappa_head(settings.kappa, settings.kappa_init, settings.latent_dim)

    def before_step(self, batch: Batch) -> None:
        """Store the progress of the run, which determines the phase."""
        self.share = batch.share

    def in_phase(self, mu: Tensor, kappa: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """Return mu and kappa; the one that is not trained in this phase is detached.

        If kappa is the norm of the projection, the kappa phase still changes the projection through its norm; a
        backbone that is not frozen changes in both phases.
        """
        if kappa is None or not self.settings.phases:
            return mu, kappa
        return (mu, kappa.detach()) if self.share < self.settings.phases else (mu.detach(), kappa)


class MCInfoNCE(WithKappa[MCInfoNCESettings]):
    """InfoNCE over draws from each image's vMF distribution; kappa is the certainty."""

    paper = "Kirchhof et al. 2023, arXiv:2302.02865"
    Settings = MCInfoNCESettings

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return the loss of equation 7, or its variant by the settings."""
        settings = self.settings
        return contrastive_losses.mcinfonce(
            *(mu, needed(kappa, KAPPA), pairs),
            kappa_pos=settings.kappa_pos,
            samples=settings.samples,
            denominator=settings.denominator,
            cross=settings.cross,
        )


class InfoNCE(Contrastive[InfoNCESettings]):
    """The baseline without uncertainty."""

    paper = "van den Oord et al. 2018, arXiv:1807.03748"
    Settings = InfoNCESettings

    @classmethod
    def head(cls, settings: InfoNCESettings, size: int, n_classes: int = 2) -> HeadSpec | None:
        """Return the projection if its norm is used as kappa; the loss does not depend on the norm."""
        return kappa_head("norm", 1.0, settings.latent_dim) if settings.norm else None

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return InfoNCE of mu."""
        settings = self.settings
        return contrastive_losses.infonce(mu, pairs, kappa_pos=settings.kappa_pos, denominator=settings.denominator)


class SimCLR(Contrastive[SimCLRSettings]):
    """InfoNCE as NT-Xent: negatives are all views of other images in the batch; similarity is cosine / temperature."""

    paper = "Chen et al. 2020, arXiv:2002.05709"
    Settings = SimCLRSettings

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return NT-Xent, eq. 1 of the paper: InfoNCE without the division by the number of negatives."""
        ratio = contrastive_losses.infonce(mu, pairs, kappa_pos=1 / self.settings.temperature)
        return ratio + pairs.weights.to(ratio.dtype).sum(1).log().mean()


class HIB(WithKappa[HIBSettings]):
    """Hedged instance embeddings: the match probability of two images, averaged over draws."""

    paper = "Oh et al. 2019, arXiv:1810.00319"
    Settings = HIBSettings

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return the loss of equation 54."""
        settings = self.settings
        return contrastive_losses.hib(
            mu, needed(kappa, KAPPA), pairs, a=settings.hib_a, b=settings.hib_b, samples=settings.samples
        )


class ELK(WithKappa[ELKSettings]):
    """InfoNCE with the expected likelihood kernel of two distributions as similarity, in closed form."""

    paper = "Kirchhof et al. 2022, arXiv:2207.03784"
    Settings = ELKSettings

    def loss(self, mu: Tensor, kappa: Tensor | None, pairs: Contrast) -> Tensor:
        """Return the loss of equation 55."""
        settings = self.settings
        return contrastive_losses.elk(
            mu, needed(kappa, KAPPA), pairs, kappa_pos=settings.kappa_pos, denominator=settings.denominator
        )
