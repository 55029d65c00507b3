"""Samples of the von Mises-Fisher distribution, and their gradients."""

import math

import pytest
import scipy.integrate
import torch

from scoring.distributions import vmf
from scoring.distributions.vmf_sampler import _draw_blindly, motion_over_sine_squared, proposal_constants

# (M, kappa, mean cosine) where an approximate constant in the rejection gave the wrong hemisphere, then the extremes
CASES = [
    (16, 16.0, 0.628),
    (128, 12.0, 0.093),
    (128, 64.0, 0.415),
    (512, 50.0, 0.097),
    (2048, 1000.0, 0.407),
    (2, 0.0, 0.0),
    (2, 2.0, 0.6978),
    (2, 1e6, 1.0),
    (3, 0.5, 0.164),
    (3, 1e4, 0.9999),
    (4, 1e-3, 0.0),
    (10, 20.0, 0.795),
    (4096, 1e6, 0.998),
]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def directions(dim):
    """Both poles, where a reflection would divide by zero, and one direction that is nothing special."""
    mu = torch.zeros(3, dim, dtype=torch.float64)
    mu[0, 0], mu[1, 0] = 1, -1
    mu[2] = torch.nn.functional.normalize(torch.randn(dim, generator=seeded(), dtype=torch.float64), dim=0)
    return mu


def moments(dim, kappa):
    """First and second moment of the cosine, from the mean cosine and E[w^2] = 1 - (M-1) A / kappa."""
    k = torch.tensor(kappa, dtype=torch.float64)
    first = vmf.mean_cosine(k, dim).item()
    return first, 1 / dim if kappa == 0 else 1 - (dim - 1) * first / kappa


def assert_mean(values, expected):
    """Four standard errors; values is (n, ...)."""
    error = values.double().std(0) / math.sqrt(len(values))
    assert ((values.double().mean(0) - expected).abs() <= 4 * error + 1e-12).all()


@pytest.mark.parametrize(("dim", "kappa", "rough"), CASES)
def test_cosines_have_the_exact_moments_around_any_direction(dim, kappa, rough):
    n, mu = (20_000 if dim <= 16 else 2000), directions(dim)
    z = vmf.sample(mu, torch.tensor(kappa), n, seeded(1))
    assert z.shape == (n, 3, dim)
    assert (z.norm(dim=-1) - 1).abs().max() < 1e-6
    cosine = (z * mu).sum(-1)
    first, second = moments(dim, kappa)
    assert first == pytest.approx(rough, abs=1e-3)
    assert_mean(cosine, first)
    assert_mean(cosine.square(), second)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 2.0), (3, 1.0), (16, 16.0), (512, 50.0)])
def test_mean_direction_is_mu_and_tangents_are_uniform(dim, kappa):
    mu = directions(dim)[2]
    z = vmf.sample(mu, torch.tensor(kappa), 4000, seeded(2))
    across = z - (z @ mu).unsqueeze(1) * mu
    mean, error = across.mean(0), across.std(0) / math.sqrt(4000)
    assert ((mean / error).square().mean() < 1 + 4 * math.sqrt(2 / dim) + 0.5).item()  # a chi-square over M
    spread = across.square().sum(1).mean() / (dim - 1)
    expected = spread * (torch.eye(dim) - torch.outer(mu, mu))
    covariance = across.T @ across / 4000
    assert ((covariance - expected).abs() < 6 * spread / math.sqrt(4000)).all()


@pytest.mark.parametrize("dim", [2, 3, 10, 200])
def test_infinite_kappa_returns_mu_and_its_gradient_is_zero(dim):
    mu, kappa = directions(dim), torch.tensor([math.inf, math.inf, 5.0], requires_grad=True)
    z = vmf.sample(mu, kappa, 5, seeded())
    assert torch.allclose(z[:, :2], mu[:2].expand(5, 2, dim), atol=1e-12)
    z.sum().backward()
    assert kappa.grad[:2].tolist() == [0, 0]
    assert math.isfinite(kappa.grad[2].item())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [2, 7, 8, 512])
def test_samples_come_in_the_dtype_of_mu_with_its_precision(dtype, dim):
    mu = directions(dim).to(dtype)
    z = vmf.sample(mu, torch.tensor(30.0), 500, seeded())
    assert z.dtype == dtype
    assert (z.double().norm(dim=-1) - 1).abs().max() < 4 * torch.finfo(dtype).eps


def test_float32_cosines_at_a_large_kappa_keep_their_moments():
    mu = directions(10).float()
    z = vmf.sample(mu, torch.tensor(1e4), 20_000, seeded(3))
    distance = (z.double() - mu.double()).square().sum(-1) / 2  # 1 - w without cancellation
    assert_mean(distance, 1 - moments(10, 1e4)[0])


def test_same_generator_gives_the_same_samples_and_others_do_not():
    mu, kappa = directions(10), torch.tensor([1.0, 10.0, 100.0])
    assert torch.equal(vmf.sample(mu, kappa, 7, seeded(5)), vmf.sample(mu, kappa, 7, seeded(5)))
    assert not torch.equal(vmf.sample(mu, kappa, 7, seeded(5)), vmf.sample(mu, kappa, 7, seeded(6)))


def test_empty_batches_and_no_samples_have_their_shapes():
    assert vmf.sample(torch.zeros(0, 8), torch.zeros(0), 4).shape == (4, 0, 8)
    assert vmf.sample(torch.eye(8), torch.ones(8), 0).shape == (0, 8, 8)
    assert vmf.sample(torch.eye(8).reshape(2, 4, 8), torch.ones(4), 3).shape == (3, 2, 4, 8)
    assert vmf.sample(torch.eye(8)[0], torch.tensor(1.0), 3).shape == (3, 8)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 1e4), (3, 0.5), (10, 20.0), (512, 50.0), (2048, 1e5)])
def test_drawing_without_looking_gives_the_same_moments(dim, kappa):
    x0, _ = proposal_constants(torch.full((4,), kappa, dtype=torch.float64), dim)
    t = _draw_blindly(x0.expand(20_000, 4), dim, seeded(4))
    cosine = (x0 + t) / (1 + x0 * t)
    first, second = moments(dim, kappa)
    assert_mean(cosine, first)
    assert_mean(cosine.square(), second)


@pytest.mark.parametrize("dim", [2, 3, 64, 4096])
def test_proposals_are_accepted_at_least_65_times_in_a_hundred(dim):
    from scoring.distributions.vmf_sampler import _propose

    for x0 in (0.0, 0.5, 1 - 1e-6):
        _, accepted = _propose(torch.full((20_000,), x0, dtype=torch.float64), dim, seeded())
        assert accepted.double().mean() > 0.65 - 4 * math.sqrt(0.25 / 20_000)


def slow_motion(dim, kappa, w):
    """dw/dkappa from its definition: integral_w^1 (s - A) p(s) ds / p(w), over angles to tame the ends."""
    mean = vmf.mean_cosine(torch.tensor(kappa, dtype=torch.float64), dim).item()
    at = math.acos(w)

    def weight(angle):  # p(s) ds over p(w)
        if not 0 < angle < math.pi:
            return 0.0
        log_ratio = (dim - 2) * math.log(math.sin(angle)) - (dim - 3) * math.log(math.sin(at))
        return (math.cos(angle) - mean) * math.exp(log_ratio + kappa * (math.cos(angle) - w))

    if w < mean:  # the two sides of the integral cancel: take the one without the mean
        return -scipy.integrate.quad(weight, at, math.pi, limit=300, epsabs=0, epsrel=1e-9)[0]
    return scipy.integrate.quad(weight, 0, at, limit=300, epsabs=0, epsrel=1e-9)[0]


@pytest.mark.parametrize("dim", [2, 3, 5, 10, 31, 32, 64, 128, 512])
@pytest.mark.parametrize("kappa", [0.01, 1.0, 15.0, 300.0, 1e4])
def test_motion_of_a_cosine_matches_its_definition(dim, kappa):
    x0, _ = proposal_constants(torch.tensor([kappa], dtype=torch.float64), dim)
    shares = torch.tensor([0.001, 0.1, 0.5, 0.9, 0.999], dtype=torch.float64)
    for w in vmf.credible_cosine(shares, torch.tensor(kappa), dim).tolist():
        t = (torch.tensor([[w]], dtype=torch.float64) - x0) / (1 - x0 * w)
        got = motion_over_sine_squared(t, x0, dim).item() * (1 - w * w)
        assert got == pytest.approx(slow_motion(dim, kappa, w), rel=5e-3 if dim < 8 else 1e-4)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (10, 20.0), (128, 64.0), (2048, 1000.0)])
def test_motion_of_a_cosine_matches_its_quantile(dim, kappa):
    k = torch.tensor([kappa], dtype=torch.float64)
    step = 1e-4 * kappa
    for share in (0.1, 0.5, 0.95):
        low, w, high = (vmf.credible_cosine(share, k + d, dim) for d in (-step, 0, step))
        x0, _ = proposal_constants(k, dim)
        got = motion_over_sine_squared(((w - x0) / (1 - x0 * w)).unsqueeze(0), x0, dim) * (1 - w * w)
        assert got.item() == pytest.approx(((high - low) / (2 * step)).item(), rel=2e-3)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (3, 10.0), (10, 20.0), (128, 64.0), (512, 500.0)])
def test_sample_gradients_are_unbiased(dim, kappa):
    # of the mean of f(z) = (a.z)^2 + a.z: E[a.z] = A a.mu, E[(a.z)^2] = (1-s)/(M-1) + (s - (1-s)/(M-1)) (a.mu)^2
    n, mu = (20_000 if dim < 16 else 4000), directions(dim)[2]
    a = torch.nn.functional.normalize(mu + torch.randn(dim, generator=seeded(8), dtype=torch.float64) / dim**0.5, dim=0)

    def expected(direction, k):
        mean, along = vmf.mean_cosine(k, dim), a @ torch.nn.functional.normalize(direction, dim=0)
        second = 1 - (dim - 1) * mean / k
        return mean * along + (1 - second) / (dim - 1) * (1 - along**2) + second * along**2

    leaf, k = mu.clone().requires_grad_(), torch.tensor(kappa, dtype=torch.float64, requires_grad=True)
    to_mu, to_kappa = torch.autograd.grad(expected(leaf, k), [leaf, k])
    mus, kappas = mu.expand(n, dim).clone().requires_grad_(), torch.full((n,), kappa).double().requires_grad_()
    projected = vmf.sample(mus, kappas, 1, seeded(9))[0] @ a
    got_mu, got_kappa = torch.autograd.grad((projected.square() + projected).sum(), [mus, kappas])
    assert_mean(got_kappa, to_kappa)
    assert_mean(got_mu @ to_mu / to_mu.norm(), to_mu.norm())
    assert (got_mu * mu).sum(1).abs().max() < 1e-9  # tangent to the sphere


@pytest.mark.parametrize("dim", [2, 3, 10, 512, 4096])
def test_gradients_hold_no_nan_at_any_kappa(dim):
    kappa = torch.tensor([0.0, 1e-3, 1.0, 1e3, 1e6], requires_grad=True)
    mu = torch.zeros(5, dim)
    mu[:, 0] = 1
    mu.requires_grad_()
    z = vmf.sample(mu, kappa, 50, seeded())
    (z * torch.randn(dim, generator=seeded(1))).sum().backward()
    assert torch.isfinite(z).all()
    assert torch.isfinite(mu.grad).all()
    assert torch.isfinite(kappa.grad).all()


@pytest.mark.parametrize(
    ("mu", "kappa", "n", "message"),
    [
        (torch.ones(3, 1), torch.ones(3), 1, "M >= 2"),
        (torch.ones(3, 4).long(), torch.ones(3), 1, "floating"),
        (torch.ones(3, 4), torch.ones(2), 1, r"got \(2,\)"),
        (torch.ones(3, 4), torch.ones(2, 3), 1, r"got \(2, 3\)"),
        (torch.ones(3, 4), torch.tensor([1.0, -4.0, 2.0]), 1, "got -4 among 3"),
        (torch.ones(3, 4), torch.ones(3), -1, "n must be"),
    ],
)
def test_what_cannot_be_sampled_is_refused(mu, kappa, n, message):
    with pytest.raises(ValueError, match=message):
        vmf.sample(mu, kappa, n)


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("dim", [2, 10, 512, 4096])
def test_values_on_a_gpu_are_those_on_the_cpu(dim):
    kappa = torch.logspace(-3, 6, 200, dtype=torch.float64)
    for function in (vmf.log_normalizer, vmf.mean_cosine, vmf.entropy):
        assert torch.allclose(function(kappa.cuda(), dim).cpu(), function(kappa, dim), rtol=1e-11, atol=1e-10)
    quantiles = vmf.credible_cosine(0.9, kappa.cuda(), dim).cpu()
    assert torch.allclose(quantiles, vmf.credible_cosine(0.9, kappa, dim), atol=1e-12)
    assert vmf.log_normalizer(torch.tensor([-1.0], device="cuda"), dim).isnan().all()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("dim", "kappa", "rough"), CASES)
def test_samples_on_a_gpu_have_the_exact_moments(dim, kappa, rough):
    mu = directions(dim).cuda()
    z = vmf.sample(mu, torch.tensor(kappa, device="cuda"), 4000, torch.Generator("cuda").manual_seed(1))
    cosine = (z * mu).sum(-1).cpu()
    first, second = moments(dim, kappa)
    assert_mean(cosine, first)
    assert_mean(cosine.square(), second)


@pytest.mark.gpu
@needs_gpu
def test_sampling_and_its_gradient_can_be_captured_in_a_cuda_graph():
    mu = directions(10).float().cuda().requires_grad_()
    kappa = torch.tensor([1.0, 10.0, 100.0], device="cuda", requires_grad=True)

    def step():
        z = vmf.sample(mu, kappa, 1000)
        value = (z * mu.detach()).sum(-1).mean(0)  # (3,)
        return value, torch.autograd.grad(value.sum(), [mu, kappa])

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        value, gradients = step()
    seen = []
    for _ in range(3):
        graph.replay()
        seen.append(value.detach().clone())
    expected = vmf.mean_cosine(kappa.detach(), 10).float()
    assert torch.allclose(seen[0], expected, atol=0.05)
    assert not torch.equal(seen[0], seen[1])
    assert all(torch.isfinite(g).all() for g in gradients)
