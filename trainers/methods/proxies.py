"""Deep metric learning with proxies: ProxyNCA++, ProxyAnchor, and classes as distributions (nivMF).

Each class has a learned proxy: a direction and, for ``nivmf``, concentrations, each with its own learning rate.
Direction and norm of one projection of the features are mu and kappa. The norm is a certainty in all methods, but only
the loss of ``nivmf`` uses it.
"""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from scoring.class_heads import HeadSpec
from scoring.distributions import distances, vmf
from scoring.distributions.distances import Directions
from scoring.heads import NormHeadSpec
from trainers.methods.concentration import MOST_KAPPA, SOURCES, kappa_head, mu_and_kappa, spread
from trainers.methods.method import Method, Step, Task, needed
from trainers.methods.settings import MOST_WIDTH, Augmentation, Settings, setting
from trainers.methods.siamese import projector

ISOTROPIC = {
    "el-vmf": distances.expected_likelihood,
    "b-vmf": distances.bhattacharyya,
    "kl-vmf": distances.kullback_leibler,
    "l2": distances.squared_euclidean,
    "cosine": distances.cosine,
}
DISTANCES = ("el-nivmf", "nivmf", *ISOTROPIC)
BLOCK = 2**23  # densities per block, 64 MB
MOST_SHARE = 1e6


def proxy_nca(distances: Tensor, labels: Tensor, temperature: Tensor | float) -> Tensor:
    """Return -log of the softmax weight e^(-d/t) of the true class, averaged over images, in nats.

    Args:
        distances: of images to classes, shape (B, C).
        labels: shape (B,), int64, in [0, C).
        temperature: t, > 0.

    Source: Teh, DeVries & Taylor 2020 (ProxyNCA++), arXiv:2004.01113, eq. 6; Kirchhof et al. 2022, arXiv:2207.03784,
    eq. 2, which as printed lacks the sign of the loss.
    """
    return F.cross_entropy(-distances / temperature, labels)


def proxy_anchor(cosines: Tensor, labels: Tensor, *, alpha: float = 32.0, delta: float = 0.1) -> Tensor:
    """Return the Proxy-Anchor loss: proxies pull the hardest images of their class and push the hardest others.

    Mean over classes in the batch of log(1 + sum over their images of e^(-alpha (s - delta))), plus mean over all
    classes of log(1 + sum over images of other classes of e^(alpha (s + delta))).

    Args:
        cosines: s, of images and proxies, shape (B, C).
        labels: shape (B,), int64, in [0, C).
        alpha: scale, > 0.
        delta: margin.

    Source: Kim et al. 2020, arXiv:2003.13911, eq. 4.
    """
    of_label = F.one_hot(labels, cosines.shape[1]).bool()
    pull = (-alpha * (cosines - delta)).masked_fill(~of_label, -float("inf"))
    push = (alpha * (cosines + delta)).masked_fill(of_label, -float("inf"))
    present = of_label.any(0)
    pulls = _log1p_sum(pull[:, present])
    return pulls.mean() + _log1p_sum(push).mean()


def _log1p_sum(exponents: Tensor) -> Tensor:
    """Return log(1 + sum_i e^x_i) for every column, shape (C,)."""
    return F.pad(exponents, (0, 0, 0, 1)).logsumexp(0)


def _share(default: float, what: str) -> float:
    return setting(default, f"rate of {what} as a multiple of lr", least=0, most=MOST_SHARE)


@dataclass(frozen=True)
class ProxySettings(Settings):
    """The common settings of the three methods."""

    latent_dim: int = setting(512, "width M of the embedding, a sphere", least=2, most=MOST_WIDTH)
    proxy_lr: float = _share(10.0, "the proxies' directions")


@dataclass(frozen=True)
class ProxyNCASettings(ProxySettings):
    """The settings of ProxyNCA++; the temperature 1/9 applies to squared distances, 2 - 2 cos."""

    temperature: float = setting(1 / 18, "by which cosines are divided", above=0, most=1e3)


@dataclass(frozen=True)
class ProxyAnchorSettings(ProxySettings):
    """The settings of ProxyAnchor."""

    alpha: float = setting(32.0, "scale of cosines", above=0, most=1e3)
    delta: float = setting(0.1, "margin of cosines", least=0, most=1)


@dataclass(frozen=True)
class NivMFSettings(ProxySettings):
    """The settings of nivMF. In 512 dimensions, kappa 1,000 is a mean cosine of 0.78, kappa 50 of 0.1."""

    distance: str = setting("el-nivmf", "distance between image and class", choices=DISTANCES)
    density: str = setting("exact", "density of a class: exact, or as in the paper", choices=("exact", "published"))
    samples: int = setting(5, "Monte Carlo draws of an image (el-nivmf)", least=1, most=4096)
    temperature: float = setting(3.0, "initial divisor of distances", above=0, most=1e6)
    guidance: float = setting(0.0, "weight of an additional ProxyAnchor loss", least=0, most=1e6)
    kappa: str = setting(
        "norm", "source of kappa: the norm of the projection, or a head on the features", choices=SOURCES
    )
    kappa_init: float = setting(1000.0, "approximate initial kappa of an image", above=0, most=MOST_KAPPA)
    proxy_kappa: float = setting(50.0, "initial kappas of a class", above=0, most=MOST_KAPPA)
    kappa_lr: float = _share(10.0, "the logarithms of the classes' kappas")
    temperature_lr: float = _share(1.0, "the logarithm of the temperature")
    hidden_dim: int = setting(512, "width of the hidden layer of the projector (kappa=head)", least=1, most=MOST_WIDTH)


P = TypeVar("P", bound=ProxySettings)


class Proxies(Method[P]):
    """Base of the three methods: proxies, and mu and kappa of images; subclasses define the loss."""

    needs_labels = True
    embeds = True
    n_standard = 1
    defaults: ClassVar = {
        "optimizer": "adamw",
        "lr": 1e-3,
        "schedule": "cosine",
        "warmup": 0.05,
        "batch_size": 128,
        "augmentation": Augmentation(scale=(0.25, 1.0), jitter=0.0, gray=0.0, blur=0.0),
    }

    def __init__(self, settings: P, task: Task) -> None:
        super().__init__(settings, task)
        self.projector: nn.Module | None = None  # if the head does not project
        self.directions = nn.Parameter(torch.randn(task.n_classes, settings.latent_dim))

    @classmethod
    def head(cls, settings: P, size: int, n_classes: int = 2) -> HeadSpec:
        """Return a projection whose direction is the embedding and whose norm is kappa."""
        return NormHeadSpec(settings.latent_dim)

    def rates(self) -> dict[str, float]:
        """Return the learning rate of the proxy directions relative to lr."""
        return {"directions": self.settings.proxy_lr}

    def forward(self, features: Tensor, head: nn.Module | None, labels: Tensor | None) -> Step:
        """Return the loss over all views of a batch, and the accuracy of the nearest proxy."""
        target = needed(labels, "labels").repeat(features.shape[0])
        mu, kappa = mu_and_kappa(features.flatten(0, 1), head, self.projector)
        kappa = needed(kappa, "a head that gives kappa")
        proxy_mu = F.normalize(self.directions, dim=1)
        loss, measures = self.loss(Directions(mu, kappa), proxy_mu, target)
        with torch.no_grad():
            right = ((mu @ proxy_mu.T).argmax(1) == target).float().mean()
        measures |= {"accuracy": right, "kappa": kappa.detach().mean(), "spread": spread(mu.detach())}
        return Step(loss, measures)

    def loss(self, images: Directions, proxy_mu: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of this method, and its measures."""
        raise TypeError(f"{type(self).__name__} has no loss")


class ProxyNCA(Proxies[ProxyNCASettings]):
    """ProxyNCA++: cross-entropy of cosines to the proxies, with a low temperature."""

    paper = "Teh et al. 2020, arXiv:2004.01113"
    Settings = ProxyNCASettings

    def loss(self, images: Directions, proxy_mu: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return equation 6 of the paper; norms are not used."""
        cosine = images.mu @ proxy_mu.T
        return proxy_nca(-cosine, labels, self.settings.temperature), {}


class ProxyAnchor(Proxies[ProxyAnchorSettings]):
    """ProxyAnchor: proxies pull the hardest images of their class and push the hardest others."""

    paper = "Kim et al. 2020, arXiv:2003.13911"
    Settings = ProxyAnchorSettings

    def loss(self, images: Directions, proxy_mu: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return equation 4 of the paper; norms are not used."""
        settings = self.settings
        return proxy_anchor(images.mu @ proxy_mu.T, labels, alpha=settings.alpha, delta=settings.delta), {}


class NivMF(Proxies[NivMFSettings]):
    """Classes as von Mises-Fisher distributions, by default non-isotropic, and images as isotropic ones."""

    paper = "Kirchhof et al. 2022, arXiv:2207.03784"
    Settings = NivMFSettings

    def __init__(self, settings: NivMFSettings, task: Task) -> None:
        super().__init__(settings, task)
        width = 1 if settings.distance in ISOTROPIC else settings.latent_dim
        start = torch.tensor(settings.proxy_kappa).log()
        self.log_kappas = nn.Parameter(start.repeat(task.n_classes, width))
        self.log_temperature = nn.Parameter(torch.tensor(settings.temperature).log())
        if settings.kappa == "head":
            self.projector = projector(task.width, settings.hidden_dim, settings.latent_dim)

    @classmethod
    def head(cls, settings: NivMFSettings, size: int, n_classes: int = 2) -> HeadSpec:
        """Return a kappa head, or a projection whose norm is kappa; both start near ``kappa_init``."""
        return kappa_head(settings.kappa, settings.kappa_init, settings.latent_dim)

    def rates(self) -> dict[str, float]:
        """Return the learning rates of proxies, their kappas and the temperature relative to lr."""
        multiples = {"log_kappas": self.settings.kappa_lr, "log_temperature": self.settings.temperature_lr}
        return super().rates() | multiples

    def loss(self, images: Directions, proxy_mu: Tensor, labels: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of equation 6 of the paper, or with guidance of equation 7."""
        kappas, temperature = self.log_kappas.exp(), self.log_temperature.exp()
        distances = self.distance(Directions(proxy_mu, kappas), images)
        total = proxy_nca(distances, labels, temperature)
        if self.settings.guidance:
            total = total + self.settings.guidance * proxy_anchor(images.mu @ proxy_mu.T, labels)
        return total, {"proxy_kappa": kappas.detach().mean(), "temperature": temperature.detach()}

    def distance(self, proxies: Directions, images: Directions) -> Tensor:
        """Return the distances of images to classes, shape (B, C)."""
        name, published = self.settings.distance, self.settings.density == "published"
        if name in ISOTROPIC:
            return ISOTROPIC[name](Directions(proxies.mu, proxies.kappa.squeeze(1)), images)
        if name == "nivmf":
            return distances.nivmf_point(proxies, images, published=published)
        draws = vmf.sample(images.mu, images.kappa, self.settings.samples)  # (S, B, M)

        def expected(some: Tensor) -> Tensor:
            return distances.expected_likelihood_nivmf(proxies, some, published=published)

        rows = max(1, BLOCK // (len(draws) * len(proxies.mu)))
        if rows >= draws.shape[1]:
            return expected(draws)
        parts = [checkpoint(expected, part, use_reentrant=False) for part in draws.split(rows, dim=1)]
        return torch.cat(parts)
