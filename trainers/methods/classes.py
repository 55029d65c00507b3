"""Classifiers: plain, and with uncertainty: HET-XL, SNGP, a shallow ensemble, and Monte Carlo dropout."""

from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from scoring.class_heads import (
    MOST_SAMPLES,
    WIDEST_INSIDE,
    ClassifierHeadSpec,
    DropoutHeadSpec,
    EnsembleHeadSpec,
    HeadSpec,
    HetXLHeadSpec,
    SNGPHeadSpec,
)
from trainers.methods.method import Batch, Method, Step, Task, needed
from trainers.methods.settings import Augmentation, Settings, setting


@dataclass(frozen=True)
class EnsembleSettings(Settings):
    """The settings of a shallow ensemble."""

    members: int = setting(10, "linear classifiers", least=2, most=64)


@dataclass(frozen=True)
class DropoutSettings(Settings):
    """The settings of Monte Carlo dropout."""

    dropout: float = setting(0.1, "share of the features that is dropped", above=0, below=1)
    samples: int = setting(10, "dropout masks for scoring", least=2, most=MOST_SAMPLES)


@dataclass(frozen=True)
class HetXLSettings(Settings):
    """The settings of HET-XL."""

    latent_dim: int = setting(512, "width M of the noisy features before the classifier", least=2, most=WIDEST_INSIDE)
    rank: int = setting(1, "rank of the covariance of the noise, in addition to its diagonal", least=1, most=256)
    samples: int = setting(20, "draws of the noise per image", least=2, most=MOST_SAMPLES)


@dataclass(frozen=True)
class SNGPSettings(Settings):
    """The settings of SNGP."""

    features: int = setting(1024, "random Fourier features F", least=2, most=WIDEST_INSIDE)
    length: float = setting(1.0, "length scale of the kernel, for features of unit length", above=0, most=1e3)
    ridge: float = setting(1.0, "precision of the prior", above=0, most=1e6)
    mean_field: float = setting(12.5, "factor of the variance that lowers logits", least=0, most=1e6)


S = TypeVar("S", bound=Settings)


class Classes(Method[S]):
    """Base of the four classifiers: cross-entropy of the mean of their predicted distributions."""

    needs_labels = True
    n_standard = 1
    defaults: ClassVar = {
        "optimizer": "adamw",
        "lr": 3e-3,
        "schedule": "cosine",
        "warmup": 0.05,
        "augmentation": Augmentation(scale=(0.25, 1.0), jitter=0.3, gray=0.1, blur=0.1),
    }

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the mean cross-entropy and the accuracy over all views."""
        classifier: Any = needed(head, "its head")  # one of scoring.class_modules
        log_p = classifier.log_probabilities(features.flatten(0, 1))
        target = needed(labels, "labels").repeat(features.shape[0])
        return Step(F.nll_loss(log_p, target), {"accuracy": (log_p.argmax(1) == target).float().mean()})


class Ensemble(Classes[EnsembleSettings]):
    """Several linear classifiers on the features, trained together; their disagreement is the uncertainty."""

    paper = "Kirchhof et al. 2023 (URL), arXiv:2307.03810"
    Settings = EnsembleSettings

    @classmethod
    def head(cls, settings: EnsembleSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the ensemble of linear classifiers."""
        return EnsembleHeadSpec(n_classes, settings.members)


class MCDropout(Classes[DropoutSettings]):
    """A linear classifier behind dropout, which stays on for scoring."""

    paper = "Gal & Ghahramani 2016, arXiv:1506.02142"
    Settings = DropoutSettings

    @classmethod
    def head(cls, settings: DropoutSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the classifier with its dropout."""
        return DropoutHeadSpec(n_classes, settings.dropout, settings.samples)


class HetXL(Classes[HetXLSettings]):
    """A linear classifier with Gaussian noise of image-dependent covariance on the logits (HET-XL)."""

    paper = "Collier et al. 2023, arXiv:2301.12860"
    Settings = HetXLSettings

    @classmethod
    def head(cls, settings: HetXLSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the classifier and the layers that predict the noise covariance."""
        return HetXLHeadSpec(n_classes, settings.latent_dim, settings.rank, settings.samples)


class SNGP(Classes[SNGPSettings]):
    """A Gaussian process by random features, uncertain far from the training images (SNGP).

    The paper's spectral normalisation of the backbone is omitted, since it would change pretrained weights; so features
    of a frozen backbone need not preserve distances.
    """

    paper = "Liu et al. 2020, arXiv:2006.10108"
    Settings = SNGPSettings
    defaults: ClassVar = Classes.defaults | {"lr": 0.1}  # random features are short: logits need large weights

    def __init__(self, settings: SNGPSettings, task: Task) -> None:
        super().__init__(settings, task)
        self._begins_pass = False

    @classmethod
    def head(cls, settings: SNGPSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the random-feature classifier and the precision matrix of its weights."""
        return SNGPHeadSpec(n_classes, settings.features, settings.length, settings.ridge, settings.mean_field)

    def before_step(self, batch: Batch) -> None:
        """Reset the precision matrix at the start of each pass over the images."""
        self._begins_pass = batch.begins_pass

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the mean cross-entropy; add the first view of each image to the precision matrix."""
        classifier: Any = head
        if self._begins_pass:
            classifier.forget()
        classifier.add(features[0].detach())
        return super().forward(features, head, labels)


class Supervised(Method[Settings]):
    """A linear classifier on the features, with label smoothing 0.1."""

    needs_labels = True
    n_standard = 1
    defaults: ClassVar = {
        "lr": 0.2,
        "schedule": "cosine",
        "warmup": 0.05,
        "weight_decay": 5e-4,
        "augmentation": Augmentation(scale=(0.25, 1.0), jitter=0.3, gray=0.1, blur=0.1),
    }

    @classmethod
    def head(cls, settings: Settings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return the classifier."""
        return ClassifierHeadSpec(n_classes)

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the mean cross-entropy and the accuracy over all views."""
        logits = needed(head, "its head")(features.flatten(0, 1))
        target = needed(labels, "labels").repeat(features.shape[0])
        loss = F.cross_entropy(logits, target, label_smoothing=0.1)
        return Step(loss, {"accuracy": (logits.argmax(1) == target).float().mean()})
