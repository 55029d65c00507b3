import math

import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from scoring.distributions import power_spherical as ps

# M, kappa, log N, entropy, KL to uniform, mean cosine: computed with 50 digits
TABLE = [
    (3, 10, -7.06460078, 1.042219883, 1.488804364, 0.8333333333),
    (64, 100, 8.042405768, -55.80914097, 15.04142095, 0.6134969325),
    (128, 10, 126.7235247, -127.3964006, 0.342944095, 0.0729927007),
    (128, 100, 104.4357612, -140.8510805, 13.79762395, 0.4405286344),
    (128, 1000, -409.4852592, -225.6415439, 98.58808733, 0.8873114463),
    (512, 100, 859.8237189, -874.9224084, 6.954305284, 0.1636661211),
    (512, 1000, 507.5441705, -1015.38621, 147.4181068, 0.6618133686),
    (2048, 1000, 4731.34941, -5015.084764, 116.7009013, 0.3281916639),
]


@pytest.mark.parametrize(("dim", "kappa", "log_n", "entropy", "kl", "cosine"), TABLE)
def test_constants_match_the_table(dim, kappa, log_n, entropy, kl, cosine):
    k = torch.tensor([float(kappa)])
    assert ps.log_normalizer(k, dim).item() == pytest.approx(log_n, rel=2e-9)
    assert ps.entropy(k, dim).item() == pytest.approx(entropy, rel=2e-9)
    assert ps.kl_to_uniform(k, dim).item() == pytest.approx(kl, rel=2e-9)
    assert ps.mean_cosine(k, dim).item() == pytest.approx(cosine, rel=1e-9)


def test_log_prob_matches_the_exact_values_between_given_vectors():
    i = torch.arange(1, 25, dtype=torch.float64)
    x = torch.nn.functional.normalize(torch.sin(i).reshape(4, 6), dim=1)
    y = torch.nn.functional.normalize(torch.cos(0.5 * i).reshape(4, 6), dim=1)
    got = ps.log_prob(x, y, torch.tensor([1.0, 10, 50, 200], dtype=torch.float64))
    assert got.tolist() == pytest.approx([-2.8086888105, -30.6161779911, 0.9328007356, -491.6130233671], rel=1e-9)


@pytest.mark.parametrize(("dim", "kappa"), [(3, 1.0), (3, 40.0), (128, 100.0), (2048, 1000.0)])
def test_density_integrates_to_one(dim, kappa):
    # over the cosine t, the sphere's slice has area S_{M-2} (1-t^2)^((M-3)/2)
    log_slice = math.log(2) + (dim - 1) / 2 * math.log(math.pi) - math.lgamma((dim - 1) / 2)
    log_n = ps.log_normalizer(torch.tensor(kappa, dtype=torch.float64), dim).item()

    def density(t):
        return math.exp(log_n + kappa * math.log1p(t) + log_slice + (dim - 3) / 2 * math.log1p(-t * t))

    peak = ps.mean_cosine(torch.tensor(kappa), dim).item()
    total, _ = scipy.integrate.quad(density, -1 + 1e-12, 1 - 1e-12, points=[peak], limit=400)
    assert total == pytest.approx(1, abs=1e-6)


def test_uniform_distribution_at_kappa_zero():
    log_area = math.log(2) + 4 * math.log(math.pi) - math.lgamma(4)
    assert ps.entropy(torch.tensor(0.0), 8).item() == pytest.approx(log_area)
    assert ps.log_normalizer(torch.tensor(1.0), 8).item() == pytest.approx(-log_area)  # kappa 1 has the same constant


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_log_prob_is_finite_at_the_antipode(dtype):
    mu = torch.nn.functional.normalize(torch.randn(64, 128, generator=torch.Generator().manual_seed(0)), dim=1).to(
        dtype
    )
    z = (-mu).clone()
    kappa = torch.full((64,), 1e4)
    value = ps.log_prob(z, mu, kappa)
    assert value.isfinite().all()
    assert (value < ps.log_prob(mu, mu, kappa)).all()


@pytest.mark.parametrize(
    ("dim", "cosine", "best"), [(128, 0.5, 127.4996), (128, 0.9, 1143.49993), (2048, 0.99, 202653.5)]
)
def test_best_kappa_for_a_cosine_is_where_the_gradient_vanishes(dim, cosine, best):
    kappa = torch.tensor(best, dtype=torch.float64, requires_grad=True)
    z, mu = torch.zeros(dim, dtype=torch.float64), torch.zeros(dim, dtype=torch.float64)
    mu[0] = 1
    z[0], z[1] = cosine, math.sqrt(1 - cosine**2)
    ps.log_prob(z, mu, kappa).backward()
    assert abs(kappa.grad.item()) < 1e-5


def test_gradient_in_kappa_matches_its_closed_form_and_finite_differences():
    kappa = torch.tensor([0.5, 30.0, 5000.0], dtype=torch.float64, requires_grad=True)
    z = torch.nn.functional.normalize(
        torch.randn(3, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1)), dim=1
    )
    mu = torch.nn.functional.normalize(z + 0.3, dim=1)
    (grad,) = torch.autograd.grad(ps.log_prob(z, mu, kappa).sum(), kappa)
    b = 63 / 2
    c = (z * mu).sum(1)
    closed = -math.log(2) - torch.digamma(b + kappa) + torch.digamma(2 * b + kappa) + torch.log1p(c)
    assert grad.tolist() == pytest.approx(closed.tolist(), rel=1e-9)
    h = 1e-4
    numeric = (ps.log_prob(z, mu, kappa + h) - ps.log_prob(z, mu, kappa - h)) / (2 * h)
    assert grad.tolist() == pytest.approx(numeric.tolist(), rel=1e-4)


def test_large_kappa_keeps_the_digits_that_float32_would_lose():
    kappa = torch.tensor(1e5)  # float32 in
    b = 2047 / 2
    a = b + 1e5
    exact = -((a + b) * math.log(2) + scipy.special.gammaln(a) - scipy.special.gammaln(a + b) + b * math.log(math.pi))
    assert ps.log_normalizer(kappa, 2048).item() == pytest.approx(exact, abs=1e-6)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 4.0), (3, 10.0), (16, 16.0), (128, 12.0), (512, 1000.0)])
@pytest.mark.parametrize("pole", [False, True])
def test_samples_have_the_right_cosine_moments(dim, kappa, pole):
    n = 20_000
    generator = torch.Generator().manual_seed(3)
    mu = torch.zeros(dim)
    if pole:
        mu[0] = -1
    else:
        mu = torch.nn.functional.normalize(torch.randn(dim, generator=generator), dim=0)
    z = ps.sample(mu.expand(n, dim), torch.full((n,), kappa), generator=generator)
    assert torch.allclose(z.norm(dim=1), torch.ones(n), atol=1e-5)
    a, b = (dim - 1) / 2 + kappa, (dim - 1) / 2
    beta = scipy.stats.beta(a, b)
    cosine = (z @ mu).double()
    mean, var = 2 * beta.mean() - 1, 4 * beta.var()
    assert abs(cosine.mean().item() - mean) < 4 * math.sqrt(var / n)
    kurtosis = float(beta.stats("k")) + 3
    assert abs(cosine.var().item() - var) < 4 * var * math.sqrt((kurtosis - 1) / n)
    off = z - cosine.float()[:, None] * mu  # around mu no direction is preferred
    assert off.mean(0).norm().item() < 4 * math.sqrt(1 / n) * 1.2


def test_a_sphere_needs_two_dimensions():
    with pytest.raises(ValueError, match="dim >= 2"):
        ps.log_normalizer(torch.tensor(1.0), 1)
