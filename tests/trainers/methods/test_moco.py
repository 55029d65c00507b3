from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from scoring.errors import InputError
from trainers import loop
from trainers.build import build, make_optimizer
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import require_enough, train
from trainers.methods.moco import MoCo, MoCoSettings, queue_loss
from trainers.methods.momentum import MomentumEncoder, Queue
from trainers.methods.settings import Augmentation

CPU = torch.device("cpu")
I = torch.arange(1, 25, dtype=torch.float64)  # noqa: E741
X = F.normalize(torch.sin(I).reshape(4, 6), dim=1)
Y = F.normalize(torch.cos(0.5 * I).reshape(4, 6), dim=1)
SIX = torch.arange(1, 7, dtype=torch.float64)
EARLIER = F.normalize(torch.stack([torch.sin(0.7 * SIX + j) for j in range(5)]), dim=1)


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return TrainingSet(torch.randint(0, 255, (48, 3, 32, 32), generator=generator, dtype=torch.uint8), None, [], {})


def recipe(**changes):
    settings = MoCoSettings(latent_dim=8, hidden_dim=8, queue=32, momentum=0.9, key_groups=2)
    base = TrainConfig(
        *("moco", "test_resnet", 32, 2, 16, 0.05), settings=settings, augmentation=Augmentation(scale=(0.5, 1.0))
    )
    return replace(base, **changes)


def weights(model):
    return torch.cat([value.float().flatten() for value in model.state_dict().values()])


@pytest.mark.parametrize(("temperature", "known"), [(0.07, 13.320923561168735), (0.2, 5.166929553869689)])
def test_the_loss_of_the_queue_matches_its_oracle(temperature, known):
    assert queue_loss(X, Y, EARLIER, temperature=temperature).item() == pytest.approx(known, abs=1e-9)


def test_the_loss_of_the_queue_is_its_definition_and_has_its_gradient():
    total = 0.0
    for q, k in zip(X, Y, strict=True):
        positive = torch.exp(q @ k / 0.5)
        total -= torch.log(positive / (positive + sum(torch.exp(q @ n / 0.5) for n in EARLIER)))
    assert queue_loss(X, Y, EARLIER, temperature=0.5).item() == pytest.approx(total.item() / 4, abs=1e-12)
    torch.autograd.gradcheck(lambda q: queue_loss(q, Y, EARLIER, temperature=0.5), X.clone().requires_grad_())


def test_the_loss_of_the_queue_refuses_shapes_that_would_broadcast():
    with pytest.raises(ValueError, match=r"and \(K, M\)"):
        queue_loss(X, Y[:1], EARLIER, temperature=1.0)


def test_the_slow_copy_keeps_its_share_of_itself():
    layer = torch.nn.Linear(3, 2)
    slow = MomentumEncoder([layer], momentum=0.75)
    before = layer.weight.detach().clone()
    with torch.no_grad():
        layer.weight.add_(1.0)
    for share in (0.75, 0.75**2):
        slow.follow()
        expected = share * before + (1 - share) * (before + 1)
        assert torch.allclose(slow.copies[0].weight, expected, atol=1e-6)
    assert not any(p.requires_grad for p in slow.parameters())
    assert len(list(slow.parameters())) == 2  # the original is not among its modules


def test_the_groups_of_the_slow_copy_are_normalised_separately_and_come_back_in_order():
    norm = torch.nn.BatchNorm1d(1, affine=False)
    pixels = torch.arange(8.0)[:, None]
    complete = MomentumEncoder([norm], momentum=0.9)(pixels)
    assert torch.equal(complete.argsort(dim=0), torch.arange(8)[:, None])
    parts = MomentumEncoder([norm], momentum=0.9, groups=4)(pixels)
    assert torch.allclose(parts.abs(), torch.ones(8, 1), atol=1e-4)  # of two numbers, one is -1 and one 1
    frozen = torch.nn.BatchNorm1d(1, affine=False).eval()
    assert torch.allclose(MomentumEncoder([frozen], momentum=0.9, groups=4)(pixels), pixels, atol=1e-3)


def test_the_oldest_keys_leave_the_queue_first():
    queue = Queue(6, 1)
    for start in (0, 2, 4, 6):
        queue.push(torch.tensor([[start], [start + 1.0]]))
    assert queue.keys[:, 0].tolist() == [6, 7, 2, 3, 4, 5]
    assert queue.at == 2


def test_a_step_of_moco_is_the_loss_of_its_parts_and_the_key_gets_no_gradient(images):
    model, method = build(recipe(), 0)
    pixels = model.normalize(images.pixels[:32].float()).view(2, 16, 3, 32, 32)
    first, frozen = method.queue.keys.clone(), method.slow.copies[1][0].weight.clone()
    with torch.no_grad():
        keys = F.normalize(method.projector(model.backbone.eval()(pixels[1])), dim=1)
    method.before_step(loop.Batch(torch.arange(16), pixels=(pixels,)))
    features = model.backbone(pixels[:1].flatten(0, 1)).unflatten(0, (1, 16))
    step = method(features, None, None)
    queries = F.normalize(method.projector(features[0]), dim=1)
    assert torch.allclose(method.keys, keys, atol=1e-5)  # at first the copy is the original
    assert step.loss.item() == pytest.approx(queue_loss(queries, keys, first, temperature=0.2).item(), rel=1e-4)
    step.loss.backward()
    assert method.projector[0].weight.grad.abs().max() > 0
    method.after_step(0)
    assert torch.equal(method.queue.keys[:16], method.keys)
    assert torch.equal(method.queue.keys[16:], first[16:])
    assert torch.equal(method.slow.copies[1][0].weight, frozen)  # nothing has moved, and nothing follows


def test_the_second_view_is_not_sent_through_the_backbone(images, tmp_path, monkeypatch):
    seen = []
    forward = MoCo.forward
    monkeypatch.setattr(MoCo, "forward", lambda self, *given: seen.append(given[0].shape) or forward(self, *given))
    train(recipe(epochs=1), images, state=tmp_path / "s", device=CPU)
    assert seen == [(1, 16, 96)] * 3


def test_the_optimiser_has_nothing_of_the_slow_copy(images):
    model, method = build(recipe(), 0)
    optimizer = make_optimizer(recipe(), model, method)
    learns = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert not learns & {id(p) for p in method.slow.parameters()}
    assert {id(p) for p in method.projector.parameters()} < learns


def test_the_queue_and_the_slow_copy_are_of_the_run_and_the_model_ships_without():
    model, method = build(recipe(), 0, n=48)
    assert "queue.keys" in method.state_dict()
    assert "slow.copies.0.conv1.0.weight" in method.state_dict()
    assert not any("slow" in name or "queue" in name for name in model.state_dict())


@pytest.mark.parametrize(
    ("settings", "batch", "n", "words"),
    [
        ({"queue": 100}, 16, 900, "--set queue=96"),
        ({"queue": 96}, 16, 60, "--set queue=48"),
        ({"queue": 8}, 16, 900, "--set queue=16"),
        ({}, 60, 60, "--set queue=60"),
        ({"queue": 64, "key_groups": 16}, 16, 900, "--set key_groups=8"),
    ],
)
def test_a_queue_or_groups_that_do_not_fit_are_refused(settings, batch, n, words):
    with pytest.raises(InputError, match=words):
        MoCo.check_amount(MoCoSettings(**settings), batch, n)


def test_a_queue_is_held_against_the_batch_and_the_data_before_the_first_step(images):
    with pytest.raises(InputError, match="multiple of the batch"):
        require_enough(recipe(batch_size=12), images)
    few = replace(images, pixels=images.pixels[:20])
    with pytest.raises(InputError, match="the data, 20 images"):
        require_enough(recipe(), few)
