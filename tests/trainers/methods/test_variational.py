"""SimVAE, VAE, beta-VAE, CR-VAE: their terms against integrals and torch.distributions, and what they train."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.distributions as D
from scipy import integrate, stats

from curate.training.recipe import recipe as recipe_of
from scoring.errors import InputError
from scoring.posterior import PosteriorHead
from trainers.build import build
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods import elbo
from trainers.methods.method import Batch, Task
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS

NAMES = ("simvae", "vae", "betavae", "crvae")
CPU = torch.device("cpu")
I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X, Y = torch.sin(I).reshape(4, 6), torch.cos(0.5 * I).reshape(4, 6)
LV = torch.stack([0.3 * torch.sin(0.2 * I), torch.cos(I) - 1]).reshape(2, 4, 6)
close = pytest.approx


def same(first, other):
    assert first.flatten().tolist() == close(other.flatten().tolist(), rel=1e-10, abs=1e-10)


# The terms


def test_entropy_and_divergences_equal_torch():
    q, p = D.Normal(X, (0.5 * LV[0]).exp()), D.Normal(Y, (0.5 * LV[1]).exp())
    same(elbo.entropy(LV[0]), q.entropy().sum(-1))
    same(elbo.kl(X, LV[0], Y, LV[1]), D.kl_divergence(q, p).sum(-1))
    same(elbo.kl_to_standard(X, LV[0]), D.kl_divergence(q, D.Normal(torch.zeros_like(X), 1.0)).sum(-1))
    p = D.Normal(Y, (0.1 * Y).exp())
    same(elbo.kl(X, LV[0], Y, 0.2 * Y), D.kl_divergence(q, p).sum(-1))


def test_the_divergence_matches_its_oracle():
    v1, v2 = 0.3 * torch.sin(I).reshape(4, 6), 0.2 * torch.cos(I).reshape(4, 6)
    expected = [0.466938111, 5.6251231273, 0.4003298351, 5.4001054695]
    assert elbo.kl(X, v1, Y, v2).tolist() == close(expected, abs=1e-9)


def test_the_likelihood_sums_over_every_value_of_an_image():
    pixels, decoded = torch.rand(2, 3, 3, 4, 4).double(), torch.rand(2, 3, 3, 4, 4).double()
    same(elbo.log_likelihood(pixels, decoded, 0.02), D.Normal(decoded, math.sqrt(0.02)).log_prob(pixels).sum((2, 3, 4)))


def test_a_bernoulli_likelihood_is_of_shares_and_the_methods_take_it():
    pixels, decoded = torch.randint(0, 2, (2, 3, 3, 4, 4)).double(), torch.rand(2, 3, 3, 4, 4).double()
    same(elbo.log_bernoulli(pixels, decoded), D.Bernoulli(decoded).log_prob(pixels).sum((2, 3, 4)))
    half = elbo.log_bernoulli(torch.full((1, 3, 4, 4), 0.5).double(), torch.full((1, 3, 4, 4), 0.5).double())
    assert half.item() == pytest.approx(-48 * math.log(2))
    method, head, views, features = made("vae", likelihood="bernoulli")
    torch.manual_seed(7)
    loss = method(features, head, None).loss
    torch.manual_seed(7)
    mean, log_variance = head.mean(features), head.log_variance(features)
    decoded = head.decoder((mean + (0.5 * log_variance).exp() * torch.randn_like(mean)).flatten(0, 1)).view_as(views)
    fits = (views * decoded.log() + (1 - views) * (1 - decoded).log()).sum((2, 3, 4))
    unit = D.Normal(torch.zeros_like(mean), 1.0)
    apart = D.kl_divergence(D.Normal(mean, (0.5 * log_variance).exp()), unit).sum(2)
    assert loss.item() == close((apart - fits).sum().item() / views.numel(), rel=1e-9)


@pytest.mark.parametrize("views", [2, 3, 5])
@pytest.mark.parametrize("centre_variance", [0.0, 0.7])
def test_the_prior_of_a_set_is_the_integral_over_its_centre(views, centre_variance):
    z, variance = 0.6 * torch.sin(torch.arange(1, views + 1)).double(), 0.15

    def integrand(psi):
        weight = stats.norm.pdf(psi, 0, math.sqrt(centre_variance)) if centre_variance else 1.0
        return weight * np.prod(stats.norm.pdf(z.numpy(), psi, math.sqrt(variance)))

    integral, _ = integrate.quad(integrand, -6, 6, epsabs=1e-14, epsrel=1e-12, limit=400, points=[float(z.mean())])
    ours = elbo.log_prior_of_set(z.view(views, 1), None, variance, centre_variance)
    assert ours.item() == close(math.log(integral), abs=1e-9)


def test_a_gaussian_centre_makes_views_jointly_gaussian():
    z, variance, centre = torch.stack([X, Y, X * Y]), 0.15, 0.4
    covariance = variance * torch.eye(3).double() + centre
    joint = D.MultivariateNormal(torch.zeros(3).double(), covariance).log_prob(z.permute(1, 2, 0)).sum(-1)
    same(elbo.log_prior_of_set(z, None, variance, centre), joint)


def test_the_prior_of_a_set_matches_its_oracles_but_for_constants():
    z, ends = torch.stack([X, Y]), torch.zeros(2, 4, 6).double()
    for centre_variance, expected in ((0.0, -39.71335879932952), (1 - 0.15 / 2, -42.72860463433591)):
        # at z = 0 the constants are left; t / J = 1 is the unit variance that the oracle gives the mean of the views
        terms = [elbo.log_prior_of_set(at, None, 0.15, centre_variance).sum() for at in (z, ends)]
        assert (terms[0] - terms[1]).item() == close(expected, rel=1e-12)


@pytest.mark.parametrize("centre_variance", [0.0, 0.7])
def test_the_expected_prior_is_the_integral_over_the_posterior(centre_variance):
    """A quadrature of three nodes a view is exact for the square that the logarithm is."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(3)
    mean, log_variance = torch.tensor([[0.3], [-0.8], [1.1]]).double(), torch.tensor([[-1.0], [0.4], [-2.5]]).double()
    total = 0.0
    for i, a in enumerate(nodes):
        for j, b in enumerate(nodes):
            for k, c in enumerate(nodes):
                z = mean + (0.5 * log_variance).exp() * torch.tensor([[a], [b], [c]])
                weight = weights[i] * weights[j] * weights[k] / (2 * math.pi) ** 1.5
                total += weight * elbo.log_prior_of_set(z, None, 0.15, centre_variance).item()
    assert elbo.log_prior_of_set(mean, log_variance, 0.15, centre_variance).item() == close(total, rel=1e-10)


def test_one_view_has_no_set():
    with pytest.raises(ValueError, match=r"two views .*got 1"):
        elbo.log_prior_of_set(X.unsqueeze(0), None, 0.15)


def test_gradients_of_the_terms_match_finite_differences():
    mean, log_variance = (part.clone().requires_grad_() for part in (torch.stack([X, Y]), LV))
    check = torch.autograd.gradcheck
    assert check(lambda m, v: elbo.log_prior_of_set(m, v, 0.15), (mean, log_variance))
    assert check(lambda m, v: elbo.log_prior_of_set(m, v, 0.15, 0.7), (mean, log_variance))
    assert check(lambda m, v: elbo.kl(m[0], v[0], m[1], v[1]), (mean, log_variance))
    assert check(lambda m, v: elbo.kl_to_standard(m, v) + elbo.entropy(v), (mean, log_variance))


# The methods


def made(name, **changes):
    """A method, its head and pixels of two or three views, all in float64."""
    kind = METHODS[name]
    settings = kind.Settings(**{"latent_dim": 3, "channels": 4, "views": 3, "likelihood_variance": 0.05, **changes})
    torch.manual_seed(0)
    task = Task(5, size=8, mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4))
    method, head = kind(settings, task).double(), kind.head(settings, 8).build(5).double()
    pixels = torch.rand(3, 4, 3, 8, 8).double()
    method.mean, method.std = (torch.tensor(values).double().view(3, 1, 1) for values in (task.mean, task.std))
    method.before_step(Batch(torch.arange(4), pixels=((pixels - method.mean) / method.std,)))
    return method, head, pixels, torch.randn(3, 4, 5).double()


def restated(name, head, pixels, features, *, prior=0.15, beta=4.0, consistency=0.1):
    """Minus the bound per view and value, image by image and view by view, with torch.distributions."""
    views, n = features.shape[:2]
    mean, log_variance = head.mean(features), head.log_variance(features)
    torch.manual_seed(7)
    z = mean + (0.5 * log_variance).exp() * torch.randn_like(mean)
    decoded = head.decoder(z.flatten(0, 1)).view_as(pixels)
    unit, total = D.Normal(torch.zeros(3).double(), 1.0), 0.0
    for i in range(n):
        q = [D.Normal(mean[j, i], (0.5 * log_variance[j, i]).exp()) for j in range(views)]
        fits = [D.Normal(decoded[j, i], math.sqrt(0.05)).log_prob(pixels[j, i]).sum() for j in range(views)]
        apart = [D.kl_divergence(posterior, unit).sum() for posterior in q]
        if name == "simvae":
            centre = sum(mean[j, i] for j in range(views)) / views
            within = sum((mean[j, i] - centre) ** 2 + (1 - 1 / views) * q[j].variance for j in range(views))
            constant = 3 * ((views - 1) * math.log(2 * math.pi * prior) + math.log(views))
            total += (
                sum(fits) + sum(posterior.entropy().sum() for posterior in q) - 0.5 * (within.sum() / prior + constant)
            )
        elif name == "crvae":
            first_fit, others = fits[0] - apart[0], [fits[j] - apart[j] for j in range(1, views)]
            held = [D.kl_divergence(q[j], q[0]).sum() for j in range(1, views)]
            total += views / 2 * (first_fit + sum(others) / (views - 1) - consistency * sum(held) / (views - 1))
        else:
            total += sum(fits) - (beta if name == "betavae" else 1) * sum(apart)
    return -total / (n * views * pixels[0, 0].numel())


@pytest.mark.parametrize("name", NAMES)
def test_the_loss_is_minus_the_bound_restated(name):
    method, head, pixels, features = made(name)
    torch.manual_seed(7)
    step = method(features, head, None)
    assert step.loss.item() == close(restated(name, head, pixels, features).item(), rel=1e-9)
    assert 0 <= step.measures["active"].item() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_the_loss_match_finite_differences(name):
    method, head, _, features = made(name)

    def loss(inputs, mean, log_variance):
        torch.manual_seed(7)
        head.posterior = lambda at: (head.mean(at) + mean, head.log_variance(at) + log_variance)
        return method(inputs, head, None).loss

    inputs = [features, torch.tensor([0.1, -0.2, 0.3]).double(), torch.tensor([-1.0, -2.0, 0.5]).double()]
    assert torch.autograd.gradcheck(loss, [tensor.requires_grad_() for tensor in inputs], atol=1e-6)


def test_a_beta_is_a_likelihood_that_is_wider():
    """log p - beta KL at variance v is beta times (log p - KL) at beta v, but for constants: the gradients agree."""
    grads = []
    for name, changes in (
        ("betavae", {"beta": 4.0, "likelihood_variance": 0.05}),
        ("vae", {"likelihood_variance": 0.2}),
    ):
        method, head, _, features = made(name, **changes)
        torch.manual_seed(7)
        method(features.requires_grad_(), head, None).loss.backward()
        grads.append(features.grad)
    same(grads[0].flatten(), 4 * grads[1].flatten())


def test_the_prior_pulls_views_together_and_the_entropy_keeps_the_posterior_open():
    mean, log_variance = torch.stack([X, Y]).requires_grad_(), torch.full((2, 4, 6), -9.0).double().requires_grad_()
    bound = elbo.log_prior_of_set(mean, log_variance, 0.15) + elbo.entropy(log_variance).sum(0)
    bound.sum().backward()
    assert ((mean.grad[0] * (mean[1] - mean[0])) >= 0).all()  # uphill is towards the other view
    assert (log_variance.grad > 0).all()  # and, where it is narrow, wider
    assert log_variance.grad.flatten().tolist() == close([0.5] * 48, abs=1e-3)


# Runs


@pytest.fixture(scope="module")
def blobs():
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 60, (32, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(32) % 2
    pixels[labels == 0, :, :, :16] += 150
    pixels[labels == 1, :, :16] += 150
    return TrainingSet(pixels, labels, ["left", "top"], {})


def small(name, **changes):
    settings = METHODS[name].Settings(latent_dim=4, channels=16, views=2)
    shared = {"backbone": "test_resnet", "size": 32, "epochs": 2, "batch_size": 16, "optimizer": "adamw", "lr": 1e-3}
    views = Augmentation(scale=(0.6, 1.0), gray=0.0, blur=0.0)
    return replace(TrainConfig(name, augmentation=views, settings=settings, **shared), **changes)


def weights(model):
    return torch.cat([value.float().flatten() for value in model.state_dict().values()])


@pytest.mark.slow
def test_a_few_steps_make_better_images_than_none(blobs, tmp_path):
    config = small("simvae", epochs=8, lr=5e-3)
    _, first = train(small("simvae", epochs=1), blobs, state=tmp_path / "a", device=CPU)
    model, measures = train(config, blobs, state=tmp_path / "b", device=CPU)
    assert measures["error"] < 0.7 * first["error"]
    with torch.no_grad():
        said = model(blobs.pixels)
    assert said.columns["unc_simvae_error"].mean() < 0.5 * first["error"]


# Bad input


def test_views_sizes_and_settings_that_cannot_be_are_refused_in_one_line(tmp_path, blobs):
    for name in ("simvae", "crvae"):
        with pytest.raises(InputError, match=r"views .*got 1"):
            METHODS[name].Settings(views=1)
    with pytest.raises(InputError, match="or 112, got 100"):
        build(small("simvae", size=100), 0)
    with pytest.raises(InputError, match=r"simvae.*beta"):
        recipe_of("simvae", {}, {"beta": "2"})
    with pytest.raises(InputError, match=r"loss .*a number"):
        train(small("vae", lr=1e30, epochs=4), blobs, state=tmp_path / "s", device=CPU)
    train(small("vae", epochs=1), blobs, state=tmp_path / "t", device=CPU)
    with pytest.raises(InputError, match=r"'vae', .*'simvae'"):
        train(small("simvae", epochs=1), blobs, state=tmp_path / "t", device=CPU)


def test_another_head_or_no_pixels_are_the_callers_mistake():
    method, head, _, features = made("simvae")
    with pytest.raises(ValueError, match="needs a posterior head"):
        method(features, None, None)
    with pytest.raises(ValueError, match="before the step"):
        method(features[:, :2], head, None)
    assert isinstance(head, PosteriorHead)
