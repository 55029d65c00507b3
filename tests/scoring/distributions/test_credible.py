"""Regions of a stated probability: against samples whose distribution is known, and against their definition."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from scoring.distributions.credible import Calibration, RankedKappa, calibrate, fit_ranked_kappa
from scoring.distributions.vmf_quantiles import cap_share, credible_cosine
from scoring.distributions.vmf_sampler import sample

DIM = 12


def drawn(n, seed, *, base=3.0, slope=2.0, dim=DIM):
    """Cosines of draws with their mean direction, kappa growing with rank."""
    rank = np.random.default_rng(seed).random(n)
    mean = torch.zeros(n, dim, dtype=torch.float64)
    mean[:, 0] = 1
    kappa = torch.from_numpy(np.exp(base + slope * (rank - 0.5)))
    return sample(mean, kappa, 1, torch.Generator().manual_seed(seed))[0, :, 0].numpy(), rank


@pytest.mark.parametrize("dim", [2, 3, 16, 384])
@pytest.mark.parametrize("share", [0.01, 0.5, 0.95])
def test_the_share_of_a_cap_inverts_its_cosine(dim, share):
    kappa = torch.tensor([0.0, 0.5, 10, 200, 5000], dtype=torch.float64)
    returned = cap_share(credible_cosine(share, kappa, dim), kappa, dim)
    np.testing.assert_allclose(returned, share, atol=1e-9)


@pytest.mark.parametrize(("dim", "kappa", "cosine"), [(3, 2.0, 0.3), (8, 20.0, 0.7), (16, 5.0, -0.2)])
def test_the_share_of_a_cap_is_the_integral_of_the_density(dim, kappa, cosine):
    def density(c):
        return (1 - c * c) ** ((dim - 3) / 2) * np.exp(kappa * c)

    expected = quad(density, cosine, 1)[0] / quad(density, -1, 1)[0]
    assert cap_share(torch.tensor(cosine), torch.tensor(kappa), dim).item() == pytest.approx(expected, abs=1e-6)


def test_shares_of_whole_and_empty_caps_and_what_is_refused():
    assert cap_share(torch.tensor([1.0, -1.0]), torch.tensor(3.0), 4).tolist() == [0, 1]
    with pytest.raises(ValueError, match="cosines in"):
        cap_share(torch.tensor(1.5), torch.tensor(3.0), 4)


def test_dimension_and_concentrations_are_found_again():
    model = fit_ranked_kappa(*drawn(6000, 0))
    assert model.dim == DIM
    assert model.base == pytest.approx(3, abs=0.1)
    assert model.slope == pytest.approx(2, abs=0.2)


def test_a_random_certainty_has_slope_zero_and_a_reversed_one_no_negative_slope():
    cosine, rank = drawn(2000, 1)
    assert fit_ranked_kappa(cosine, 1 - rank).slope == 0


@pytest.mark.parametrize("chance", [0.5, 0.8, 0.9, 0.95])
def test_regions_hold_new_matches_as_often_as_stated_though_the_model_is_wrong(chance):
    def mixed(seed):  # half of the matches of another distribution than any vMF
        cosine, rank = drawn(4000, seed)
        distorted = np.random.default_rng(seed).random(4000) < 0.5
        return np.where(distorted, cosine**3 * 0.5, cosine), rank

    cosine, rank = mixed(2)
    calibration = calibrate(cosine, rank, np.arange(4000) % 2 == 0)
    again, ranks = mixed(3)
    assert (again >= calibration.bounds(ranks, chance)).mean() == pytest.approx(chance, abs=0.03)


def test_the_level_is_the_conformal_quantile():
    levels = np.arange(1, 20) / 100  # 19 of them
    calibration = Calibration(RankedKappa(3, 0.0, 0.0), levels, 5)
    assert calibration.level(0.5) == 0.1  # the 10th of 19: ceil(20 x 0.5)
    assert calibration.level(0.95) == 0.19
    assert calibration.level(0.96) == 1.0  # so few cannot promise that: everything is inside
    assert calibration.bounds(np.array([0.5]), 0.96).tolist() == [-1.0]


def test_too_few_queries_are_refused():
    with pytest.raises(ValueError, match="two queries"):
        calibrate(np.zeros(3), np.zeros(3), np.array([True, False, False]))
