"""Modified Bessel functions of the first kind, as the von Mises-Fisher distribution needs them.

For the sphere in M dimensions, with v = M/2 - 1 and q = kappa^2, two functions carry everything:

    log_series(q)  G = log 0F1(; M/2; q/4) = log(Gamma(v+1) (2/kappa)^v I_v(kappa)),   G(0) = 0
    ratio(q)       R = I_{v+1}(kappa) / (kappa I_v(kappa)) = 2 dG/dq,                   R(0) = 1/M

Both are smooth in q down to q = 0, so that nothing divides by kappa and gradients stay finite there. They are computed
at an order w = v + n >= 14, where the uniform (Debye) expansion is good to 1e-13, and brought down by the
recurrence R_{j-1} = 1 / (2j + q R_j), which is I_{j-1} = I_{j+1} + (2j/kappa) I_j and forgets errors on its way.
(A direct I_v underflows: in float64 below kappa = 12.8 for M = 512, below 658 for M = 2048.)

Source: NIST DLMF 10.41.3 and 10.41.10 (uniform expansion), 10.29.1 (recurrence).
"""

import math
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from torch import Tensor

EXPANSION_ORDER = 14.0  # the lowest order at which the expansion is used
MAX_TERMS = 13  # of the expansion; fewer suffice at a higher order
NEGLIGIBLE = Fraction(1, 10**18)


@cache
def _debye_polynomials() -> list[list[Fraction]]:
    """Return D_1..D_n with sum_j u_j(t)/w^j = exp(sum_j D_j(t)/w^j), each as coefficients of t^0, t^1, ...

    u_{j+1} = t^2 (1-t^2) u_j' / 2 + (1/8) integral_0^t (1 - 5 x^2) u_j(x) dx; the logarithm is a power series'.
    """
    u = [[Fraction(1)]]
    for _ in range(MAX_TERMS):
        following = [Fraction(0)] * (len(u[-1]) + 3)
        for power, c in enumerate(u[-1]):
            following[power + 1] += c * (Fraction(power, 2) + Fraction(1, 8 * (power + 1)))
            following[power + 3] -= c * (Fraction(power, 2) + Fraction(5, 8 * (power + 3)))
        u.append(following)
    logs: list[list[Fraction]] = [[Fraction(0)]]
    for n in range(1, MAX_TERMS + 1):
        term = list(u[n])
        for j in range(1, n):
            for a, c in enumerate(logs[j]):
                for b, d in enumerate(u[n - j]):
                    term[a + b] -= Fraction(j, n) * c * d
        logs.append(term)
    return logs[1:]


@cache
def _expansion(order: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return (q, r) for one order w: coefficients of t^0, t^1, ... of two polynomials in t = w / sqrt(w^2 + kappa^2).

    With Q(t) = sum_j D_j(t) / w^j, q is (Q(t) - Q(1)) / (t - 1), and r is t Q'(t).
    """
    total = [Fraction(0)] * (3 * MAX_TERMS + 1)
    scale = 1 / Fraction(order)
    for j, polynomial in enumerate(_debye_polynomials(), start=1):
        for power, c in enumerate(polynomial):
            total[power] += c * scale**j
        at_ends = abs(sum(polynomial, Fraction(0))) + abs(polynomial[j])  # at kappa = 0 and as kappa goes to infinity
        if at_ends * scale**j < NEGLIGIBLE:
            break
    while total[-1] == 0:
        total.pop()
    quotient, carry = [Fraction(0)] * (len(total) - 1), Fraction(0)
    for power in range(len(total) - 1, 0, -1):  # synthetic division by (t - 1); the remainder is Q(1)
        carry += total[power]
        quotient[power - 1] = carry
    slope = [power * c for power, c in enumerate(total)]
    return tuple(map(float, quotient)), tuple(map(float, slope))


def _horner(coefficients: tuple[float, ...], t: Tensor) -> Tensor:
    value = torch.full_like(t, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        value = value * t + c
    return value


def _raised(dim: int) -> tuple[float, int]:
    """Return the order at which the expansion is used, and its number of steps above v = dim/2 - 1."""
    steps = max(0, math.ceil(EXPANSION_ORDER - (dim / 2 - 1)))
    return dim / 2 - 1 + steps, steps


def ratio(squared_kappa: Tensor, dim: int) -> Tensor:
    """Return I_{M/2}(kappa) / (kappa I_{M/2-1}(kappa)): the mean cosine over kappa; decreasing in kappa.

    Args:
        squared_kappa: kappa^2, any shape, float64, >= 0.
        dim: M >= 2.

    Returns:
        Same shape, in (0, 1/M], differentiable any number of times.
    """
    order, steps = _raised(dim)
    s = (squared_kappa + order * order).sqrt()
    value = _expanded_ratio(s, order)
    for j in range(steps):
        value = 1 / (2 * (order - j) + squared_kappa * value)
    return value


def _expanded_ratio(s: Tensor, order: float) -> Tensor:
    return 1 / (order + s) - (0.5 + _horner(_expansion(order)[1], order / s)) / s.square()


def _series_and_ratio(q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    order, steps = _raised(dim)
    s = (q + order * order).sqrt()
    excess = q / (s + order)  # s - w, without the cancellation
    series = excess - order * torch.log1p(excess / (2 * order)) - 0.5 * torch.log1p(excess / order)
    series = series - excess / s * _horner(_expansion(order)[0], order / s)
    value = _expanded_ratio(s, order)
    product = torch.zeros_like(q)  # prod_j (1 + q R_{j+1} / (2j+2)) - 1, exact where it is small
    for j in range(steps):
        step = q * value / (2 * (order - j))
        product = product + step + product * step
        value = 1 / (2 * (order - j) + q * value)
    return series + torch.log1p(product), value


class _LogSeries(torch.autograd.Function):
    """G(q) with gradient R(q)/2, instead of the derivative of its many terms."""

    @staticmethod
    def forward(q: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        return _series_and_ratio(q, dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
        q, ctx.dim = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(q, output[1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor, None]:
        q, value = ctx.saved_tensors
        if torch.is_grad_enabled():  # the gradient must be differentiable too
            value = ratio(q, ctx.dim)
        return grad * value / 2, None


def log_series(squared_kappa: Tensor, dim: int) -> Tensor:
    """Return log(Gamma(M/2) (2/kappa)^v I_v(kappa)) with v = M/2 - 1; increasing in kappa, 0 at 0.

    Args:
        squared_kappa: kappa^2, any shape, float64, >= 0.
        dim: M >= 2.

    Returns:
        Same shape, >= 0, with relative accuracy down to kappa = 0. Its gradient is ``ratio(squared_kappa, dim) / 2``.
    """
    return _LogSeries.apply(squared_kappa, dim)[0]
