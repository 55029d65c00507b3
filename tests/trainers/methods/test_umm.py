import math
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from gaussian_draws import X, Y, seeded

from scoring.checkpoint import load_model, save_checkpoint
from scoring.errors import InputError
from scoring.heads import GaussiansHeadSpec
from trainers.build import build
from trainers.config import TrainConfig
from trainers.data import TrainingSet
from trainers.loop import require_enough, train
from trainers.methods.gaussian_losses import draw, ranking_loss, set_loss, symmetric_kl
from trainers.methods.method import Batch, Task
from trainers.methods.moco import queue_loss
from trainers.methods.settings import Augmentation
from trainers.methods.umm import LEARNERS, UMM, Bank, UMMSettings, schedule

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images():
    generator = torch.Generator().manual_seed(0)
    return TrainingSet(torch.randint(0, 255, (48, 3, 32, 32), generator=generator, dtype=torch.uint8), None, [], {})


def own(learner="end-to-end", **changes):
    tiny = {"latent_dim": 8, "branches": 2, "samples": "3,1@0.5", "queue": 32, "momentum": 0.9, "key_groups": 2}
    return UMMSettings(**{**tiny, "learner": learner, **changes})


def recipe(learner="end-to-end", **changes):
    base = TrainConfig(
        *("umm", "test_resnet", 32, 2, 16, 0.01), settings=own(learner), augmentation=Augmentation(scale=(0.5, 1.0))
    )
    return replace(base, **changes)


def weights(model):
    return torch.cat([value.float().flatten() for value in model.state_dict().values()])


def made(settings, width=5, n=0):
    torch.manual_seed(0)
    head = GaussiansHeadSpec(settings.latent_dim, settings.branches).build(width)
    return UMM(settings, Task(width, n=n)), head


def gaussians(head, x):
    """What a head of two Gaussians in eight dimensions says: mu of unit length, and log variances around -log 8."""
    mean, raw = (F.linear(x, layer.weight, layer.bias).view(len(x), 2, 8) for layer in (head.mean, head.log_variance))
    return F.normalize(mean, dim=-1), 4 * torch.tanh(raw / 4) - math.log(8)


@pytest.mark.parametrize(
    "weights", [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 10, 0), (1, 0, 10), (2, 3, 4)], ids=lambda w: "-".join(map(str, w))
)
def test_a_step_is_the_weighted_sum_of_the_losses_that_are_on(weights):
    settings = own(lambda_s=weights[0], lambda_n=weights[1], lambda_r=weights[2])
    method, head = made(settings)
    method.before_step(Batch(torch.arange(4)))
    features = seeded(2, 4, 5).float()
    torch.manual_seed(1)
    step = method(features, head, None)
    (mean, log_variance), (other, other_log) = (gaussians(head, x) for x in features)
    torch.manual_seed(1)
    first, two = draw(mean, log_variance, 3), draw(other, other_log, 3)
    parts = [
        set_loss(first, two, temperature=0.1),
        symmetric_kl(mean, log_variance, other, other_log).mean() / 8,
        ranking_loss(torch.cat([first, two], dim=1)),
    ]
    expected = sum(weight * part.item() for weight, part in zip(weights, parts, strict=True))
    assert step.loss.item() == pytest.approx(expected, rel=1e-4)
    assert {"set", "kl", "ranking"} & step.measures.keys() == {
        name for name, weight in zip(("set", "kl", "ranking"), weights, strict=True) if weight
    }


def test_the_bank_learner_is_separated_from_other_images_of_the_bank_and_moves_half_way():
    settings = own("bank", lambda_n=0, lambda_r=0, queue=7, samples="2")
    method, head = made(settings, n=12)
    rows = torch.tensor([3, 0, 7, 10])
    before = method.bank.held.clone()
    method.before_step(Batch(rows))
    features = seeded(1, 4, 5).float()
    torch.manual_seed(1)
    loss = method(features, head, None).loss
    torch.manual_seed(1)
    said = torch.stack(gaussians(head, features[0]), dim=1)
    queries, keys = (draw(x[:, 0], x[:, 1], 2).mean(1) for x in (said, before[rows]))
    order = [at for at in torch.randperm(12).tolist() if at not in rows.tolist()][:7]
    negatives = draw(before[order, 0], before[order, 1], 2).mean(1)
    assert loss.item() == pytest.approx(queue_loss(queries, keys, negatives, temperature=0.1).item(), rel=1e-4)
    method.after_step(0)
    half = (before[rows] + said) / 2
    half[:, 0] = F.normalize(half[:, 0], dim=-1)
    assert torch.allclose(method.bank.held[rows], half, atol=1e-6)
    rest = [at for at in range(12) if at not in rows.tolist()]
    assert torch.equal(method.bank.held[rest], before[rest])


def test_the_moco_learner_takes_the_other_view_from_the_slow_copy_and_queues_the_means_of_its_draws(images):
    model, method = build(recipe("moco"), 0)
    pixels = model.normalize(images.pixels[:32].float()).view(2, 16, 3, 32, 32)
    first = method.queue.keys.clone()
    method.before_step(Batch(torch.arange(16), pixels=(pixels,)))
    features = model.backbone(pixels[0])[None]
    torch.manual_seed(1)
    step = method(features, model.heads["umm"], None)
    said = model.heads["umm"](features[0])
    torch.manual_seed(1)
    one, two = draw(said[:, 0], said[:, 1], 3), draw(method._other[:, 0], method._other[:, 1], 3)
    assert not method._other.requires_grad
    expected = queue_loss(one.mean(1), two.mean(1), first, temperature=0.1)
    assert step.measures["set"].item() == pytest.approx(expected.item(), rel=1e-5)
    method.after_step(0)
    assert torch.allclose(method.queue.keys[:16], two.mean(1), atol=1e-6)
    assert torch.equal(method.queue.keys[16:], first[16:])


def test_a_bank_gives_other_images_than_its_query():
    bank = Bank(10, (1, 3))
    bank.held[:, 0] = torch.arange(10.0)[:, None, None]
    for seed in range(5):
        torch.manual_seed(seed)
        drawn = bank.others(torch.tensor([2, 5, 9]), 4)[:, 0, 0, 0].tolist()
        assert len(set(drawn)) == 4
        assert not set(drawn) & {2.0, 5.0, 9.0}


def test_fewer_draws_are_made_as_the_run_goes_on():
    assert schedule("5,3@0.5, 1@0.75") == [(0.0, 5), (0.5, 3), (0.75, 1)]
    method = UMM(UMMSettings(), Task(5))
    samples = []
    for share in (0.0, 0.49, 0.5, 0.74, 0.75, 0.999):
        method.before_step(Batch(torch.arange(2), share=share))
        samples.append(method.samples)
    assert samples == [5, 5, 3, 3, 1, 1]


@pytest.mark.parametrize("learner", LEARNERS)
def test_a_model_ships_with_its_gaussians_and_without_what_its_learner_remembers(images, tmp_path, learner):
    model, method = build(recipe(learner), 0, n=48)
    kept = {name.split(".")[0] for name in method.state_dict()}
    assert kept == {"end-to-end": set(), "moco": {"slow", "queue"}, "bank": {"bank"}}[learner]
    trained, _ = train(recipe(learner), images, state=tmp_path / "s", device=CPU, start=(model, method))
    save_checkpoint(
        tmp_path / "m.safetensors", trained, {"method": "umm", "training": {}, "metrics": {}, "data_licence": "x"}
    )
    shipped, _ = load_model(tmp_path / "m.safetensors")
    assert {name.split(".")[0] for name in shipped.state_dict()} == {"backbone", "heads"}
    with torch.no_grad():
        outputs, features = shipped(images.pixels[:2]), shipped.features(images.pixels[:2])
    mu = F.normalize(shipped.heads["umm"](features)[:, 0].mean(1), dim=1)  # of the mixture
    assert torch.allclose(outputs.embedding, mu, atol=1e-5)
    assert list(outputs.columns) == ["unc_umm", "unc_umm_logdet", "unc_umm_branches"]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"samples": "0"}, "samples .* got '0'"),
        ({"samples": "5,3"}, "samples is a number"),
        ({"samples": "5@0.5"}, "samples is a number"),
        ({"samples": "5,3@1"}, "samples is a number"),
        ({"samples": "many"}, "samples .* got 'many'"),
        ({"branches": 0}, "branches .*got 0"),
        ({"latent_dim": 1}, "latent_dim must be"),
        ({"temperature": 0.0}, "temperature must be"),
        ({"learner": "mocow"}, "got 'mocow'"),
        ({"lambda_s": 0.0, "lambda_n": 0.0, "lambda_r": 0.0}, "are all 0"),
    ],
)
def test_a_setting_out_of_range_is_refused_in_one_line(wrong, words):
    with pytest.raises(InputError, match=words) as caught:
        UMMSettings(**wrong)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("learner", "changes", "n", "words"),
    [
        ("moco", {"queue": 40}, 48, "--set queue=32"),
        ("moco", {"queue": 64}, 48, "--set queue=48"),
        ("bank", {"queue": 33}, 48, "bank .*--set queue=32"),
        ("bank", {}, 16, "a smaller --batch-size"),
    ],
)
def test_a_queue_or_bank_that_does_not_fit_is_refused(images, learner, changes, n, words):
    few = replace(images, pixels=images.pixels[:n])
    with pytest.raises(InputError, match=words):
        require_enough(recipe(learner, settings=own(learner, **changes)), few)


def test_too_few_views_or_images_are_refused():
    method, head = made(own())
    method.before_step(Batch(torch.arange(4)))
    with pytest.raises(InputError, match=r"end-to-end .*1 of 4"):
        method(seeded(1, 4, 5), head, None)
    with pytest.raises(InputError, match="got 2 of 1"):
        method(seeded(2, 1, 5), head, None)


def test_only_the_learner_with_a_slow_copy_needs_pixels():
    assert [UMM.reads_pixels(UMMSettings(learner=name)) for name in LEARNERS] == [False, True, False]


def test_one_gaussian_has_no_column_of_how_far_several_are_apart():
    spec = GaussiansHeadSpec(dim=6, branches=1)
    said = spec.score(spec.build(16)(torch.randn(9, 16)))
    assert list(said) == list(spec.columns) == ["unc_umm", "unc_umm_logdet"]
    assert list(GaussiansHeadSpec(dim=6, branches=2).columns)[-1] == "unc_umm_branches"
    assert spec == GaussiansHeadSpec(dim=6)


def test_the_columns_are_trace_log_determinant_and_spread_of_the_branches():
    spec = GaussiansHeadSpec(dim=6, branches=2)
    mean = torch.stack([F.normalize(X, dim=1), F.normalize(Y, dim=1)], dim=1)  # (N, C, M)
    log_variance = seeded(4, 2, 6)
    said = spec.score(torch.stack([mean, log_variance], dim=1))
    for row in range(4):
        covariances = [torch.diag(log_variance[row, c].exp()) for c in range(2)]
        centre = mean[row].mean(0)
        expected = [
            sum(float(covariance.trace()) for covariance in covariances) / 2,
            sum(float(torch.logdet(covariance)) for covariance in covariances) / 2,
            sum(float((mean[row, c] - centre) @ (mean[row, c] - centre)) for c in range(2)) / 2,
        ]
        assert [float(values[row]) for values in said.values()] == pytest.approx(expected, abs=1e-9)


def test_a_new_head_has_unit_means_a_trace_of_about_one_and_the_mixture_mean():
    torch.manual_seed(0)
    head, features = GaussiansHeadSpec(dim=32, branches=3).build(16), torch.randn(9, 16).relu()
    said = head(features)
    assert said.shape == (9, 2, 3, 32)
    assert torch.allclose(said[:, 0].norm(dim=-1), torch.ones(9, 3), atol=1e-5)
    assert said[:, 1].exp().sum(-1).mean().item() == pytest.approx(1, abs=0.2)
    assert torch.allclose(head.project(features), said[:, 0].mean(1), atol=1e-6)


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"dim": 10**6}, {"branches": 0}, {"branches": 65}])
def test_a_head_of_impossible_shape_is_refused(wrong):
    with pytest.raises(InputError, match="a head of Gaussians"):
        GaussiansHeadSpec(**wrong)
