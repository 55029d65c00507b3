"""The torch.distributions classes, against mpmath and numerical integration."""

import math

import mpmath
import numpy as np
import pytest
import torch
from torch.distributions import Distribution, kl_divergence

from scoring.distributions import NonIsotropicVMF, PowerSpherical, VonMisesFisher

SYMMETRIC = (VonMisesFisher, PowerSpherical)


def direction(dim, seed=0, n=None):
    shape = (dim,) if n is None else (n, dim)
    rows = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return torch.nn.functional.normalize(rows, dim=-1)


def exact_vmf(dim, kappa):
    """log C, A and entropy by mpmath."""
    with mpmath.workdps(60):
        v, k = mpmath.mpf(dim) / 2 - 1, mpmath.mpf(kappa)
        log_c = v * mpmath.log(k) - (v + 1) * mpmath.log(2 * mpmath.pi) - mpmath.log(mpmath.besseli(v, k))
        a = mpmath.besseli(v + 1, k) / mpmath.besseli(v, k)
        return float(log_c), float(a), float(-log_c - k * a)


@pytest.mark.parametrize(("dim", "kappa"), [(3, 2.0), (128, 50.0), (2048, 10.0), (2048, 1e5)])
def test_von_mises_fisher_is_exact_in_any_dimension(dim, kappa):
    mu = direction(dim).float()  # float32 parameters, as networks give them
    p = VonMisesFisher(mu, kappa)
    log_c, a, entropy = exact_vmf(dim, kappa)
    assert p.entropy().item() == pytest.approx(entropy, rel=1e-10, abs=1e-9)
    assert p.log_prob(mu).item() == pytest.approx(log_c + kappa * mu.double().square().sum().item(), rel=1e-10)
    assert p.mean.norm().item() == pytest.approx(a, rel=1e-5)
    other = VonMisesFisher(direction(dim, 1), 2 * kappa)
    cosine = (mu.double() @ direction(dim, 1)).item()
    expected = log_c - exact_vmf(dim, 2 * kappa)[0] + a * (kappa - 2 * kappa * cosine)
    assert kl_divergence(p, other).item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_densities_integrate_to_one_and_entropies_and_divergences_are_their_integrals(kind):
    mu, other = torch.tensor([1.0, 0.0, 0.0]).double(), torch.tensor([0.6, 0.8, 0.0]).double()
    p, q = kind(mu, torch.tensor(4.0).double()), kind(other, torch.tensor(7.0).double())

    height, weight = np.polynomial.legendre.leggauss(200)
    azimuth = np.arange(200) / 100 * math.pi
    across = np.sqrt(1 - height**2)[:, None]
    z = np.stack(np.broadcast_arrays(height[:, None], across * np.cos(azimuth), across * np.sin(azimuth)), -1)
    z, area = torch.from_numpy(z), torch.from_numpy(weight)[:, None] * math.pi / 100  # (200, 200, 3)

    def integral(of):
        return (of(z) * area).sum().item()

    assert integral(lambda z: p.log_prob(z).exp()) == pytest.approx(1, abs=1e-9)
    assert p.entropy().item() == pytest.approx(integral(lambda z: -p.log_prob(z).exp() * p.log_prob(z)), abs=1e-7)
    apart = integral(lambda z: p.log_prob(z).exp() * (p.log_prob(z) - q.log_prob(z)))
    assert kl_divergence(p, q).item() == pytest.approx(apart, abs=1e-5)


@pytest.mark.parametrize("dim", [2, 3, 16, 512, 2048])
def test_the_divergence_of_power_sphericals_is_the_mean_over_draws(dim):
    torch.manual_seed(0)
    p = PowerSpherical(direction(dim), torch.tensor(1.5 * dim).double())
    q = PowerSpherical(direction(dim, 1), torch.tensor(0.5 * dim).double())
    z = p.sample((4_000,))
    draws = p.log_prob(z) - q.log_prob(z)
    divergence = kl_divergence(p, q).item()
    assert abs(divergence - draws.mean().item()) < 5 * draws.std().item() / len(draws) ** 0.5
    assert kl_divergence(p, p).item() == pytest.approx(0, abs=1e-9 * dim)
    uniform = PowerSpherical(direction(dim, 2), torch.tensor(0.0).double())
    assert kl_divergence(p, uniform).item() == pytest.approx((uniform.entropy() - p.entropy()).item(), rel=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.7, math.pi / 2, 2.3, math.pi])
def test_the_divergence_of_power_sphericals_on_a_circle_and_a_sphere_is_its_integral(alpha):
    mu, other = (torch.tensor([math.cos(angle), math.sin(angle), 0.0]).double() for angle in (0.0, alpha))
    kappa, of_other = torch.tensor(3.0).double(), torch.tensor(200.0).double()

    def apart(dim, mean_log1p):  # of log(1 + mu'.z) over p
        p, q = PowerSpherical(mu[:dim], kappa), PowerSpherical(other[:dim], of_other)
        at_pole = q.log_prob(other[:dim]) - of_other * math.log(2)
        assert kl_divergence(p, q).item() == pytest.approx((-p.entropy() - at_pole - 200 * mean_log1p).item(), rel=1e-6)

    def on_circle(theta):  # (1 + cos theta)^3 integrates to 5 pi
        return (
            (1 + mpmath.cos(theta)) ** 3
            / (5 * mpmath.pi)
            * 2
            * mpmath.log(abs(2**0.5 * mpmath.cos((theta - alpha) / 2)))
        )

    apart(2, float(mpmath.quad(on_circle, sorted({-math.pi, alpha - math.pi, math.pi}))))

    def on_sphere(t):  # (1 + t)^3 integrates to 4; the mean of log(a + b cos phi) is log((a + sqrt(a^2 - b^2)) / 2)
        c = math.cos(alpha)
        return (1 + t) ** 3 / 4 * mpmath.log((1 + t * c + abs(t + c)) / 2)

    apart(3, float(mpmath.quad(on_sphere, sorted({-1.0, -math.cos(alpha), 1.0}))))


def test_the_non_isotropic_one_is_a_von_mises_fisher_where_its_concentrations_are_equal():
    mu, other, k = direction(32), direction(32, 1), torch.full((32,), 9.0).double()
    p, plain = NonIsotropicVMF(mu, k), VonMisesFisher(mu, torch.tensor(9.0).double())
    assert p.entropy().item() == pytest.approx(plain.entropy().item(), rel=1e-9)
    assert p.log_prob(other).item() == pytest.approx(plain.log_prob(other).item(), rel=1e-9)
    kappas = torch.linspace(2, 8, 3).double()
    mu = torch.tensor([0.0, 0.6, 0.8]).double()
    q = NonIsotropicVMF(mu, kappas, draws=50_000)
    height, azimuth = (np.arange(400) + 0.5) / 200 - 1, (np.arange(400) + 0.5) / 200 * math.pi
    across = np.sqrt(1 - height**2)[:, None]
    parts = np.broadcast_arrays(height[:, None], across * np.cos(azimuth), across * np.sin(azimuth))
    grid = np.stack(parts, -1).reshape(-1, 3)
    log_p, area = q.log_prob(torch.from_numpy(grid)), 4 * math.pi / len(grid)
    assert (log_p.exp().sum() * area).item() == pytest.approx(1, abs=1e-3)
    assert q.entropy().item() == pytest.approx(-(log_p.exp() * log_p).sum().item() * area, abs=0.01)
    r = NonIsotropicVMF(mu, kappas.flip(0))
    apart = (log_p.exp() * (log_p - r.log_prob(torch.from_numpy(grid)))).sum().item() * area
    assert kl_divergence(q, r).item() == pytest.approx(apart, abs=0.02)


@pytest.mark.parametrize("kind", [*SYMMETRIC, NonIsotropicVMF])
def test_samples_have_the_shapes_of_torch_and_gradients(kind):
    torch.manual_seed(0)
    mu = direction(8, n=5).float().requires_grad_()
    kappa = (torch.full((5, 8), 20.0) if kind is NonIsotropicVMF else torch.full((5,), 20.0)).requires_grad_()
    p: Distribution = kind(mu, kappa)
    assert (p.batch_shape, p.event_shape) == ((5,), (8,))
    z = p.rsample((2, 3))
    assert z.shape == (2, 3, 5, 8)
    assert z.dtype == torch.float32
    assert torch.allclose(z.norm(dim=-1), torch.ones(2, 3, 5), atol=1e-5)
    assert p.log_prob(z).shape == (2, 3, 5)
    z[..., 0].sum().backward()
    assert mu.grad.isfinite().all()
    assert kappa.grad.abs().sum() > 0
    assert p.expand((4, 5)).sample().shape == (4, 5, 8)
    with pytest.raises(ValueError, match="loc"):
        kind(torch.ones(5, 8), kappa, validate_args=True)


@pytest.mark.parametrize("kind", SYMMETRIC)
def test_the_gradient_of_a_divergence_is_its_slope(kind):
    other = kind(direction(64, 1), torch.tensor(30.0).double())

    def apart(kappa):
        return kl_divergence(kind(direction(64), kappa), other)

    kappa = torch.tensor(50.0, dtype=torch.float64, requires_grad=True)
    apart(kappa).backward()
    ends = torch.tensor([50.001, 49.999], dtype=torch.float64)
    slope = (apart(ends[0]) - apart(ends[1])).item() / 0.002
    assert kappa.grad.item() == pytest.approx(slope, rel=1e-4)
