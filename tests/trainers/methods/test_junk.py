"""Junk: its losses against slow restatements, and what the method learns from damaged views."""

import math

import pytest
import torch
import torch.nn.functional as F

from scoring.errors import InputError
from scoring.heads import JunkHeadSpec
from trainers.config import TrainConfig
from trainers.methods.junk import Junk, JunkSettings, damage_cross_entropy, pair_loss
from trainers.methods.method import Task
from trainers.methods.settings import Augmentation


class Said(torch.nn.Module):
    """A head that says one of the features."""

    def forward(self, features):
        return features[:, 0]


def given(*views):
    """Features whose first number is what the head will say."""
    return torch.stack([torch.stack([torch.tensor(view), torch.zeros(len(view))], 1) for view in views])


def test_the_cross_entropy_matches_the_logits_of_a_softplus_head():
    generator = torch.Generator().manual_seed(0)
    intact, damaged = torch.randn(9, generator=generator), 2 * torch.randn(20, generator=generator)
    ours = damage_cross_entropy(F.softplus(intact), F.softplus(damaged))
    zeros, ones = torch.zeros(9), torch.ones(20)
    slow = [F.binary_cross_entropy_with_logits(*pair) for pair in ((intact, zeros), (damaged, ones))]
    assert ours.item() == pytest.approx(sum(slow).item() / 2, rel=1e-5)


def test_the_cross_entropy_is_finite_where_a_softplus_underflows():
    tiny = torch.tensor([1e-6], requires_grad=True)  # the least that an uncertainty head says
    loss = damage_cross_entropy(torch.tensor([1e-6]), tiny)
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-6) / 2, rel=1e-3)
    assert tiny.grad.isfinite().all()


def test_the_loss_of_pairs_matches_the_definition():
    intact, damaged = torch.tensor([0.1, 2.0, 0.5]), torch.tensor([[1.5, 2.5, 0.2], [0.6, 4.0, 0.5]])
    total = 0.0
    for view in damaged.tolist():
        for u, v in zip(intact.tolist(), view, strict=True):
            total += max(0.0, 1.0 - (v - u))
    assert pair_loss(intact, damaged, gap=1.0).item() == pytest.approx(total / 6, rel=1e-6)
    with pytest.raises(ValueError, match=r"\(3,\) and \(3,\)"):
        pair_loss(intact, intact, gap=1.0)


@pytest.mark.parametrize("within", [0.0, 0.3, 1.0])
def test_the_first_view_is_the_image_and_all_others_are_damaged(within):
    features = given([0.1, 0.7, 0.2], [2.0, 0.3, 0.9], [0.2, 4.0, 1.0])
    method = Junk(JunkSettings(within=within, margin=0.5, n_damaged=2, noise=0), Task(2))
    assert (method.n_plain, method.n_standard, method.n_small) == (1, 3, 0)
    step = method(features, Said(), None)
    intact, damaged = features[0, :, 0], features[1:, :, 0]
    among = damage_cross_entropy(intact, damaged.flatten())
    expected = within * pair_loss(intact, damaged, gap=0.5) + (1 - within) * among
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert step.measures["ordered"].item() == pytest.approx(5 / 6)


def test_no_gradient_reaches_the_backbone():
    features = torch.randn(2, 8, 4, requires_grad=True)
    head = JunkHeadSpec(8, 1).build(4)
    Junk(JunkSettings(), Task(4))(features, head, None).loss.backward()
    assert features.grad is None
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_a_head_learns_what_damage_adds_and_not_what_its_images_look_like():
    """Feature 0 is what damage adds, feature 1 separates two kinds of originals, one of them damaged more often."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    method, head = Junk(JunkSettings(noise=0), Task(2)), JunkHeadSpec(16, 2).build(2)
    optimizer = torch.optim.AdamW(head.parameters(), lr=1e-2)

    def views(n):
        kind = (torch.rand(n, generator=generator) < 0.5).float()
        whole = torch.stack([0.1 * torch.randn(n, generator=generator), kind], 1)
        return torch.stack([whole, whole + torch.tensor([1.0, 0.0])])

    for _ in range(150):
        step = method(views(64), head, None)
        optimizer.zero_grad()
        step.loss.backward()
        optimizer.step()
    u = head(views(500).flatten(0, 1)).view(2, 500)
    assert (u[1] > u[0] + 1).float().mean() > 0.99
    assert torch.exp(-u[0]).mean() > 0.9  # the probability of a whole image
    assert torch.exp(-u[1]).mean() < 0.1


def test_noise_is_a_share_of_the_spread_of_the_features():
    torch.manual_seed(0)
    features = torch.randn(2, 3000, 8) * torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8])
    seen = []
    head = torch.nn.Module()
    head.forward = lambda given: (seen.append(given), given[:, 0].exp())[1]
    Junk(JunkSettings(noise=0.5), Task(8))(features, head, None)
    added = seen[0] - features.flatten(0, 1)
    spread = (sum(i * i for i in range(1, 9)) / 8) ** 0.5
    assert added.std(0).tolist() == pytest.approx([0.5 * spread] * 8, rel=0.05)


def test_views_that_are_not_all_damaged_are_refused_with_what_to_do():
    assert TrainConfig("junk", augmentation=Junk.defaults["augmentation"]).augmentation.damage == 1
    with pytest.raises(InputError, match=r"curate cache .*--set damage=1"):
        TrainConfig("junk", augmentation=Augmentation(damage=0.2))


def test_settings_out_of_range_are_refused():
    for wrong, words in (
        ({"margin": 0}, "margin must be"),
        ({"within": 2}, "within must be"),
        ({"n_damaged": 0}, "n_damaged must be"),
    ):
        with pytest.raises(InputError, match=words):
            JunkSettings(**wrong)
