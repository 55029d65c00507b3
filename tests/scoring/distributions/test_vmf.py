"""The von Mises-Fisher distribution against exact tables, other libraries and its own definition."""

import math

import pytest
import scipy.integrate
import scipy.special
import scipy.stats
import torch

from scoring.distributions import vmf

# M: log C at kappa -> 0, 1, 10, 100, 1000, 10000; computed with 50 digits
LOG_C = {
    3: (-2.53102424697, -2.69246360854, -9.53529197135, -97.2327068804, -994.930121787, -9992.62753669),
    8: (-3.48030725473, -3.5424219624, -7.9159016038, -90.2705063982, -982.25104907, -9974.19594091),
    16: (-1.32582490629, -1.35702087765, -4.05729904727, -79.0004224044, -961.951526305, -9944.70408759),
    64: (40.7677200256, 40.7599084501, 39.9954458219, -8.04076543918, -839.81825944, -9767.71936601),
    128: (127.053456524, 127.049550392, 126.663996115, 95.0614688217, -676.0780228, -9531.65013333),
    384: (595.24845104, 595.247148961, 595.11828659, 582.631834249, -10.9238355294, -8586.34920374),
    512: (867.96810316, 867.9671266, 867.870465455, 858.379265453, 327.70918734, -8113.08440154),
    768: (1458.72115112, 1458.72050008, 1458.65605245, 1452.26458034, 1016.81741376, -7165.3264145),
    1024: (2093.02729827, 2093.02680998, 2092.97847246, 2088.16743424, 1721.21992025, -6215.93116847),
    2048: (4898.38386265, 4898.38361851, 4898.35944888, 4895.94535476, 4676.817306, -2402.00025793),
}
MEAN_COSINE = [
    (16, 1, 0.062284332676),
    (16, 10, 0.487621667979),
    (16, 100, 0.92745916211),
    (128, 1, 0.00781203055437),
    (128, 10, 0.0776609763821),
    (128, 100, 0.548329149714),
    (128, 1000, 0.938484389511),
    (512, 1, 0.00195311757847),
    (512, 10, 0.019523834023),
    (512, 100, 0.188404764015),
    (512, 1000, 0.776530932903),
    (2048, 1, 0.000488281133698),
    (2048, 10, 0.00488269620379),
    (2048, 100, 0.0487123734747),
    (2048, 1000, 0.407325217429),
]
ENTROPY = [
    (128, 10, -127.440605879),
    (128, 100, -149.894383793),
    (128, 1000, -262.406366711),
    (512, 10, -868.065703795),
    (512, 100, -877.219741855),
    (512, 1000, -1104.24012024),
    (2048, 1000, -5084.14252343),
]
DIMS = [2, 3, 4, 5, 8, 10, 16, 29, 30, 31, 64, 128, 511, 512, 2048, 4096]
KAPPAS = [0.0, 1e-3, 0.1, 1.0, 7.0, 20.0, 100.0, 3e3, 1e5, 1e6]


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def unit(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(*shape, generator=generator, dtype=torch.float64), dim=-1)


def density_of_cosine(dim, kappa):
    """The density of w = mu.z as a function, and points that show where it lies, from scipy and the definition."""

    def log_weight(w):
        return kappa * (w - 1) + (dim - 3) / 2 * math.log1p(-w * w)

    peak = 0.0 if kappa == 0 else 2 * kappa / (dim - 3 + math.sqrt((dim - 3) ** 2 + 4 * kappa * kappa))
    width = 12 / math.sqrt(dim + kappa)
    low, high = max(-1 + 1e-15, peak - width), min(1 - 1e-15, peak + width)
    top = log_weight(min(peak, 1 - 1e-9))
    total, _ = scipy.integrate.quad(lambda w: math.exp(log_weight(w) - top), low, high, limit=400, epsabs=1e-13)
    return (lambda w: math.exp(log_weight(w) - top) / total), low, high


@pytest.mark.parametrize("dim", LOG_C)
def test_log_normalizer_matches_the_exact_table(dim):
    got = vmf.log_normalizer(tensor(0, 1, 10, 100, 1000, 10000), dim)
    assert got.tolist() == pytest.approx(LOG_C[dim], rel=1e-11, abs=1e-10)


@pytest.mark.parametrize(("dim", "kappa", "expected"), MEAN_COSINE)
def test_mean_cosine_matches_the_exact_table(dim, kappa, expected):
    assert vmf.mean_cosine(tensor(kappa), dim).item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize(("dim", "kappa", "expected"), ENTROPY)
def test_entropy_matches_the_exact_table(dim, kappa, expected):
    assert vmf.entropy(tensor(kappa), dim).item() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("dim", DIMS)
def test_normaliser_and_mean_cosine_match_scipy_where_it_does_not_underflow(dim):
    v, checked = dim / 2 - 1, 0
    for kappa in KAPPAS[1:]:
        scaled, following = scipy.special.ive(v, kappa), scipy.special.ive(v + 1, kappa)
        if not (following > 1e-290 and math.isfinite(scaled)):
            continue
        log_c = v * math.log(kappa) - dim / 2 * math.log(2 * math.pi) - math.log(scaled) - kappa
        assert vmf.log_normalizer(tensor(kappa), dim).item() == pytest.approx(log_c, rel=1e-11, abs=1e-10)
        assert vmf.mean_cosine(tensor(kappa), dim).item() == pytest.approx(following / scaled, rel=1e-10)
        checked += 1
    assert checked >= 2


@pytest.mark.parametrize("dim", DIMS)
def test_normaliser_and_mean_cosine_match_thirty_digits(dim):
    mpmath = pytest.importorskip("mpmath", reason="mpmath is not installed")
    with mpmath.workdps(30):
        for kappa in KAPPAS[1:]:
            if (dim, kappa) in ((2048, 1e6), (4096, 1e5), (4096, 1e6)):  # mpmath takes 12 to 20 s
                continue
            k, v = mpmath.mpf(kappa), mpmath.mpf(dim) / 2 - 1
            bessel, following = (mpmath.besseli(u, k, maxterms=10**7) for u in (v, v + 1))
            log_c = v * mpmath.log(k) - (v + 1) * mpmath.log(2 * mpmath.pi) - mpmath.log(bessel)
            got = vmf.log_normalizer(tensor(kappa), dim).item()
            assert got == pytest.approx(float(log_c), rel=1e-12, abs=2e-12)
            assert vmf.mean_cosine(tensor(kappa), dim).item() == pytest.approx(float(following / bessel), rel=1e-12)


def test_normaliser_and_mean_cosine_match_what_takes_thirty_digits_long():
    assert vmf.log_normalizer(tensor(1e5), 4096).item() == pytest.approx(-80169.38798694737, rel=1e-12)
    assert vmf.mean_cosine(tensor(1e5), 4096).item() == pytest.approx(0.9797344905890435, rel=1e-12)


def test_the_sphere_in_three_dimensions_has_its_closed_forms():
    kappa = tensor(1e-3, 0.5, 3, 40, 700)
    sinh = kappa + torch.log(-torch.expm1(-2 * kappa)) - math.log(2)  # log sinh
    expected = torch.log(kappa) - math.log(4 * math.pi) - sinh
    assert torch.allclose(vmf.log_normalizer(kappa, 3), expected, rtol=1e-12, atol=1e-12)
    langevin = 1 / torch.tanh(kappa) - 1 / kappa
    assert torch.allclose(vmf.mean_cosine(kappa, 3), langevin, rtol=1e-9)


@pytest.mark.parametrize("dim", DIMS)
def test_gradient_of_the_normaliser_is_minus_the_mean_cosine(dim):
    kappa = tensor(*KAPPAS).requires_grad_()
    (gradient,) = torch.autograd.grad(vmf.log_normalizer(kappa, dim).sum(), kappa, create_graph=True)
    assert torch.allclose(gradient, -vmf.mean_cosine(kappa, dim), rtol=1e-14, atol=0)
    (second,) = torch.autograd.grad(gradient.sum(), kappa)
    assert second[0].item() == pytest.approx(-1 / dim)
    a, k = vmf.mean_cosine(kappa, dim).detach(), kappa.detach()
    identity = 1 - a**2 - (dim - 1) * a / k.clamp(min=1e-300)
    middle = slice(2, 7)  # outside it the identity itself loses its digits
    assert torch.allclose(-second[middle], identity[middle], rtol=1e-8, atol=1e-12)
    assert second[-1].item() == pytest.approx(-(dim - 1) / 2e12, rel=3e-2 if dim > 1000 else 3e-3)


@pytest.mark.parametrize("dim", [2, 3, 10, 512])
def test_gradients_match_finite_differences(dim):
    kappa = tensor(0.3, 2, 30, 200).requires_grad_()
    for function in (vmf.log_normalizer, vmf.mean_cosine, vmf.entropy, vmf.kl_to_uniform):
        assert torch.autograd.gradcheck(lambda k, f=function: f(k, dim), kappa, eps=1e-4, atol=1e-6)
        assert torch.autograd.gradgradcheck(lambda k, f=function: f(k, dim), kappa, eps=1e-4, atol=1e-6)


def test_float32_and_half_inputs_are_computed_in_float64():
    kappa = torch.tensor([1e-3, 0.5, 100.0, 1e6])
    for dim in (2, 512, 4096):
        assert torch.equal(vmf.log_normalizer(kappa, dim), vmf.log_normalizer(kappa.double(), dim))
    assert vmf.entropy(torch.tensor(100.0, dtype=torch.bfloat16), 512).dtype == torch.float64
    leaf = kappa.clone().requires_grad_()
    vmf.log_normalizer(leaf, 512).sum().backward()
    assert leaf.grad.dtype == torch.float32
    assert torch.allclose(leaf.grad.double(), -vmf.mean_cosine(kappa, 512), rtol=1e-6)


@pytest.mark.parametrize("dim", [2, 3, 17, 4096])
def test_mean_cosine_rises_and_entropy_falls_with_kappa(dim):
    kappa = torch.logspace(-3, 6, 400, dtype=torch.float64)
    assert (vmf.mean_cosine(kappa, dim).diff() > 0).all()
    assert (vmf.entropy(kappa, dim).diff() < 0).all()
    assert ((vmf.mean_cosine(kappa, dim) > 0) & (vmf.mean_cosine(kappa, dim) < 1)).all()


@pytest.mark.parametrize(("dim", "kappa"), [(3, 1.0), (3, 40.0), (8, 5.0), (128, 100.0), (512, 50.0), (2048, 1000.0)])
def test_density_integrates_to_one_and_gives_the_mean_cosine_and_the_entropy(dim, kappa):
    # over the cosine w, the sphere's slice has area S_{M-2} (1-w^2)^((M-3)/2)
    log_slice = math.log(2) + (dim - 1) / 2 * math.log(math.pi) - math.lgamma((dim - 1) / 2)
    _, low, high = density_of_cosine(dim, kappa)

    def integral(of):
        def integrand(w):
            log_p = vmf.log_prob_at_cosine(tensor(w), tensor(kappa), dim).item()
            return of(w, log_p) * math.exp(log_p + log_slice + (dim - 3) / 2 * math.log1p(-w * w))

        return scipy.integrate.quad(integrand, low, high, limit=200, epsabs=1e-9)[0]

    assert integral(lambda w, log_p: 1) == pytest.approx(1, abs=1e-7)
    assert integral(lambda w, log_p: w) == pytest.approx(vmf.mean_cosine(tensor(kappa), dim).item(), abs=1e-7)
    assert -integral(lambda w, log_p: log_p) == pytest.approx(vmf.entropy(tensor(kappa), dim).item(), rel=1e-7)


def test_log_prob_on_the_circle_matches_scipy():
    angles, kappa = torch.linspace(-3, 3, 7, dtype=torch.float64), tensor(4.0)
    z = torch.stack([angles.cos(), angles.sin()], dim=1)
    expected = scipy.stats.vonmises.logpdf(angles.numpy(), 4.0, loc=0.7)
    got = vmf.log_prob(z, tensor(math.cos(0.7), math.sin(0.7)), kappa)
    assert got.tolist() == pytest.approx(expected.tolist(), rel=1e-12)


def test_log_prob_matches_scipy_in_more_dimensions():
    z, mu = unit(6, 7, seed=1), unit(7, seed=2)
    expected = scipy.stats.vonmises_fisher(mu.numpy(), 12.0).logpdf(z.numpy())
    assert vmf.log_prob(z, mu, tensor(12.0)).tolist() == pytest.approx(expected.tolist(), rel=1e-11)


def test_kl_matches_its_definition_by_monte_carlo():
    mu1, mu2, k1, k2 = unit(20, seed=1), unit(20, seed=2), tensor(30.0)[0], tensor(8.0)[0]
    z = vmf.sample(mu1, k1, 40_000, torch.Generator().manual_seed(3))
    gap = vmf.log_prob(z, mu1, k1) - vmf.log_prob(z, mu2, k2)
    error = gap.std().item() / math.sqrt(len(gap))
    assert vmf.kl(mu1, k1, mu2, k2).item() == pytest.approx(gap.mean().item(), abs=4 * error)
    entropy = -vmf.log_prob(z, mu1, k1)
    error = entropy.std().item() / math.sqrt(len(entropy))
    assert vmf.entropy(k1, 20).item() == pytest.approx(entropy.mean().item(), abs=4 * error)


@pytest.mark.parametrize("dim", [2, 10, 512, 4096])
def test_kl_is_zero_between_equals_and_positive_otherwise(dim):
    kappas = torch.logspace(-3, 6, 19, dtype=torch.float64)
    mu = unit(19, dim).float()
    assert (vmf.kl(mu, kappas, mu, kappas) == 0).all()
    grid = vmf.kl(mu[0], kappas.unsqueeze(1), mu[0], kappas)
    assert (grid >= 0).all()
    assert (grid[~torch.eye(19, dtype=torch.bool)] > 0).all()
    assert (vmf.kl(mu, kappas, -mu, kappas) > 0).all()


def test_kl_to_uniform_is_kl_to_kappa_zero_and_keeps_its_digits_near_it():
    mu, kappa = unit(5, 16), tensor(1e-3, 1, 10, 300, 1e5)
    expected = vmf.kl(mu, kappa, unit(5, 16, seed=9), torch.zeros(5))
    assert torch.allclose(vmf.kl_to_uniform(kappa, 16), expected, rtol=1e-9, atol=1e-15)
    assert vmf.kl_to_uniform(tensor(1e-3), 16).item() == pytest.approx(1e-6 / 32, rel=1e-6)  # kappa^2 / 2M
    assert vmf.kl_to_uniform(tensor(0), 16).item() == 0


def test_expected_likelihood_matches_the_exact_values():
    i = torch.arange(1, 25, dtype=torch.float64)
    x = torch.nn.functional.normalize(torch.sin(i).reshape(4, 6), dim=1)
    y = torch.nn.functional.normalize(torch.cos(0.5 * i).reshape(4, 6), dim=1)
    k1, k2 = tensor(1, 5, 20, 100), tensor(2, 4, 8, 16)
    pairs = vmf.log_expected_likelihood(x.unsqueeze(1), k1.unsqueeze(1), y, k2)
    assert pairs.shape == (4, 4)
    assert pairs[0, 0].item() == pytest.approx(-3.1836396422, rel=1e-9)
    assert pairs[2, 2].item() == pytest.approx(-0.5091742805, rel=1e-9)
    assert pairs[3, 3].item() == pytest.approx(-26.1070691226, rel=1e-9)
    assert torch.nn.functional.cross_entropy(pairs, torch.arange(4)).item() == pytest.approx(7.937384262222342)
    assert torch.allclose(vmf.log_expected_likelihood(x, k1, y, k2), pairs.diagonal(), rtol=1e-12)
    mu, ten = unit(8), tensor(10)[0]
    assert vmf.log_expected_likelihood(mu, ten, mu, ten).item() == pytest.approx(-0.1083467275, rel=1e-9)
    assert vmf.log_expected_likelihood(mu, ten, -mu, ten).item() == pytest.approx(-12.3514959529, rel=1e-9)


def test_expected_likelihood_is_the_mean_density_of_samples():
    mu1, mu2, k1, k2 = unit(10, seed=4), unit(10, seed=5), tensor(6.0)[0], tensor(3.0)[0]
    z = vmf.sample(mu1, k1, 40_000, torch.Generator().manual_seed(1))
    density = vmf.log_prob(z, mu2, k2).exp()
    error = density.std().item() / math.sqrt(len(density))
    assert vmf.log_expected_likelihood(mu1, k1, mu2, k2).exp().item() == pytest.approx(
        density.mean().item(), abs=4 * error
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_expected_likelihood_of_opposites_has_finite_gradients(dtype):
    mu = unit(3, 64).to(dtype)
    leaves = [mu.clone().requires_grad_(), tensor(0, 10, 1e6).requires_grad_(), (-mu).clone().requires_grad_()]
    value = vmf.log_expected_likelihood(leaves[0], leaves[1], leaves[2], leaves[1])
    value.sum().backward()
    assert torch.isfinite(value).all()
    assert all(torch.isfinite(leaf.grad).all() for leaf in leaves)
    expected = -2 * vmf.mean_cosine(tensor(10), 64)  # the resultant stays 0 when both kappas move
    assert leaves[1].grad[1].item() == pytest.approx(expected.item(), rel=1e-5)


def test_expected_likelihood_gradients_match_finite_differences():
    leaves = [unit(3, 5).requires_grad_(), tensor(1, 4, 9).requires_grad_()]
    leaves += [unit(3, 5, seed=8).requires_grad_(), tensor(2, 3, 7).requires_grad_()]
    assert torch.autograd.gradcheck(vmf.log_expected_likelihood, leaves)
    assert torch.autograd.gradcheck(vmf.log_prob, [leaves[0], leaves[2], leaves[1]])


def test_credible_cosine_on_the_sphere_in_three_dimensions_has_its_closed_form():
    kappa = tensor(1e-2, 1, 30, 1e3, 1e6)
    for share in (0.01, 0.5, 0.95):
        drop = -torch.log1p(share * torch.expm1(-2 * kappa)) / kappa  # 1 - t
        assert torch.allclose(1 - vmf.credible_cosine(share, kappa, 3), drop, rtol=1e-7)


@pytest.mark.parametrize("dim", [2, 3, 8, 64, 512, 4096])
def test_credible_cosine_of_the_uniform_distribution_is_a_beta_quantile(dim):
    shares = tensor(1e-6, 0.05, 0.5, 0.9, 0.999)
    expected = 1 - 2 * scipy.stats.beta.ppf(shares.numpy(), (dim - 1) / 2, (dim - 1) / 2)
    assert vmf.credible_cosine(shares, tensor(0), dim).tolist() == pytest.approx(expected.tolist(), abs=1e-12)


def test_credible_cosine_on_the_circle_matches_scipy():
    for kappa in (0.1, 5.0, 400.0):
        expected = math.cos(scipy.stats.vonmises.ppf(0.95, kappa))  # half of a share of 0.9 is on either side
        assert vmf.credible_cosine(0.9, tensor(kappa), 2).item() == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("dim", "kappa"), [(2, 3.0), (16, 16.0), (512, 50.0), (2048, 1000.0)])
def test_credible_cap_holds_its_share_of_samples(dim, kappa):
    mu, n = unit(dim), 8000
    cosine = vmf.sample(mu, tensor(kappa)[0], n, torch.Generator().manual_seed(7)) @ mu
    for share in (0.1, 0.5, 0.95):
        inside = (cosine >= vmf.credible_cosine(share, tensor(kappa), dim)).double().mean().item()
        assert inside == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / n))


def test_credible_cosine_at_its_edges_and_over_shapes():
    kappa = tensor(0, 10, math.inf).unsqueeze(1)
    got = vmf.credible_cosine(tensor(0, 0.5, 1), kappa, 16)
    assert got.shape == (3, 3)
    assert got[:, 0].tolist() == [1, 1, 1]
    assert got[:2, 2].tolist() == [-1, -1]
    assert got[2].tolist() == [1, 1, 1]
    assert vmf.credible_cosine(0.5, torch.zeros(0), 16).shape == (0,)
    assert (vmf.credible_cosine(0.9, torch.logspace(-3, 6, 5000), 128).diff() > 0).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: vmf.log_normalizer(torch.ones(2), 1), "dim .*got 1"),
        (lambda: vmf.mean_cosine(torch.tensor([1.0, -2.0]), 8), "got -2 among 2"),
        (lambda: vmf.entropy(torch.tensor(-1.0), 8), "kappa must be"),
        (lambda: vmf.log_prob_at_cosine(torch.ones(2), torch.ones(3), 8), r"cosine \(2,\), kappa \(3,\)"),
        (lambda: vmf.log_prob(torch.ones(2, 4), torch.ones(3, 4), torch.ones(2)), r"z \(2,\), mu \(3,\)"),
        (lambda: vmf.log_prob(torch.ones(2, 4), torch.ones(2, 5), torch.ones(2)), "same M"),
        (lambda: vmf.kl(torch.ones(4), torch.ones(2), torch.ones(4), torch.ones(3)), "must broadcast"),
        (
            lambda: vmf.log_expected_likelihood(torch.ones(2, 4), torch.ones(3), torch.ones(4), torch.ones(1)),
            r"kappa1 \(3,\)",
        ),
        (lambda: vmf.credible_cosine(1.5, torch.ones(1), 8), "share must be"),
        (lambda: vmf.credible_cosine(0.5, -torch.ones(1), 8), "kappa must be"),
        (lambda: vmf.credible_cosine(torch.ones(2), torch.ones(3), 8), "broadcast"),
        (lambda: vmf.credible_cosine(0.5, torch.ones(3), 1), "dim >= 2"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call()
