"""SimVAE, VAE, beta-VAE and CR-VAE: a posterior of each view, and a decoder that reconstructs it.

They share head, decoder, views and likelihood, and differ in the regulariser of the posterior: log p(z|y) of all views
of an image, the KL to N(0, I), or this KL and a KL between two views.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor, nn

from scoring.class_heads import HeadSpec
from scoring.heads import PosteriorHeadSpec
from scoring.posterior import PosteriorHead
from trainers.methods import elbo
from trainers.methods.method import Batch, Method, Step, Task
from trainers.methods.settings import MOST_WIDTH, Augmentation, Settings, setting

MOST_VIEWS = 64


def _views(default: int, least: int) -> int:
    return setting(default, "views of an image, J", least=least, most=MOST_VIEWS)


@dataclass(frozen=True)
class VariationalSettings(Settings):
    """The common settings of the four methods; defaults as in Bizeul et al. 2024, appendix A.7.4."""

    latent_dim: int = setting(64, "width M of z, whose mean is the embedding", least=1, most=MOST_WIDTH)
    channels: int = setting(
        256, "channels of the first map of the decoder, halved each time its side doubles", least=1, most=4096
    )
    likelihood: str = setting("gaussian", "likelihood of a decoded pixel, in [0, 1]", choices=("gaussian", "bernoulli"))
    likelihood_variance: float = setting(
        0.02, "variance of a decoded pixel, for a gaussian likelihood", above=0, most=100
    )
    views: int = _views(1, least=1)


@dataclass(frozen=True)
class SimVAESettings(VariationalSettings):
    """The settings of SimVAE."""

    views: int = _views(10, least=2)
    prior_variance: float = setting(
        0.15, "variance of z around the common centre of an image's views", above=0, most=100
    )
    centre_variance: float = setting(
        0.0, "variance of that centre around 0; 0: uniform, as in the paper", least=0, most=1e6
    )


@dataclass(frozen=True)
class BetaVAESettings(VariationalSettings):
    """The settings of the beta-VAE; the paper does not state its beta."""

    beta: float = setting(4.0, "weight of the divergence from the prior; 1: a VAE", above=0, most=1e6)


@dataclass(frozen=True)
class CRVAESettings(VariationalSettings):
    """The settings of the CR-VAE."""

    views: int = _views(2, least=2)
    consistency: float = setting(
        0.1, "weight of the divergence of a view's posterior from the image's", least=0, most=1e6
    )


@dataclass(frozen=True)
class Encoded:
    """An encoded batch for the losses.

    Attributes:
        mean: of q(z|x), shape (V, N, M).
        log_variance: of q(z|x), same shape.
        likelihood: log p(x|z) at one draw of z, shape (V, N), nats.
    """

    mean: Tensor
    log_variance: Tensor
    likelihood: Tensor


V = TypeVar("V", bound=VariationalSettings)


class Variational(Method[V]):
    """Base of the four methods: posterior, draw, decoder and likelihood; subclasses define the bound."""

    needs_pixels = True
    embeds = True
    defaults: ClassVar = {
        "optimizer": "adamw",
        "lr": 8e-5,
        "weight_decay": 0.0,
        "batch_size": 128,
        "epochs": 400,
        "augmentation": Augmentation(scale=(0.6, 1.0), gray=0.0, blur=0.0),
    }
    mean: Tensor
    std: Tensor

    def __init__(self, settings: V, task: Task) -> None:
        super().__init__(settings, task)
        self.n_standard = settings.views
        self.register_buffer("mean", torch.tensor(task.mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(task.std).view(3, 1, 1), persistent=False)
        self._seen: Tensor | None = None

    @classmethod
    def head(cls, settings: V, size: int, n_classes: int = 2) -> HeadSpec:
        """Return a posterior head with a decoder to images of this size."""
        return PosteriorHeadSpec(settings.latent_dim, size, settings.channels)

    def before_step(self, batch: Batch) -> None:
        """Store the views of the next features, in [0, 1], as targets of the decoder."""
        self._seen = batch.pixels[0] * self.std + self.mean

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return minus the bound, in nats per view and value of an image.

        The mean over images, views and 3 S^2 values, which the paper sums, lets one learning rate suit every batch
        size, number of views and image size; the paper's optimiser, Adam, is invariant to the scale.
        """
        if not isinstance(head, PosteriorHead):
            raise ValueError(f"{type(self).__name__} needs a posterior head")
        if self._seen is None or self._seen.shape[:2] != features.shape[:2]:
            raise ValueError("the pixels of these features were not given before the step")
        seen = self._seen
        mean, log_variance = (part.unflatten(0, features.shape[:2]) for part in head.posterior(features.flatten(0, 1)))
        z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
        decoded = head.decoder(z.flatten(0, 1)).view_as(seen)
        if self.settings.likelihood == "bernoulli":
            likelihood = elbo.log_bernoulli(seen.clamp(0, 1), decoded)
        else:
            likelihood = elbo.log_likelihood(seen, decoded, self.settings.likelihood_variance)
        bound, measures = self.bound(Encoded(mean, log_variance, likelihood))
        shown = {
            "error": (seen - decoded).detach().square().mean(),
            "log_variance": log_variance.detach().mean(),
            "active": elbo.active(mean[0].detach()),
            **{name: value.detach().mean() for name, value in measures.items()},
        }
        return Step(-bound.mean() / (len(seen) * seen[0, 0].numel()), shown)

    def bound(self, seen: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the evidence lower bound of each image over all views, shape (N,), nats, and its terms."""
        raise TypeError(f"{type(self).__name__} has no bound")


class SimVAE(Variational[SimVAESettings]):
    """Reconstructs views of an image from posteriors around a common centre, which is integrated out."""

    paper = "Bizeul et al. 2024, arXiv:2402.01399"
    Settings = SimVAESettings

    def bound(self, seen: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        """Return sum_j [log p(x^j|z^j) + H(q(z^j|x^j))] + E log p(z^1..z^J|y), equation 4."""
        settings = self.settings
        prior = elbo.log_prior_of_set(seen.mean, seen.log_variance, settings.prior_variance, settings.centre_variance)
        return (seen.likelihood + elbo.entropy(seen.log_variance)).sum(0) + prior, {"prior": prior}


class BetaVAE(Variational[BetaVAESettings]):
    """A VAE whose KL to the prior has weight beta."""

    paper = "Higgins et al. 2017 (ICLR)"
    Settings = BetaVAESettings

    def bound(self, seen: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        """Return sum_j [log p(x^j|z^j) - beta KL(q(z^j|x^j) || N(0, I))]."""
        kl = elbo.kl_to_standard(seen.mean, seen.log_variance)
        return (seen.likelihood - self.settings.beta * kl).sum(0), {"kl": kl}


class VAE(Variational[VariationalSettings]):
    """The baseline of the family: each view separately, with a standard normal prior."""

    paper = "Kingma & Welling 2014, arXiv:1312.6114"
    Settings = VariationalSettings

    def bound(self, seen: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        """Return sum_j [log p(x^j|z^j) - KL(q(z^j|x^j) || N(0, I))]."""
        kl = elbo.kl_to_standard(seen.mean, seen.log_variance)
        return (seen.likelihood - kl).sum(0), {"kl": kl}


class CRVAE(Variational[CRVAESettings]):
    """A VAE of images and their views, whose posteriors are pulled together by a KL term."""

    paper = "Sinha & Dieng 2021, arXiv:2105.14859"
    Settings = CRVAESettings
    n_plain = 1

    def bound(self, seen: Encoded) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the VAE's bound of the image and of its views, minus lambda sum_j KL(q(z|x^j) || q(z|x)).

        The first view is the image. The mean over the other views estimates the expectation over augmentations, so the
        image and its views have equal weight.
        """
        mean, log_variance = seen.mean, seen.log_variance
        kl = elbo.kl_to_standard(mean, log_variance)
        divergence = elbo.kl(mean[1:], log_variance[1:], mean[0], log_variance[0])
        each = seen.likelihood - kl
        changed = each[1:].mean(0) - self.settings.consistency * divergence.mean(0)
        return 0.5 * len(mean) * (each[0] + changed), {"kl": kl, "apart": divergence}
