"""Regions of a sphere that contain a query's match with a given probability, without a known concentration.

An ordinal certainty is turned into a concentration: with r the share of images that are less certain, log kappa(r) =
base + slope (r - 1/2), slope >= 0, in M dimensions. Base, slope and M maximise the likelihood of the cosines of some
queries with their matches. M is not the width of the embedding: matches differ in few directions, so their cosines
spread as on a sphere of few dimensions.

The guarantee does not need the model to be correct (split conformal prediction). For held-out queries, the level of a
match is the smallest share of mass whose cap contains it; under a correct model, levels are uniform. The cap for a
probability p uses the conformal quantile of these levels, so it contains the match of a new, exchangeable query with a
probability of at least p.

Source: the cap: Kirchhof et al. 2023, arXiv:2302.02865, appendix C.5. Levels of highest density as conformity scores:
Izbicki, Shimizu and Stern 2022, "CD-split and HPD-split", JMLR 23(87). The model of kappa by rank is ours.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.distributions.vmf import log_normalizer
from scoring.distributions.vmf_quantiles import cap_share, credible_cosine

DIMS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
MOST_KAPPA = 1e6
EDGE = 1e-6  # a cosine of exactly 1 has no finite likelihood


@dataclass(frozen=True)
class RankedKappa:
    """A concentration as a function of the rank of the certainty.

    Attributes:
        dim: dimension M of the fitted sphere.
        base: log kappa at the middle rank.
        slope: increase of log kappa from the least certain to the most certain; 0 if certainty is uninformative.
    """

    dim: int
    base: float
    slope: float

    def kappa(self, rank: NDArray[np.float64]) -> Tensor:
        """Return the concentration of ranks in [0, 1], any shape, float64."""
        return _kappa(torch.from_numpy(np.asarray(rank, np.float64)), self.base, self.slope)


@dataclass(frozen=True)
class Calibration:
    """Calibrated regions that contain a match with a given probability.

    Attributes:
        model: the fitted concentrations.
        levels: of the matches of held-out queries, ascending, shape (N,).
        n_fitted: number of queries that the model was fitted to.
    """

    model: RankedKappa
    levels: NDArray[np.float64]
    n_fitted: int

    def level(self, probability: float) -> float:
        """Return the share of mass that a cap needs to contain the match with that probability; at most 1."""
        place = math.ceil((len(self.levels) + 1) * probability)
        return float(self.levels[place - 1]) if place <= len(self.levels) else 1.0

    def bounds(self, rank: NDArray[np.float64], probability: float) -> NDArray[np.float64]:
        """Return the cosine at the edge of the region, shape (Q,), for queries of these ranks."""
        return credible_cosine(self.level(probability), self.model.kappa(rank), self.model.dim).numpy()


def calibrate(cosine: NDArray[np.float64], rank: NDArray[np.float64], fitted: NDArray[np.bool_]) -> Calibration:
    """Return regions that contain matches with the given probability.

    Args:
        cosine: of each query with its match, shape (N,), in [-1, 1].
        rank: share of images that are less certain than the query, shape (N,), in [0, 1].
        fitted: marks queries for the fit of the model, shape (N,); the others calibrate the levels.

    Raises:
        ValueError: if either part has fewer than two queries.
    """
    if fitted.sum() < 2 or (~fitted).sum() < 2:
        raise ValueError(f"expected two queries or more in both parts, got {fitted.sum()} and {(~fitted).sum()}")
    model = fit_ranked_kappa(cosine[fitted], rank[fitted])
    near = torch.from_numpy(np.clip(cosine[~fitted], -1, 1))
    levels = cap_share(near, model.kappa(rank[~fitted]), model.dim).numpy()
    return Calibration(model, np.sort(levels), int(fitted.sum()))


def fit_ranked_kappa(cosine: NDArray[np.float64], rank: NDArray[np.float64]) -> RankedKappa:
    """Return the maximum likelihood concentrations by rank, from cosines (N,) in [-1, 1] and ranks (N,) in [0, 1]."""
    c = torch.from_numpy(np.clip(cosine, -1 + EDGE, 1 - EDGE))
    r = torch.from_numpy(np.asarray(rank, np.float64))
    (_, base, slope), dim = max((_fit(c, r, dim), dim) for dim in DIMS)
    return RankedKappa(dim, base, slope)


def _kappa(rank: Tensor, base: float, slope: float) -> Tensor:
    return torch.exp(base + slope * (rank - 0.5)).clamp(max=MOST_KAPPA)


def _fit(cosine: Tensor, rank: Tensor, dim: int) -> tuple[float, float, float]:
    """Return the maximal mean log-likelihood for a sphere of ``dim`` dimensions, and its base and slope."""
    from scipy.optimize import minimize  # type: ignore[import-untyped]

    # density of a cosine: C_M(k) area(S^{M-2}) (1 - c^2)^((M-3)/2) e^{kc}
    area = math.log(2) + (dim - 1) / 2 * math.log(math.pi) - math.lgamma((dim - 1) / 2)
    known = area + (dim - 3) / 2 * float(torch.log1p(-cosine.square()).mean())

    def cost(parameters: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        free = torch.from_numpy(np.array(parameters)).requires_grad_()
        kappa = torch.exp(free[0] + free[1] * (rank - 0.5)).clamp(max=MOST_KAPPA)
        value = -(log_normalizer(kappa, dim) + kappa * cosine).mean() - known
        (slope,) = torch.autograd.grad(value, free)
        return value.item(), slope.numpy()

    mean = min(max(float(cosine.mean()), 0.01), 0.999)
    start = np.array([math.log(mean * (dim - mean**2) / (1 - mean**2)), 0.1])  # Banerjee et al. 2005, eq. 4.4
    best = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=[(-5, math.log(MOST_KAPPA)), (0, 10)])
    return -float(best.fun), float(best.x[0]), float(best.x[1])
