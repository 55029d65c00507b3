"""A duplicate radius that knows how sure the model is: the expected likelihood kernel instead of the cosine.

Two images are von Mises-Fisher distributions vMF(mu1, k1) and vMF(mu2, k2) on the sphere in M dimensions. Their
similarity is the log of the expected likelihood kernel, normalised so that a distribution has 0 with itself:

    s = l(1, 2) - (l(1, 1) + l(2, 2)) / 2 = g(r) - (g(2 k1) + g(2 k2)) / 2,    r = |k1 mu1 + k2 mu2|,

with g(k) = log(Gamma(M/2) (2/k)^v I_v(k)) and v = M/2 - 1: the normalisers of single distributions cancel. It is at
most 0 (Cauchy-Schwarz), and 0 for equals alone. For k1 = k2 = k well above M it is about -k (angle / 2)^2, and for k
well below M about -k^2 (1 - cosine) / M. Which way that moves the threshold:

- Two uncertain images may lie further apart: what separates them is less than what the model does not know.
- Two certain images have to lie closer.
- A certain and an uncertain image have a mismatch: s < 0 even at cosine 1, and the smallest cosine rises with the ratio
  of their kappas until none is enough. At the threshold 0.98, kappa 1000 and M = 512 a ratio of 1.8 is too much, and a
  ratio of 1.1, below which nine in ten copies are, takes 3 % off 1 - cosine.

The threshold stays a cosine: it is the one at which two images of the table's median kappa just match.

Source: Kirchhof et al. 2022, arXiv:2207.03784, sec. 3, for the kernel; the normalisation, its inverse and the proof
in ``Radius.of`` are ours.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.counted import counted
from scoring.distributions.bessel import log_series, ratio
from scoring.errors import InputError

HIGHEST_KAPPA = 1e6  # the normaliser is tested up to here; such an image is as good as a point
WIDEST = 2.0  # no radius, as an angle, is more than this many times the threshold's
BLOCK = 65_536  # pairs at a time
STEPS = 64  # Newton's; 4 to 6 are usual


@dataclass(frozen=True)
class Radius:
    """The cosine that two rows of a table have to reach, by their kappas.

    Attributes:
        threshold: cosine at which two rows of the median kappa just match.
        dim: M, the width of the embeddings.
        median: of the kappas of the table.
        floor: a lower kappa counts as this one.
        n_low: rows whose kappa was raised to the floor.
        n_high: rows whose kappa was lowered to ``HIGHEST_KAPPA``.
        loosest: the smallest cosine that is enough for any two rows of the table.
    """

    threshold: float
    dim: int
    median: float
    floor: float
    n_low: int
    n_high: int
    loosest: float

    @classmethod
    def of(cls, kappas: NDArray[np.floating], threshold: float, dim: int, *, name: str = "kappa") -> "Radius":
        """Return the radius for a table.

        A kappa near 0 would match everything, and one such row would open the search to all pairs. So kappas have a
        floor: the kappa at which two equally uncertain rows have twice the angle of the threshold (between a quarter
        of the median, where kappas are well above M, and a half). Rows below it are counted in ``n_low`` and compared
        as if they were at it.

        Why two rows of the smallest kappa are the loosest pair: let a <= b. For a fixed cosine c, ds/db =
        A(r) (b + a c) / r - A(2b), with A = g' the mean cosine. A grows, r <= a + b <= 2b and (b + a c)^2 <= r^2, so
        s falls as b leaves a: the bound of (a, b) is at least the bound of (a, a). For equal kappas s = g(2k u) - g(2k)
        with u = sqrt((1 + c) / 2) <= 1, and its slope (2k u A(2k u) - 2k A(2k)) / k is at most 0, for x A(x) grows:
        the bound of (k, k) grows with k.

        Args:
            kappas: of the rows that are compared, shape (N,), finite, >= 0.
            threshold: cosine in (-1, 1].
            dim: M >= 2.
            name: of the column, for messages.

        Raises:
            InputError: if a kappa is NaN, infinite or negative, none is given, or the median is 0.
            ValueError: if the threshold is out of range.
        """
        kappas = np.asarray(kappas, np.float64)
        _check(threshold, dim)
        bad = int((~(np.isfinite(kappas) & (kappas >= 0))).sum())
        if bad or not len(kappas):
            raise InputError(
                f"expected a finite kappa >= 0 in every row of {name!r}, got {bad} of {len(kappas)} rows without; "
                "leave these rows out, or compare by cosine"
            )
        median = min(float(np.median(kappas)), HIGHEST_KAPPA)
        if not median > 0:
            raise InputError(f"expected a median above 0 in {name!r}, got 0; name another column, or compare by cosine")
        floor = _floor(threshold, median, dim)
        least = min(max(float(kappas.min()), floor), HIGHEST_KAPPA)
        loosest = float(cosine_bounds(np.array([least]), np.array([least]), threshold, median=median, dim=dim)[0])
        n_low, n_high = int((kappas < floor).sum()), int((kappas > HIGHEST_KAPPA).sum())
        return cls(threshold, dim, median, floor, n_low, n_high, loosest)

    @property
    def notes(self) -> list[str]:
        """Notes on the radius, and on kappas that are compared as others, one sentence each."""
        median = f"cosine {self.threshold:g} at the median kappa {self.median:.4g}"
        sides = ((self.n_low, "below", f"{self.floor:.4g}"), (self.n_high, "above", f"{HIGHEST_KAPPA:g}"))
        clipped = [
            f"elk: {counted(n, 'row')} with a kappa {side} {bound}, compared at that value"
            for n, side, bound in sides
            if n
        ]
        return [f"elk: {median}; loosest pair {self.loosest:.4f}", *clipped]

    def clipped(self, kappas: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the kappas that are compared: none below the floor, none above ``HIGHEST_KAPPA``."""
        return np.clip(np.asarray(kappas, np.float64), self.floor, HIGHEST_KAPPA)

    def similarity(
        self, cosine: NDArray[np.floating], kappa_a: NDArray[np.floating], kappa_b: NDArray[np.floating]
    ) -> NDArray[np.float64]:
        """Return the cosine at which two rows of median kappa would be as alike; higher is more alike.

        A pair matches where this reaches ``threshold``: the similarity in the unit that the user chose.

        Args:
            cosine: of each pair, shape (P,).
            kappa_a: of one row of each, shape (P,).
            kappa_b: of the other.
        """
        nats = log_kernel(cosine, self.clipped(kappa_a), self.clipped(kappa_b), self.dim)
        medians = np.full(nats.shape, self.median)
        return _cosine_at(nats, medians, medians, self.dim)


def log_kernel(
    cosine: NDArray[np.floating], kappa_a: NDArray[np.floating], kappa_b: NDArray[np.floating], dim: int
) -> NDArray[np.float64]:
    """Return the normalised log expected likelihood of pairs, in nats; 0 is equal, lower is less alike.

    Args:
        cosine: shape (P,), in [-1, 1].
        kappa_a: shape (P,), in [0, 1e6].
        kappa_b: shape (P,), too.
        dim: M >= 2.

    Returns:
        Shape (P,), at most 0 up to rounding.

    >>> log_kernel(np.array([1.0, 0.9]), np.array([50.0, 50.0]), np.array([50.0, 50.0]), 16).round(3)
    array([ 0.   , -2.346])
    """
    nats = np.empty(len(cosine))
    for at in _blocks(len(cosine)):
        c, a, b = _tensors(at, cosine, kappa_a, kappa_b)
        resultant = ((a - b).square() + 2 * a * b * (1 + c)).clamp(min=0)
        nats[at] = (log_series(resultant, dim) - _mean_self(a, b, dim)).numpy()
    return nats


def cosine_bounds(
    kappa_a: NDArray[np.floating],
    kappa_b: NDArray[np.floating],
    threshold: float,
    *,
    median: float,
    dim: int,
) -> NDArray[np.float64]:
    """Return the smallest cosine at which each pair is as alike as two images of median kappa at the threshold.

    Exact to about 1e-9: g is inverted by Newton's method, and r gives the cosine in closed form. g is convex and grows,
    so after its first step Newton comes down to the root and never crosses it.

    Args:
        kappa_a: of one row of each pair, shape (P,), in (0, 1e6].
        kappa_b: of the other.
        threshold: cosine in (-1, 1].
        median: kappa at which the smallest cosine is the threshold, in (0, 1e6].
        dim: M >= 2.

    Returns:
        Shape (P,), >= -1; above 1 where the kappas differ so much that no cosine is enough. Of two
        equal kappas it grows with them.

    Raises:
        ValueError: if the threshold, the dimension or a kappa is out of range.

    >>> kappas = np.array([500.0, 1000.0, 2000.0])
    >>> cosine_bounds(kappas, kappas, 0.95, median=1000.0, dim=512).round(3)
    array([0.887, 0.95 , 0.976])
    >>> cosine_bounds(kappas, kappas[::-1], 0.95, median=1000.0, dim=512).round(3)  # mismatched: more than 1
    array([1.077, 0.95 , 1.077])
    """
    _check(threshold, dim)
    for kappas in (np.asarray(kappa_a), np.asarray(kappa_b), np.array([median])):
        if not ((kappas > 0) & (kappas <= HIGHEST_KAPPA)).all():
            raise ValueError(f"every kappa must be in (0, {HIGHEST_KAPPA:g}]")
    medians = np.array([median], np.float64)
    bound = log_kernel(np.array([threshold]), medians, medians, dim)
    return _cosine_at(np.broadcast_to(bound, (len(kappa_a),)), kappa_a, kappa_b, dim)


def _check(threshold: float, dim: int) -> None:
    if not -1 < threshold <= 1:
        raise ValueError(f"threshold must be a cosine in (-1, 1], got {threshold}")
    if dim < 2:
        raise ValueError(f"the sphere needs dim >= 2, got {dim}")


def _blocks(n: int) -> list[slice]:
    return [slice(start, start + BLOCK) for start in range(0, n, BLOCK)]


def _tensors(at: slice, *arrays: NDArray) -> list[Tensor]:
    return [torch.from_numpy(np.array(array[at], np.float64)) for array in arrays]


def _mean_self(a: Tensor, b: Tensor, dim: int) -> Tensor:
    """Return (g(2a) + g(2b)) / 2."""
    return (log_series(4 * a.square(), dim) + log_series(4 * b.square(), dim)) / 2


def _cosine_at(
    nats: NDArray[np.floating], kappa_a: NDArray[np.floating], kappa_b: NDArray[np.floating], dim: int
) -> NDArray[np.float64]:
    """Return the cosine at which ``log_kernel`` is ``nats``, >= -1."""
    cosine = np.empty(len(nats))
    for at in _blocks(len(nats)):
        s, a, b = _tensors(at, nats, kappa_a, kappa_b)
        squared = _inverse(s + _mean_self(a, b, dim), a + b, dim)
        cosine[at] = ((squared - a.square() - b.square()) / (2 * a * b)).clamp(min=-1).numpy()
    return cosine


def _inverse(value: Tensor, start: Tensor, dim: int) -> Tensor:
    """Return r^2 with g(r) = value, and 0 where value <= 0; every root is at most twice its start.

    r counts as found when r^2 moves by less than 1e-13 of start^2, which is at least 4 times kappa_a kappa_b.
    """
    r = start.clone()
    goal = value.clamp(min=0)
    for _ in range(STEPS):
        squared = r.square()
        slope = (r * ratio(squared, dim)).clamp(min=torch.finfo(torch.float64).tiny)
        following = torch.minimum(torch.maximum(r - (log_series(squared, dim) - goal) / slope, 0 * r), 2 * start)
        moved = (following.square() - squared).abs()
        r = following
        if bool((moved <= 1e-13 * start.square()).all()):
            break
    return torch.where(value > 0, r.square(), 0 * r)


def _floor(threshold: float, median: float, dim: int) -> float:
    """Return the kappa at which two equal ones may be ``WIDEST`` times as far apart as the threshold says."""
    least = np.array([math.cos(min(WIDEST * math.acos(threshold), math.pi))])
    kappas = np.array([median])
    bound = log_kernel(np.array([threshold]), kappas, kappas, dim)
    low, high = median * 1e-9, median
    while high > low * (1 + 1e-6):
        middle = np.array([math.sqrt(low * high)])
        is_looser = log_kernel(least, middle, middle, dim) > bound
        low, high = (float(middle[0]), high) if is_looser else (low, float(middle[0]))
    return high
