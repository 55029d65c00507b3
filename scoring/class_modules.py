"""The modules of heads that predict classes: features -> distributions over classes, and their uncertainty.

Random draws for scoring are made once, from a seed, when a head is built: an image has the same scores in every batch,
in any order. Training draws new ones.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SEED = 0
BLOCK = 1 << 24  # logits in memory at once
LEAST_VARIANCE = 1e-3  # of the diagonal of HET-XL (Collier et al. 2023's code)
TEMPERATURES = (0.3, 3.0)  # bounds of the learned temperature of HET-XL (the same source)


def mean_log_probability(logits: Tensor) -> Tensor:
    """Return the logarithm of the mean of S distributions, shape (N, C), from logits (N, S, C)."""
    return logits.log_softmax(2).logsumexp(1) - math.log(logits.shape[1])


def entropy_and_spread(logits: Tensor) -> Tensor:
    """Return the entropy of the mean of S distributions, and their Jensen-Shannon divergence, shape (N, 2), in nats.

    From logits (N, S, C). The divergence H(mean p) - mean H(p) is the mutual information of class and member, >= 0, and
    0 if all members agree.

    Source: Mucsanyi et al. 2024, "Benchmarking Uncertainty Disentanglement", sec. 2; Kirchhof et al. 2023 (URL), B.
    """
    log_p = logits.double().log_softmax(2)
    mean = log_p.logsumexp(1) - math.log(logits.shape[1])
    total = -(mean.exp() * mean).sum(1)
    each = -(log_p.exp() * log_p).sum(2).mean(1)
    return torch.stack([total, (total - each).clamp(min=0)], 1).float()


def log_determinant(factor: Tensor, diagonal: Tensor) -> Tensor:
    """Return log det(V V' + diag d), shape (N,), for factors V (N, M, R) and diagonals d (N, M) > 0.

    By the matrix determinant lemma, log det = sum log d + log det(I + V' diag(1/d) V): an R x R determinant.
    """
    factor, diagonal = factor.double(), diagonal.double()
    inner = factor.mT @ (factor / diagonal[..., None])
    inner = inner + torch.eye(inner.shape[-1], dtype=inner.dtype, device=inner.device)
    return (diagonal.log().sum(1) + torch.linalg.slogdet(inner).logabsdet).float()


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def _in_blocks(features: Tensor, n_each: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Return ``function(features)`` computed in blocks of rows, so that ``n_each`` numbers per row fit into memory."""
    return torch.cat([function(some) for some in features.float().split(max(1, BLOCK // max(n_each, 1)))])


class EnsembleHead(nn.Module):
    """K linear classifiers: features (N, D) -> entropy of their mean and their divergence, (N, 2)."""

    def __init__(self, width: int, classes: int, members: int) -> None:
        super().__init__()
        self.shape = (members, classes)
        self.out = nn.Linear(width, members * classes)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of each member, shape (N, K, C), float32."""
        return self.out(features.float()).unflatten(1, self.shape)

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Return the logarithm of the mean of the members' distributions, shape (N, C)."""
        return mean_log_probability(self.logits(features))

    def forward(self, features: Tensor) -> Tensor:
        """Return the entropy of the mean, and the divergence, shape (N, 2), in nats."""
        return _in_blocks(features, self.out.out_features, lambda some: entropy_and_spread(self.logits(some)))


class DropoutHead(nn.Module):
    """A linear classifier behind dropout: features (N, D) -> entropy and divergence over S masks, (N, 2)."""

    masks: Tensor

    def __init__(self, width: int, classes: int, rate: float, samples: int) -> None:
        super().__init__()
        self.rate = rate
        self.out = nn.Linear(width, classes)
        kept = torch.rand(samples, width, generator=_generator()) >= rate
        self.register_buffer("masks", kept / (1 - rate), persistent=False)

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits under each mask, shape (N, S, C), float32; in training under one random mask per image."""
        features = features.float()
        if self.training:
            return self.out(F.dropout(features, self.rate))[:, None]
        return torch.stack([self.out(features * mask) for mask in self.masks], 1)

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Return the logarithm of the mean over masks of the distributions, shape (N, C)."""
        return mean_log_probability(self.logits(features))

    def forward(self, features: Tensor) -> Tensor:
        """Return the entropy of the mean, and the divergence, shape (N, 2), in nats."""
        each = len(self.masks) * (self.out.out_features + self.out.in_features)
        return _in_blocks(features, each, lambda some: entropy_and_spread(self.logits(some)))


class HetXLHead(nn.Module):
    """A classifier with Gaussian noise on the features: (N, D) -> entropy, divergence, log det of the noise, (N, 3)."""

    of_rank: Tensor
    of_each: Tensor

    def __init__(self, width: int, classes: int, dim: int, rank: int, samples: int) -> None:
        super().__init__()
        self.shape = (dim, rank)
        self.mean = nn.Linear(width, dim)
        self.factor = nn.Linear(width, dim * rank)
        self.diagonal = nn.Linear(width, dim)
        self.out = nn.Linear(dim, classes)
        self.warmth = nn.Parameter(torch.zeros(()))  # logit of the temperature's position between its bounds
        generator = _generator()
        self.register_buffer("of_rank", torch.randn(samples, rank, generator=generator), persistent=False)
        self.register_buffer("of_each", torch.randn(samples, dim, generator=generator), persistent=False)

    @property
    def temperature(self) -> Tensor:
        """The divisor of logits; a scalar."""
        low, high = TEMPERATURES
        return low + (high - low) * self.warmth.sigmoid()

    def covariance(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Return V, shape (N, M, R), and d, shape (N, M), of the covariance V V' + diag d, float32."""
        features = features.float()
        factor = self.factor(features).unflatten(1, self.shape)
        return factor, F.softplus(self.diagonal(features)) + LEAST_VARIANCE

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits of S draws, shape (N, S, C), float32; new draws for each image in training."""
        factor, diagonal = self.covariance(features)
        if self.training:
            n, samples = len(features), len(self.of_rank)
            of_rank = torch.randn(n, samples, self.shape[1], device=factor.device)
            of_each = torch.randn(n, samples, self.shape[0], device=factor.device)
        else:
            of_rank, of_each = self.of_rank, self.of_each
        noise = of_rank @ factor.mT + of_each * diagonal.sqrt()[:, None]  # (N, S, M)
        return self.out(self.mean(features.float())[:, None] + noise) / self.temperature

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Return the logarithm of the mean over draws of the distributions, shape (N, C)."""
        return mean_log_probability(self.logits(features))

    def forward(self, features: Tensor) -> Tensor:
        """Return entropy and divergence in nats, and the log-determinant, shape (N, 3)."""

        def function(some: Tensor) -> Tensor:
            return torch.cat(
                [entropy_and_spread(self.logits(some)), log_determinant(*self.covariance(some))[:, None]], 1
            )

        return _in_blocks(features, len(self.of_rank) * (self.out.out_features + self.shape[0]), function)


class SNGPHead(nn.Module):
    """A Gaussian process by random features: features (N, D) -> entropy of adjusted logits, variance, (N, 2).

    phi(x) = sqrt(2 / F) cos(W x / length + b) for x of unit length, so that phi(x) phi(y) approximates the kernel. The
    precision ridge I + sum phi' phi is summed over the last epoch of training; in a running mean the ridge would fade.
    """

    weight: Tensor
    phase: Tensor
    precision: Tensor

    def __init__(self, width: int, classes: int, n_random: int, length: float, ridge: float, mean_field: float) -> None:
        super().__init__()
        self.ridge, self.mean_field = ridge, mean_field
        self.out = nn.Linear(n_random, classes)
        generator = _generator()
        self.register_buffer("weight", torch.randn(n_random, width, generator=generator) / length)
        self.register_buffer("phase", 2 * math.pi * torch.rand(n_random, generator=generator))
        self.register_buffer("precision", ridge * torch.eye(n_random))
        self._factor: Tensor | None = None  # Cholesky factor of the precision, computed on demand

    def random_features(self, features: Tensor) -> Tensor:
        """Return phi, shape (N, F), float32."""
        x = F.normalize(features.float(), dim=1)
        return math.sqrt(2 / len(self.phase)) * (x @ self.weight.T + self.phase).cos()

    @torch.no_grad()
    def forget(self) -> None:
        """Reset the precision to the prior."""
        self.precision.zero_().fill_diagonal_(self.ridge)
        self._factor = None

    @torch.no_grad()
    def add(self, features: Tensor) -> None:
        """Add the random features of images, shape (N, D), to the precision."""
        phi = self.random_features(features)
        self.precision += phi.T @ phi
        self._factor = None

    @torch.no_grad()
    def variance(self, phi: Tensor) -> Tensor:
        """Return ridge phi P^-1 phi', shape (N,), in (0, 1]; 1 far from all training images."""
        if self._factor is None or self._factor.device != phi.device:
            self._factor = torch.linalg.cholesky(self.precision.double().cpu()).to(phi.device)
        solved = torch.linalg.solve_triangular(self._factor, phi.double().T, upper=False)
        return (self.ridge * solved.square().sum(0)).float()

    def logits(self, features: Tensor) -> Tensor:
        """Return the logits, shape (N, C), float32: adjusted by the variance except in training."""
        phi = self.random_features(features)
        logits = self.out(phi)
        if self.training:
            return logits
        return logits / (1 + self.mean_field * self.variance(phi))[:, None].sqrt()

    def log_probabilities(self, features: Tensor) -> Tensor:
        """Return the logarithm of the distribution over classes, shape (N, C)."""
        return self.logits(features).log_softmax(1)

    def forward(self, features: Tensor) -> Tensor:
        """Return the entropy in nats, and the variance, shape (N, 2)."""

        def function(some: Tensor) -> Tensor:
            entropy = entropy_and_spread(self.logits(some)[:, None])[:, 0]
            return torch.stack([entropy, self.variance(self.random_features(some))], 1)

        return _in_blocks(features, self.out.out_features + self.out.in_features, function)

    def _load_from_state_dict(self, *args: object, **kwargs: object) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self._factor = None
