"""Losses between Gaussians, against their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F
from gaussian_draws import I, X, Y, seeded
from torch.distributions import Independent, Normal, kl_divergence

from scoring.errors import InputError
from trainers.methods import gaussian_losses
from trainers.methods.gaussian_losses import draw, ranking_loss, set_loss, symmetric_kl

UNIT = torch.stack([F.normalize(X, dim=1), F.normalize(Y, dim=1)], dim=1)  # two draws of each of four images


def sets(n, group, width=5, seed=0):
    return F.normalize(seeded(n, group, width, seed=seed), dim=-1)


def test_draws_have_unit_length_and_the_place_and_spread_of_their_gaussian():
    torch.manual_seed(0)
    mean = torch.tensor([[[3.0, 0.0], [0.0, 3.0]]], dtype=torch.float64)  # one image, two Gaussians
    log_variance = torch.tensor([[[-8.0, -2.0], [-8.0, -8.0]]], dtype=torch.float64)
    z = draw(mean, log_variance, 20_000)
    assert z.shape == (1, 40_000, 2)
    assert torch.allclose(z.norm(dim=-1), torch.ones(1, 40_000, dtype=torch.float64))
    of_first, of_second = z[0, :20_000], z[0, 20_000:]
    # far from 0, the angle is nearly the coordinate across over the length: its deviation is e^-1 / 3
    assert torch.atan2(of_first[:, 1], of_first[:, 0]).std().item() == pytest.approx(math.exp(-1) / 3, rel=0.03)
    assert of_second.mean(0).tolist() == pytest.approx([0, 1], abs=1e-2)


def test_the_gradient_of_a_draw_reaches_mean_and_variance():
    def loss(mean, log_variance):
        torch.manual_seed(0)
        return (draw(mean, log_variance, 3) * seeded(2, 6, 5, seed=9)).sum()

    inputs = [seeded(2, 2, 5, seed=at).requires_grad_() for at in (1, 2)]
    assert torch.autograd.gradcheck(loss, inputs)


@pytest.mark.parametrize(("group", "other"), [(1, 1), (3, 3), (2, 4)])
def test_the_set_loss_is_its_definition_with_every_pair_of_draws(group, other):
    ours, others, temperature = sets(4, group), sets(4, other, seed=1), 0.1

    def d(i, j):
        return sum(float(u @ t) for u in ours[i] for t in others[j]) / (group * other)

    total = 0.0
    for i in range(4):
        chance = math.exp(d(i, i) / temperature) / sum(math.exp(d(k, i) / temperature) for k in range(4))
        total -= math.log(chance)
    assert set_loss(ours, others, temperature=temperature).item() == pytest.approx(total / 4, abs=1e-9)


def test_the_set_loss_has_its_gradient_and_refuses_sets_of_other_images():
    assert torch.autograd.gradcheck(
        lambda a, b: set_loss(a, b, temperature=0.3), (sets(3, 2).requires_grad_(), sets(3, 2, seed=1).requires_grad_())
    )
    with pytest.raises(ValueError, match=r"\(N, G, M\) and"):
        set_loss(sets(3, 2), sets(4, 2), temperature=1)


def test_the_divergence_matches_its_oracle_and_torch():
    ours, others = 0.3 * torch.sin(I).reshape(4, 6), 0.2 * torch.cos(I).reshape(4, 6)

    def gaussian(mean, log_variance):
        return Independent(Normal(mean, (0.5 * log_variance).exp()), 1)

    p, q = gaussian(X, ours), gaussian(Y, others)
    assert kl_divergence(p, q).tolist() == pytest.approx([0.466938111, 5.6251231273, 0.4003298351, 5.4001054695])
    expected = kl_divergence(p, q) + kl_divergence(q, p)
    assert torch.allclose(symmetric_kl(X, ours, Y, others), expected, atol=1e-9, rtol=0)
    assert torch.equal(symmetric_kl(X, ours, X, ours), torch.zeros(4, dtype=torch.float64))


def test_the_divergence_has_its_gradient():
    assert torch.autograd.gradcheck(symmetric_kl, [seeded(2, 3, seed=at).requires_grad_() for at in range(4)])


def test_the_divergence_of_mixtures_is_at_most_what_is_minimised():
    """KL is convex in both together, so the mean over the branches bounds the even mixtures'."""
    grid = torch.linspace(-12, 12, 20_001, dtype=torch.float64)[:, None]

    def density(mean, log_variance):
        return Normal(mean, (0.5 * log_variance).exp()).log_prob(grid).exp().mean(1)

    mean, other = torch.tensor([-1.0, 2.0]).double(), torch.tensor([-0.5, 1.0]).double()
    log_variance, other_log = torch.tensor([0.0, 0.5]).double(), torch.tensor([0.4, -0.2]).double()
    p, q = density(mean, log_variance), density(other, other_log)
    exact = ((p - q) * (p / q).log()).sum().item() * 24 / 20_000
    bound = symmetric_kl(mean[:, None], log_variance[:, None], other[:, None], other_log[:, None]).mean().item()
    assert 0 < exact < bound


def slow_ranking(z, bins):
    """FastAP, query by query and pair by pair: h by a triangle around each of the centres of a histogram."""
    n, group, _ = z.shape
    flat, owner = z.flatten(0, 1), [i for i in range(n) for _ in range(group)]
    width, total = 4 / bins, 0.0
    for query, of in enumerate(owner):
        every, in_set = [0.0] * (bins + 1), [0.0] * (bins + 1)
        for at, other in enumerate(owner):
            if at == query:
                continue
            distance = float((flat[query] - flat[at]).square().sum())
            for centre in range(bins + 1):
                share = max(0.0, 1 - abs(distance - centre * width) / width)
                every[centre] += share
                in_set[centre] += share * (other == of)
        precision = [
            in_set[b] * sum(in_set[: b + 1]) / sum(every[: b + 1]) if sum(every[: b + 1]) else 0.0
            for b in range(bins + 1)
        ]
        total += sum(precision) / (group - 1)
    return 1 - total / len(owner)


@pytest.mark.parametrize(
    ("given", "bins", "known"),
    [(UNIT, 10, 0.8293360165), (UNIT, 20, 0.8019310310), (UNIT.reshape(2, 4, 6), 10, 0.5595146410)],
)
def test_the_ranking_loss_matches_its_oracle(given, bins, known):
    assert ranking_loss(given, bins=bins).item() == pytest.approx(known, abs=1e-9)
    assert slow_ranking(given, bins) == pytest.approx(known, abs=1e-9)


@pytest.mark.parametrize(("n", "group", "bins"), [(2, 2, 10), (4, 3, 7), (3, 5, 1), (1, 3, 10)])
@pytest.mark.parametrize("block", [1, 8, 1 << 20])
def test_the_ranking_loss_is_its_definition_in_blocks_of_any_size(monkeypatch, n, group, bins, block):
    monkeypatch.setattr(gaussian_losses, "BLOCK_CPU", block)
    z = sets(n, group, seed=n + bins)
    assert ranking_loss(z, bins=bins).item() == pytest.approx(slow_ranking(z, bins), abs=1e-9)
    assert torch.autograd.gradcheck(lambda z: ranking_loss(z, bins=bins), z.requires_grad_())


def test_the_ranking_loss_is_0_where_every_draw_finds_its_own_first_and_falls_towards_it():
    apart = F.one_hot(torch.arange(4)).double()[:, None].expand(4, 3, 4)
    assert ranking_loss(apart).item() == pytest.approx(0, abs=1e-12)
    z = sets(6, 4).requires_grad_()
    before = ranking_loss(z)
    before.backward()
    with torch.no_grad():
        assert ranking_loss(F.normalize(z - 0.5 * z.grad, dim=-1)) < before


def test_a_ranking_without_two_of_a_kind_is_refused():
    with pytest.raises(InputError, match=r"2 draws .*\(4, 1, 5\)"):
        ranking_loss(sets(4, 1))
