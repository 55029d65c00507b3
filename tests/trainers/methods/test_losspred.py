"""Loss prediction: its losses against slow restatements and known values, and what the method does with folds."""

import pytest
import torch

from scoring.errors import InputError
from scoring.heads import UncertaintyHeadSpec
from trainers.methods.losspred import (
    LossPred,
    LossPredSettings,
    brier,
    cross_entropy,
    fold_of,
    l2_loss,
    margin,
    ranking_loss,
    share_ordered,
)
from trainers.methods.method import Batch, Task

U = torch.tensor([0.2, 0.5, 1.0, 0.3, 0.4, 0.5, 0.9, 0.1], dtype=torch.float64)
L = torch.tensor([0.1, 0.6, 0.2, 0.9, 0.5, 0.5, 2.0, 0.0], dtype=torch.float64)


class Said(torch.nn.Module):
    """A head that says one of the features."""

    def forward(self, features):
        return features[:, 0]


def method(n_classes=3, width=4, freeze="nothing", **losspred):
    torch.manual_seed(0)
    return LossPred(LossPredSettings(**losspred), Task(width, n_classes, is_frozen=freeze == "trunk"))


def test_the_ranking_loss_is_what_public_code_gives_with_its_ties():
    assert ranking_loss(U, L).item() == pytest.approx(0.2, abs=1e-12)
    assert ranking_loss(U, L, leeway=0.2).item() == pytest.approx(0.225, abs=1e-12)


def test_the_ranking_loss_of_yoo_and_kweon_is_the_same_over_other_pairs():
    u = U.clone()
    u[5] = 0.4
    pairs = torch.tensor([[i, 7 - i] for i in range(4)]).flatten()  # theirs are (i, n-1-i)
    assert ranking_loss(u[pairs], L[pairs], gap=1.0).item() == pytest.approx(1.05, abs=1e-12)


@pytest.mark.parametrize("n", [2, 7, 32])
def test_the_ranking_loss_matches_the_definition(n):
    generator = torch.Generator().manual_seed(n)
    u, loss = torch.rand(n, generator=generator), torch.rand(n, generator=generator)
    total = 0.0
    for a in range(0, n - 1, 2):
        more, less = (a, a + 1) if loss[a] > loss[a + 1] else (a + 1, a)
        total += max(0.0, 0.1 - (u[more].item() - u[less].item()))
    assert ranking_loss(u, loss).item() == pytest.approx(total / (n // 2), abs=1e-6)


def test_the_ranking_pushes_the_larger_loss_up_and_depends_on_its_order_alone():
    u = torch.tensor([0.3, 0.3], requires_grad=True)
    ranking_loss(u, torch.tensor([5.0, 1.0])).backward()
    assert u.grad[0] < 0 < u.grad[1]
    assert ranking_loss(u, torch.tensor([5.0, 1.0])) == ranking_loss(u, torch.tensor([-3.0, -3.1]))


def test_a_tie_counts_as_the_second_being_larger():
    u = torch.tensor([0.3, 0.3], requires_grad=True)
    ranking_loss(u, torch.tensor([1.0, 1.0])).backward()
    assert u.grad[1] < 0 < u.grad[0]


def test_leeway_and_the_size_of_the_head_are_settings():
    settings = LossPred.Settings(leeway=0.2, hidden=8, depth=1, folds=1)
    assert LossPred.head(settings, 32) == UncertaintyHeadSpec(8, 1)
    assert LossPred.head(LossPred.Settings(), 32) == UncertaintyHeadSpec()
    ours, u, loss = method(leeway=0.6), U[:4], L[:4]
    assert ours._rank(u, loss, 1) == ranking_loss(u, loss, gap=0.1, leeway=0.6) != ranking_loss(u, loss, gap=0.1)
    with pytest.raises(InputError, match="leeway"):
        LossPred.Settings(form="l2", leeway=0.1)


def test_no_gradient_reaches_the_loss_that_is_predicted():
    u, loss = torch.rand(6, requires_grad=True), torch.rand(6, requires_grad=True)
    (ranking_loss(u, loss) + l2_loss(u, loss)).backward()
    assert loss.grad is None
    assert u.grad is not None


def test_the_l2_loss_is_the_mean_squared_distance():
    by_hand = sum((a - b) ** 2 for a, b in zip(U.tolist(), L.tolist(), strict=True)) / 8
    assert l2_loss(U, L).item() == pytest.approx(by_hand)


@pytest.mark.parametrize("form", [l2_loss, ranking_loss])
def test_shapes_that_would_broadcast_are_refused(form):
    with pytest.raises(ValueError, match=r"\(4, 1\) and \(4,\)"):
        form(torch.zeros(4, 1), torch.zeros(4))
    with pytest.raises(ValueError, match="at least 2"):
        ranking_loss(torch.zeros(1), torch.zeros(1))


def test_the_task_losses_match_their_definitions():
    logits, labels = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 2, 1, 0])
    for row, (scores, label) in enumerate(zip(logits.tolist(), labels.tolist(), strict=True)):
        total = sum(torch.tensor(scores).double().exp().tolist())
        p = [torch.tensor(s).double().exp().item() / total for s in scores]
        assert cross_entropy(logits, labels)[row].item() == pytest.approx(
            -torch.tensor(p[label]).log().item(), rel=1e-5
        )
        assert brier(logits, labels)[row].item() == pytest.approx(
            sum((q - (c == label)) ** 2 for c, q in enumerate(p)), rel=1e-6
        )
        others = [q for c, q in enumerate(p) if c != label]
        assert margin(logits, labels)[row].item() == pytest.approx(1 - (p[label] - max(others)), rel=1e-6)


def test_folds_are_even_fixed_and_differ_by_seed():
    rows = torch.arange(10_000)
    fold = fold_of(rows, 5, seed=0)
    counts = torch.bincount(fold, minlength=5)
    assert counts.sum() == 10_000
    assert ((counts - 2000).abs() < 4 * (10_000 * 0.2 * 0.8) ** 0.5).all()
    assert torch.equal(fold[rows[::7]], fold_of(rows[::7], 5, seed=0))
    assert 0.15 < (fold == fold_of(rows, 5, seed=1)).double().mean() < 0.25
    assert fold_of(rows, 5, seed=2**62).min() >= 0


def test_the_loss_of_an_image_comes_from_the_classifier_that_never_saw_it():
    ours = method(folds=2)
    features, labels = torch.rand(1, 6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    rows = next(r for r in torch.arange(600).view(-1, 6) if fold_of(r, 2, 0).tolist() == [0] * 6)
    ours.before_step(Batch(rows))
    step = ours(features, Said(), labels)
    step.loss.backward()
    grad = ours.classifier.weight.grad.view(2, 3, 4)
    assert grad[0].abs().max() == 0 < grad[1].abs().max()
    w, b = ours.classifier.weight.view(2, 3, 4)[0], ours.classifier.bias.view(2, 3)[0]
    logits = features[0] @ w.T + b
    expected = torch.nn.functional.cross_entropy(logits, labels)
    assert step.measures["task"].item() == pytest.approx(expected.item(), rel=1e-5)
    assert step.measures["accuracy"].item() == pytest.approx((logits.argmax(1) == labels).double().mean().item())


def test_without_folds_one_classifier_learns_from_all_and_the_step_is_the_sum_of_both_losses():
    ours = method(folds=1, weight=0.3)
    features, labels = torch.rand(2, 6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    step = ours(features, Said(), labels)
    flat, target = features.flatten(0, 1), labels.repeat(2)
    losses = torch.nn.functional.cross_entropy(ours.classifier(flat), target, reduction="none")
    expected = losses.mean() + 0.3 * ranking_loss(flat[:, 0], losses)
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert step.measures["ordered"].item() == pytest.approx(share_ordered(flat[:, 0], losses).item())


@pytest.mark.parametrize(("changes", "reaches"), [({}, False), ({"stop_gradient": False}, True)])
def test_the_head_reaches_the_backbone_only_where_it_may(changes, reaches):
    ours = method(form="l2", loss_column="mine", freeze="trunk" if not reaches else "nothing", **changes)
    features = torch.rand(1, 6, 4, requires_grad=True)
    head = UncertaintyHeadSpec(8).build(4)
    ours.before_step(Batch(torch.arange(6), torch.rand(6).double()))
    ours(features, head, None).loss.backward()
    assert (features.grad is not None) == reaches
    assert head.layers[0].weight.grad is not None


def test_losses_of_ones_own_are_what_is_predicted():
    ours = method(form="l2", loss_column="mine", freeze="trunk")
    assert ours.classifier is None
    losses = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    ours.before_step(Batch(torch.arange(3), losses))
    features = torch.rand(2, 3, 4)
    step = ours(features, Said(), None)
    expected = (features[..., 0] - losses.float()).square().mean()
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_backbone_that_nothing_would_train_is_refused():
    with pytest.raises(InputError, match="add --freeze"):
        method(loss_column="mine")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"form": "l1"}, "got 'l1'"),
        ({"task": "hinge"}, "task must be"),
        ({"folds": 0}, "folds .*got 0"),
        ({"margin": 0.0}, "margin .*got 0"),
        ({"stop_gradient": False}, "always stops its gradient"),
        ({"within": 1.5}, "within .*got 1.5"),
        ({"within": 0.3, "form": "l2"}, "leave out within"),
    ],
)
def test_a_recipe_that_cannot_be_is_refused(changes, words):
    with pytest.raises(InputError, match=words):
        LossPredSettings(**changes)


def test_pairs_within_an_image_and_between_images_are_weighed():
    # logits are the features themselves; two views of 4 images, of which the first is the plain one
    made = method(n_classes=2, width=2, freeze="trunk", within=0.25, folds=1)
    predicted = torch.rand(2, 4)
    said = predicted.flatten()
    assert (made.n_standard, made.n_plain) == (2, 1)
    with torch.no_grad():
        made.classifier.weight.copy_(torch.eye(2))
        made.classifier.bias.zero_()
    torch.manual_seed(1)
    features, labels = torch.randn(2, 4, 2), torch.tensor([0, 1, 1, 0])
    loss = [[-features[v, i].log_softmax(0)[labels[i]].item() for i in range(4)] for v in range(2)]

    def hinge(sign, a, b):
        return max(0.0, 0.1 - sign * (a - b).item())

    within = (
        sum(hinge(1, predicted[1, i], predicted[0, i]) for i in range(4)) / 4
    )  # a view is less certain, whatever its loss
    order = {(v, i): 1 if loss[v][i] > loss[v][i + 1] else -1 for v in range(2) for i in (0, 2)}
    between = sum(hinge(sign, predicted[v, i], predicted[v, i + 1]) for (v, i), sign in order.items()) / 4
    fit = sum(sum(row) for row in loss) / 8
    step = made(features, lambda flat: said, labels)
    assert step.loss.item() == pytest.approx(fit + 0.25 * within + 0.75 * between, rel=1e-5)


def test_cross_fitted_losses_are_honest_where_features_are_noise():
    """Noise that a classifier can learn by heart: with folds it is wrong on what it has not seen, as it should be."""
    torch.manual_seed(0)
    features, labels = torch.randn(1, 64, 256), torch.randint(0, 2, (64,))
    task_loss = {}
    for folds in (1, 4):
        ours = LossPred(LossPredSettings(folds=folds), Task(256, 2))
        optimizer = torch.optim.SGD(ours.parameters(), lr=0.5)
        for _ in range(200):
            step = ours(features, Said(), labels)
            optimizer.zero_grad()
            step.loss.backward()
            optimizer.step()
        task_loss[folds] = step.measures["task"].item()
    assert task_loss[1] < 0.1
    assert task_loss[4] > 0.6  # a coin flip costs 0.69 nats
