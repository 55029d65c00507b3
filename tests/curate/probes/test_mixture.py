"""A mixture of Gaussians, against scikit-learn."""

import numpy as np
import pytest
import torch
from sklearn.metrics import adjusted_rand_score
from sklearn.mixture import GaussianMixture

from curate.probes.mixture import FLOOR, fit_mixture


def drawn(n=600, k=3, width=5):
    """Rows of k Gaussians, each stretched another way, and which of them each row is of."""
    draw = np.random.default_rng(0)
    of = draw.integers(0, k, n)
    stretch = draw.normal(size=(k, width, width))
    rows = 6 * draw.normal(size=(k, width))[of] + np.einsum("nij,nj->ni", stretch[of], draw.normal(size=(n, width)))
    return torch.from_numpy(rows.astype(np.float32)), of


def test_em_ends_like_scikit_learn_and_finds_the_gaussians():
    rows, of = drawn()
    fitted = fit_mixture(rows, 3, starts=3, seed=0)
    assert adjusted_rand_score(of, fitted.clusters(rows)) > 0.95
    reduced = ((rows.double() - fitted.centre) @ fitted.axes).numpy()
    precision = fitted.precision @ fitted.precision.transpose(1, 2)
    more = GaussianMixture(
        3,
        reg_covar=FLOOR,
        weights_init=fitted.log_weight.exp().numpy(),
        means_init=fitted.mean.numpy(),
        precisions_init=precision.numpy(),
    ).fit(reduced)
    constant = reduced.shape[1] / 2 * np.log(2 * np.pi)
    ours = fitted.log_likelihoods(torch.from_numpy(reduced)).logsumexp(1).mean() - constant
    assert float(ours) == pytest.approx(more.score(reduced), abs=2e-3)
    assert reduced.var(0).sum() == pytest.approx(1)


@pytest.mark.parametrize("rows", [torch.ones(5, 4), torch.eye(4), torch.ones(3, 1)])
def test_rows_that_are_equal_or_no_more_than_gaussians_have_clusters(rows):
    assert fit_mixture(rows, 3, starts=1, seed=0).clusters(rows).max() < 3
