import pytest
import torch
import torch.nn.functional as F

from scoring.distributions import power_spherical
from trainers.methods.classes import Supervised
from trainers.methods.method import Task
from trainers.methods.settings import Settings
from trainers.methods.siamese import (
    DirectPredictor,
    SiameseSettings,
    SimSiam,
    VISimSiam,
    pairs,
    simsiam_loss,
    visimsiam_loss,
)

I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X, Y = torch.sin(I).reshape(4, 6), torch.cos(0.5 * I).reshape(4, 6)


class Given(torch.nn.Module):
    """A head that says what it was reported, whatever the features."""

    def __init__(self, kappa):
        super().__init__()
        self.kappa = torch.nn.Parameter(kappa)

    def forward(self, features):
        return self.kappa


def tiny(**changes):
    return SiameseSettings(latent_dim=6, hidden_dim=8, **changes)


def test_simsiam_loss_matches_its_oracle():
    cosine = torch.stack([F.cosine_similarity(X, Y), F.cosine_similarity(Y, X)])
    # the published form is the sum of two halves over the two directions; here it is their mean
    assert simsiam_loss(cosine).item() == pytest.approx(-0.005671969262721593, abs=1e-12)


def test_visimsiam_loss_is_the_power_spherical_likelihood_of_algorithm_1():
    z1, z2 = F.normalize(X, dim=1), F.normalize(Y, dim=1)
    mu1, mu2 = F.normalize(X + 0.2, dim=1), F.normalize(Y - 0.1, dim=1)
    k1, k2 = torch.tensor([1.0, 2, 3, 4]).double(), torch.tensor([5.0, 6, 7, 8]).double()
    cosine = torch.stack([(z2 * mu1).sum(1), (z1 * mu2).sum(1)])
    ours = visimsiam_loss(cosine, torch.stack([k1, k2]), 6)
    printed = (-power_spherical.log_prob(z2, mu1, k1) - power_spherical.log_prob(z1, mu2, k2)).mean()
    assert ours.item() == pytest.approx(printed.item() / 2 / 5, rel=1e-12)  # mean of two directions, M - 1 = 5


@pytest.mark.parametrize("kind", [SimSiam, VISimSiam])
def test_no_gradient_reaches_the_target(kind):
    torch.manual_seed(0)
    method = kind(tiny(), Task(5))
    features = torch.randn(2, 8, 5)
    head = Given(torch.ones(16)) if kind is VISimSiam else None
    free = method.projector(features.flatten(0, 1)).detach()
    method.projector = torch.nn.Identity()
    z = free.clone().requires_grad_()
    method(z.view(2, 8, 6), head, None).loss.backward()
    # the same loss by hand, with targets that are constants
    again = free.clone().requires_grad_()
    target, mu = F.normalize(free, dim=1).view(2, 8, 6), F.normalize(method.predictor(again), dim=1).view(2, 8, 6)
    cosine = torch.stack([(target[0] * mu[1]).sum(1), (target[1] * mu[0]).sum(1)])
    (simsiam_loss(cosine) if kind is SimSiam else visimsiam_loss(cosine, torch.ones(2, 8), 6)).backward()
    assert torch.allclose(z.grad, again.grad, atol=1e-6)
    assert head is None or head.kappa.grad.abs().min() > 0


def test_the_likelihood_pulls_kappa_up_where_prediction_is_good_and_down_where_it_is_bad():
    cosine = torch.tensor([0.99, 0.05], dtype=torch.float64)
    kappa = torch.tensor([3.0, 3.0], dtype=torch.float64, requires_grad=True)
    visimsiam_loss(cosine, kappa, 6).backward()
    assert kappa.grad[0] < 0 < kappa.grad[1]


def test_every_standard_view_is_the_target_of_every_other_view():
    assert pairs(4, 2) == ([0, 0, 0, 1, 1, 1], [1, 2, 3, 0, 2, 3])


def test_direct_predictor_matches_its_oracle():
    predictor = DirectPredictor(6).double()
    predictor.correlation.copy_(torch.cat([X, Y]).T @ torch.cat([X, Y]) / 8)  # at their length, as the oracle's
    predictor.renew()
    values = torch.linalg.eigvalsh(predictor.correlation)
    expected = [0, 0, 0.0292393653, 0.1231765898, 0.150761191, 2.6936967264]
    assert values.tolist() == pytest.approx(expected, abs=1e-9)
    assert predictor.weight.trace().item() == pytest.approx(1.6146023245, abs=1e-6)
    assert predictor.weight.norm().item() == pytest.approx(1.0696927750, abs=1e-6)


def test_direct_predictor_keeps_a_running_mean_that_starts_with_the_first_batch():
    predictor = DirectPredictor(6, rho=0.3)
    directions = X / X.square().sum(1, keepdim=True).sqrt(), Y / Y.square().sum(1, keepdim=True).sqrt()
    first, second = ((rows.T @ rows / 4).float() for rows in directions)
    predictor.follow(X.float() * torch.tensor([[1.0], [20.0], [0.1], [3.0]]))  # lengths do not count
    assert torch.allclose(predictor.correlation, first, atol=1e-6)
    predictor.follow(Y.float())
    assert torch.allclose(predictor.correlation, 0.3 * first + 0.7 * second, atol=1e-6)


@pytest.mark.parametrize("predictor", ["direct", "mlp"])
def test_simsiam_and_visimsiam_differ_in_nothing_but_the_loss(predictor):
    settings = tiny(predictor=predictor)
    torch.manual_seed(0)
    plain = SimSiam(settings, Task(5))
    torch.manual_seed(0)
    ours = VISimSiam(settings, Task(5))
    assert {k: v.shape for k, v in plain.state_dict().items()} == {k: v.shape for k, v in ours.state_dict().items()}
    features = torch.randn(4, 16, 5)
    first, two = plain(features, None, None), ours(features, Given(torch.ones(64)), None)
    assert first.measures["cosine"].item() == pytest.approx(two.measures["cosine"].item(), abs=1e-6)
    assert first.loss.item() == pytest.approx(-first.measures["cosine"].item(), abs=1e-6)
    assert two.loss.item() != pytest.approx(first.loss.item(), abs=1e-3)


def test_spread_is_one_on_the_whole_sphere_and_zero_after_collapse():
    torch.manual_seed(0)
    method = VISimSiam(SiameseSettings(latent_dim=64, hidden_dim=64), Task(64))
    method.projector = torch.nn.Identity()
    even = torch.randn(2, 4000, 64)
    assert method(even, Given(torch.ones(8000)), None).measures["spread"].item() == pytest.approx(1, abs=0.02)
    point = torch.randn(1, 1, 64).expand(2, 4000, 64)
    assert method(point, Given(torch.ones(8000)), None).measures["spread"].item() == pytest.approx(0, abs=1e-5)


def test_supervised_loss_is_smoothed_cross_entropy_and_counts_hits():
    torch.manual_seed(0)
    method, head = Supervised(Settings(), Task(5, 3)), Supervised.head(Settings(), 32, 3).build(5)
    features, labels = torch.randn(1, 6, 5), torch.tensor([0, 1, 2, 0, 1, 2])
    step = method(features, head, labels)
    logits = features[0] @ head.weight.T + head.bias
    log_p = logits.log_softmax(1)
    smooth = torch.full((6, 3), 0.1 / 3)
    smooth[torch.arange(6), labels] += 0.9
    assert step.loss.item() == pytest.approx(-(smooth * log_p).sum(1).mean().item(), abs=1e-5)
    assert step.measures["accuracy"].item() == pytest.approx((logits.argmax(1) == labels).float().mean().item())
