"""The non-isotropic von Mises-Fisher distribution and seven distances, against quadrature, draws and definitions."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from scoring.distributions import distances, nivmf, vmf
from scoring.distributions.distances import Directions

DIMS = [2, 3, 8, 128, 2048]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def unit(*shape, seed=0):
    return F.normalize(torch.randn(*shape, generator=seeded(seed), dtype=torch.float64), dim=-1)


def spread_kappas(*shape, seed=0, low=0.5, high=20.0):
    share = torch.rand(*shape, generator=seeded(seed), dtype=torch.float64)
    return low * (high / low) ** share


def circle(n=4000):
    angle = torch.arange(n, dtype=torch.float64) * 2 * math.pi / n
    return torch.stack([angle.cos(), angle.sin()], dim=1), torch.full((n,), 2 * math.pi / n, dtype=torch.float64)


def sphere(n=300):
    """Points of S^2 and the areas they represent: Gauss-Legendre in height, evenly in angle."""
    heights, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(n))
    ring, _ = circle(2 * n)
    radius = (1 - heights.square()).sqrt()
    points = torch.cat([radius[:, None, None] * ring, heights[:, None, None].expand(n, 2 * n, 1)], dim=2)
    return points.flatten(0, 1), weights.repeat_interleave(2 * n) * math.pi / n


@pytest.mark.parametrize("place", [circle, sphere])
@pytest.mark.parametrize("kappas", [(1.0, 1.0, 1.0), (0.3, 6.0, 2.0), (12.0, 1.5, 4.0)])
def test_the_density_integrates_to_one_and_the_published_measure_does_not(place, kappas):
    points, areas = place()
    dim = points.shape[1]
    mu, kappas = unit(dim, seed=3), torch.tensor(kappas[:dim], dtype=torch.float64)
    assert (nivmf.log_prob(points, mu, kappas).exp() * areas).sum().item() == pytest.approx(1, abs=1e-9)
    published = (nivmf.log_prob_published(points, mu, kappas).exp() * areas).sum().item()
    assert (abs(published - 1) < 1e-6) == (len(set(kappas.tolist())) == 1)  # K = I is the one that agrees


def test_the_density_is_the_formula_written_out():
    z, mu, kappas = unit(7, 5, seed=1), unit(5, seed=2), spread_kappas(5)
    stretched, centre = z * kappas, mu * kappas
    cosine = F.cosine_similarity(stretched, centre[None], dim=1)
    expected = (
        vmf.log_normalizer(centre.norm(), 5)
        + centre.norm() * cosine
        + kappas.prod().log()
        - 5 * stretched.norm(dim=1).log()
    )
    assert torch.allclose(nivmf.log_prob(z, mu, kappas), expected, rtol=0, atol=1e-12)
    published = vmf.log_normalizer(centre.norm(), 5) + centre.norm() * cosine + (kappas.prod() / centre.norm()).log()
    assert torch.allclose(nivmf.log_prob_published(z, mu, kappas), published, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("kappa", [1e-3, 1.0, 50.0, 1e5])
def test_an_isotropic_density_is_the_von_mises_fisher_one(dim, kappa):
    z, mu = unit(5, dim), unit(dim, seed=1)
    even = torch.full((dim,), kappa, dtype=torch.float64)
    expected = vmf.log_prob(z, mu, even[0])
    assert torch.allclose(nivmf.log_prob(z, mu, even), expected, rtol=1e-14, atol=3e-12)
    excess = nivmf.log_prob_published(z, mu, even) - expected
    assert excess.tolist() == pytest.approx([(dim - 1) * math.log(kappa)] * 5, rel=1e-9, abs=1e-7)


@pytest.mark.parametrize("dim", DIMS)
def test_gradients_are_finite_and_match_finite_differences(dim):
    z, mu = (unit(3, dim, seed=seed).requires_grad_() for seed in (0, 1))
    for low, high in ((1e-3, 1e-3), (1e-3, 1e5), (1e5, 1e5)):
        kappas = spread_kappas(3, dim, low=low, high=high).requires_grad_()
        for density in (nivmf.log_prob, nivmf.log_prob_published):
            value = density(z, mu, kappas)
            gradients = torch.autograd.grad(value.sum(), (z, mu, kappas))
            assert value.isfinite().all()
            assert all(part.isfinite().all() for part in gradients)
    if dim <= 8:
        kappas = spread_kappas(3, dim).requires_grad_()
        assert torch.autograd.gradcheck(nivmf.log_prob, (z, mu, kappas))


def test_all_pairs_are_the_pairs_one_by_one():
    z, mu, kappas = unit(2, 6, 4), unit(3, 4, seed=1), spread_kappas(3, 4)
    pairs = nivmf.log_prob(z.unsqueeze(-2), mu, kappas)
    assert pairs.shape == (2, 6, 3)
    for c in range(3):
        assert torch.allclose(pairs[..., c], nivmf.log_prob(z, mu[c], kappas[c]), rtol=1e-13)


def test_draws_have_the_density():
    mu, kappas = unit(3, seed=5), torch.tensor([6.0, 1.0, 2.5], dtype=torch.float64)
    drawn = nivmf.sample(mu, kappas, 40_000, seeded(1))
    points, areas = sphere()
    weight = nivmf.log_prob(points, mu, kappas).exp() * areas
    for moment in (points, points.square(), points[:, :1] * points[:, 1:2]):
        of_draws = {3: drawn if moment is points else drawn.square(), 1: drawn[:, :1] * drawn[:, 1:2]}[moment.shape[1]]
        expected = (weight[:, None] * moment).sum(0)
        error = of_draws.std(0) / math.sqrt(len(drawn))
        assert ((of_draws.mean(0) - expected).abs() < 4 * error).all()


def test_a_draw_that_is_certain_is_the_direction_and_moves_with_it():
    mu = unit(8, seed=2).requires_grad_()
    kappas = torch.full((8,), 1e9, dtype=torch.float64, requires_grad=True)
    drawn = nivmf.sample(mu, kappas, 2, seeded())
    assert torch.allclose(drawn, mu.detach().expand(2, 8), atol=1e-3)
    assert all(part.isfinite().all() for part in torch.autograd.grad(drawn.sum(), (mu, kappas)))


@pytest.mark.parametrize("density", [nivmf.log_prob, nivmf.log_prob_published])
@pytest.mark.parametrize(
    ("shapes", "words"),
    [(((4,), (4,), (5,)), "same M"), (((1,), (1,), (1,)), "M >= 2"), (((2, 4), (3, 4), (4,)), "must broadcast")],
)
def test_shapes_that_do_not_fit_are_refused(density, shapes, words):
    with pytest.raises(ValueError, match=words):
        density(*(torch.ones(shape) for shape in shapes))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_a_kappa_that_is_not_above_zero_is_refused(wrong):
    with pytest.raises(ValueError, match="kappa must be"):
        nivmf.log_prob(unit(3), unit(3), torch.tensor([1.0, wrong, 2.0]))


# Distances


def proxies(dim=3, c=3, wide=False):
    kappa = torch.tensor([2.0, 9.0, 0.5], dtype=torch.float64)[:c]
    return Directions(unit(c, dim, seed=7), spread_kappas(c, dim, seed=8) if wide else kappa)


def images(dim=3):
    return Directions(unit(4, dim, seed=9), torch.tensor([1.0, 4.0, 30.0, 0.0], dtype=torch.float64))


def test_isotropic_distances_are_their_integrals_over_the_sphere():
    points, areas = sphere()
    rho, zeta = (vmf.log_prob(points[:, None], d.mu, d.kappa) for d in (proxies(), images()))  # (P, C), (P, B)

    def integral(of):
        return torch.einsum("p,pbc->bc", areas, of)

    log_rho, log_zeta = rho[:, None, :], zeta[:, :, None]
    likelihood = -integral((log_rho + log_zeta).exp()).log()
    assert torch.allclose(distances.expected_likelihood(proxies(), images()), likelihood, atol=1e-9)
    overlap = -integral(((log_rho + log_zeta) / 2).exp()).log()
    assert torch.allclose(distances.bhattacharyya(proxies(), images()), overlap, atol=1e-9)
    divergence = integral(log_zeta.exp() * (log_zeta - log_rho))
    assert torch.allclose(distances.kullback_leibler(proxies(), images()), divergence, atol=1e-9)


def test_the_expected_likelihood_of_nivmf_nears_its_integral_over_the_sphere_as_draws_grow():
    points, areas = sphere()
    few = Directions(images().mu[:3], images().kappa[:3])
    rho = nivmf.log_prob(points[:, None], *proxies(wide=True)).exp()  # (P, C)
    zeta = vmf.log_prob(points[:, None], few.mu, few.kappa).exp()  # (P, B)
    exact = -torch.einsum("p,pb,pc->bc", areas, zeta, rho).log()
    draws = vmf.sample(few.mu, few.kappa, 40_000, seeded(2))
    assert torch.allclose(distances.expected_likelihood_nivmf(proxies(wide=True), draws), exact, atol=0.05)


def test_an_isotropic_nivmf_has_the_expected_likelihood_in_closed_form():
    dim = 32
    classes, few = proxies(dim), Directions(images(dim).mu, images(dim).kappa)
    even = Directions(classes.mu, classes.kappa[:, None].expand(3, dim))
    draws = vmf.sample(few.mu, few.kappa, 20_000, seeded(3))
    exact = distances.expected_likelihood(classes, few)
    assert torch.allclose(distances.expected_likelihood_nivmf(even, draws), exact, atol=0.05)


def test_point_distances_are_their_definitions():
    classes, of = proxies(5), images(5)
    wide = Directions(classes.mu, spread_kappas(3, 5))
    for b in range(4):
        for c in range(3):
            natural = classes.kappa[c] * classes.mu[c] - of.kappa[b] * of.mu[b]
            assert distances.squared_euclidean(classes, of)[b, c].item() == pytest.approx(float(natural @ natural))
            assert distances.cosine(classes, of)[b, c].item() == pytest.approx(-float(classes.mu[c] @ of.mu[b]))
            point = -nivmf.log_prob(of.mu[b], wide.mu[c], wide.kappa[c])
            assert distances.nivmf_point(wide, of)[b, c].item() == pytest.approx(float(point))


def test_the_divergence_from_the_cosine_is_the_divergence():
    mu, kappa = unit(4, 64), torch.tensor([0.0, 1.0, 50.0, 1e5], dtype=torch.float64)
    other = unit(4, 64, seed=1)
    cosine = (mu * other).sum(1)
    assert torch.allclose(vmf.kl_at_cosine(cosine, kappa, kappa + 1, 64), vmf.kl(mu, kappa, other, kappa + 1))


def test_a_distribution_is_at_no_bhattacharyya_distance_from_itself():
    classes = proxies(64)
    assert distances.bhattacharyya(classes, classes).diagonal().abs().max().item() < 1e-12
