"""Heads that predict classes: each number against a slow restatement in float64, or a published oracle."""

import math

import numpy as np
import pytest
import torch

from scoring.class_heads import (
    ClassifierHeadSpec,
    DropoutHeadSpec,
    DropoutScorer,
    EnsembleHeadSpec,
    HetXLHeadSpec,
    SNGPHeadSpec,
)
from scoring.class_modules import entropy_and_spread, log_determinant, mean_log_probability
from scoring.errors import InputError

STEPS = torch.arange(1, 25, dtype=torch.float64)
X, Y = STEPS.sin().reshape(4, 6), (0.5 * STEPS).cos().reshape(4, 6)
SPECS = [
    ClassifierHeadSpec(3),
    EnsembleHeadSpec(3, 4),
    DropoutHeadSpec(3, 0.5, 5),
    HetXLHeadSpec(3, 4, 2, 5),
    SNGPHeadSpec(3, 16),
]


def built(spec, width=6):
    torch.manual_seed(0)
    return spec.build(width).eval()


def entropy(p):
    return -(p * np.log(p)).sum(-1)


def test_entropy_of_the_mean_and_mutual_information_are_the_known_numbers():
    said = entropy_and_spread(torch.stack([X, Y, (0.3 * STEPS).sin().reshape(4, 6)], 1)).numpy()
    assert said[:, 0] == pytest.approx([1.72938847, 1.77511438, 1.70768462, 1.75932916], abs=1e-6)
    assert said[:, 1] == pytest.approx([0.09116585, 0.15378654, 0.05366500, 0.13981680], abs=1e-6)


def test_who_all_agree_have_no_divergence_and_who_are_certain_of_different_classes_have_the_most():
    agree = torch.tensor([[[1.0, 2.0, 3.0]] * 4])
    assert entropy_and_spread(agree)[0, 1] == 0
    differ = 1e4 * torch.eye(4)[None]
    assert entropy_and_spread(differ)[0].tolist() == pytest.approx([math.log(4)] * 2)


def test_the_log_determinant_is_the_known_number_and_the_dense_one():
    factor, diagonal = torch.arange(1.0, 7.0).sin().reshape(1, 3, 2), torch.tensor([[0.5, 1.0, 2.0]])
    assert log_determinant(factor, diagonal).item() == pytest.approx(1.9502486029, abs=1e-6)
    rng = np.random.default_rng(0)
    factor, diagonal = rng.normal(size=(5, 40, 7)), rng.uniform(1e-3, 4, (5, 40))
    dense = [np.linalg.slogdet(v @ v.T + np.diag(d))[1] for v, d in zip(factor, diagonal, strict=True)]
    assert log_determinant(torch.tensor(factor), torch.tensor(diagonal)).numpy() == pytest.approx(dense, rel=1e-5)


def test_the_variance_of_a_gaussian_process_is_the_known_number():
    head = built(SNGPHeadSpec(3, 6, ridge=1.0))
    phi = X.cos().float()
    head.precision += phi.T @ phi
    assert head.variance(phi).tolist() == pytest.approx([0.31845664, 0.24747940, 0.24971582, 0.31732651], abs=1e-5)
    apart = head.variance(Y.cos().float()).tolist()
    assert apart == pytest.approx([0.44787576, 0.44342388, 0.44455048, 0.45105264], abs=1e-5)


def test_random_features_give_the_kernel_of_their_length():
    head = built(SNGPHeadSpec(2, 8192, length=0.7), width=6)
    x = torch.nn.functional.normalize(torch.cat([X, Y]).float(), dim=1)
    phi = head.random_features(x)
    kernel = (-torch.cdist(x, x).square() / (2 * 0.7**2)).exp()
    assert (phi @ phi.T - kernel).abs().max() < 0.06  # 4 standard errors of 8,192 features


def test_images_far_from_all_that_was_added_keep_the_variance_of_the_prior_and_lose_certainty():
    head = built(SNGPHeadSpec(3, 2048, length=0.2, ridge=0.1))
    seen, unseen = torch.eye(6)[:1].repeat(50, 1), torch.eye(6)[3:4]
    head.add(seen)
    near, far = (head.variance(head.random_features(x)).item() for x in (seen[:1], unseen))
    assert near < 0.01
    assert far == pytest.approx(1, abs=0.1)
    raw = head.out(head.random_features(unseen))
    expected = raw / math.sqrt(1 + 12.5 * far)
    assert torch.allclose(head.logits(unseen), expected, rtol=1e-4)


def test_a_precision_that_was_read_is_used_and_not_the_one_before():
    first, other = built(SNGPHeadSpec(3, 16)), built(SNGPHeadSpec(3, 16))
    before = first(X.float())
    other.add(Y.float())
    first.load_state_dict(other.state_dict())
    assert torch.equal(first(X.float()), other(X.float()))
    assert not torch.equal(first(X.float()), before)


def test_an_ensemble_is_the_mean_of_its_members():
    head, x = built(SPECS[1]), X.float()
    weight = head.out.weight.detach().double().numpy().reshape(4, 3, 6)
    bias = head.out.bias.detach().double().numpy().reshape(4, 3)
    logits = np.einsum("nd,kcd->nkc", X.numpy(), weight) + bias
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    expected = entropy(p.mean(1))
    said = SPECS[1].score(head(x))
    assert said["unc_<method>_entropy"].detach().numpy() == pytest.approx(expected, abs=1e-5)
    assert said["unc_<method>_jsd"].detach().numpy() == pytest.approx(expected - entropy(p).mean(1), abs=1e-5)
    assert head.log_probabilities(x).exp().detach().numpy() == pytest.approx(p.mean(1), abs=1e-5)


def test_dropout_scores_with_masks_that_drop_the_share_and_keep_the_mean():
    head = built(DropoutHeadSpec(3, 0.25, 1000), width=64)
    kept = head.masks > 0
    assert kept.float().mean().item() == pytest.approx(0.75, abs=0.01)
    assert head.masks[kept].unique().tolist() == pytest.approx([4 / 3])
    x = torch.randn(2, 64)
    expected = torch.stack([head.out(x * mask) for mask in head.masks], 1)
    assert torch.allclose(head.log_probabilities(x), mean_log_probability(expected), atol=1e-5)


def test_without_noise_het_xl_is_a_softmax_at_its_temperature():
    head = built(HetXLHeadSpec(3, 4, 2, 50))
    with torch.no_grad():
        for layer in (head.factor, head.diagonal):
            layer.weight.zero_()
            layer.bias.fill_(0.0 if layer is head.factor else -100.0)
    plain = head.out(head.mean(X.float())) / 1.65  # the middle of .3 and 3
    assert head.log_probabilities(X.float()).detach().numpy() == pytest.approx(
        plain.log_softmax(1).detach().numpy(), abs=0.1
    )
    entropies, spread, log_det = head(X.float()).unbind(1)
    assert spread.max() < 0.01
    assert log_det.tolist() == pytest.approx([4 * math.log(1e-3)] * 4, abs=1e-4)
    assert entropies.min() > 0


def test_the_noise_of_het_xl_has_the_stated_covariance():
    head = built(HetXLHeadSpec(2, 3, 2, 1000))
    with torch.no_grad():
        head.out.weight.copy_(torch.eye(3)[:2])
        head.out.bias.zero_()
    x = X[:1].float()
    factor, diagonal = head.covariance(x)
    covariance = (factor @ factor.mT + torch.diag_embed(diagonal))[0, :2, :2]
    draws = head.logits(x)[0] * head.temperature
    assert torch.allclose(draws.T.cov(), covariance, atol=0.2)
    assert draws.mean(0).tolist() == pytest.approx(head.mean(x)[0, :2].tolist(), abs=0.1)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.kind)
def test_an_image_has_the_same_scores_in_every_batch_and_every_model(spec):
    head, x = built(spec), X.float()
    columns = spec.score(head(x))
    assert list(columns) == list(spec.columns)
    alone = [spec.score(head(row[None])) for row in x.flip(0)]
    again = built(spec)
    again.load_state_dict(head.state_dict())
    for name, values in columns.items():
        assert values.shape == (4,)
        assert [columns[name].item() for columns in alone][::-1] == pytest.approx(values.tolist(), abs=1e-5)
        assert torch.equal(spec.score(again(x))[name], values)


@pytest.mark.parametrize("spec", SPECS[1:], ids=lambda spec: spec.kind)
def test_many_images_at_once_are_done_in_blocks(spec, monkeypatch):
    head, x = built(spec), X.float()
    together = head(x)
    monkeypatch.setattr("scoring.class_modules.BLOCK", 1)
    assert torch.allclose(head(x), together, atol=1e-6)


def test_passes_with_dropout_are_reported_as_the_members_of_an_ensemble():
    logits = torch.stack([X, Y])
    said = DropoutScorer().score(logits)
    expected = entropy_and_spread(logits.transpose(0, 1))
    assert torch.equal(torch.stack(list(said.values()), 1), expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda: EnsembleHeadSpec(0),
        lambda: EnsembleHeadSpec(3, 10**6),
        lambda: DropoutHeadSpec(3, 0.0),
        lambda: DropoutHeadSpec(3, 1.0),
        lambda: DropoutHeadSpec(3, float("nan")),
        lambda: HetXLHeadSpec(3, 4, 5),
        lambda: HetXLHeadSpec(3, 10**6),
        lambda: SNGPHeadSpec(3, 10**6),
        lambda: SNGPHeadSpec(3, length=0.0),
        lambda: SNGPHeadSpec(3, ridge=float("inf")),
        lambda: SNGPHeadSpec(3, mean_field=-1.0),
    ],
)
def test_a_card_with_invalid_or_excessive_sizes_is_refused(make):
    with pytest.raises(InputError, match="needs"):
        make()
