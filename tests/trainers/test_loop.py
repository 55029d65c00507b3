from dataclasses import replace

import pytest
import torch
from small_training import CPU, recipe, weights

from scoring.errors import InputError
from trainers import loop
from trainers.build import build, small_map
from trainers.config import TrainConfig
from trainers.data import TrainingSet, batches
from trainers.loop import learning_rate, train
from trainers.methods.method import Method, Step
from trainers.methods.settings import Augmentation
from trainers.methods.table import METHODS
from trainers.monitor import Sums, warn
from trainers.views import ImageViews, Seen


def test_one_seed_gives_one_model_and_another_seed_another(blobs, tmp_path):
    first, _ = train(recipe(epochs=1), blobs, state=tmp_path / "a", device=CPU)
    two, _ = train(recipe(epochs=1), blobs, state=tmp_path / "b", device=CPU)
    other, _ = train(recipe(epochs=1, seed=1), blobs, state=tmp_path / "c", device=CPU)
    assert torch.equal(weights(first), weights(two))
    assert not torch.equal(weights(first), weights(other))


def test_a_state_of_another_recipe_is_refused_by_name(blobs, tmp_path):
    train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)
    with pytest.raises(InputError, match=r"lr = 0\.05, .*0\.1;"):
        train(recipe(epochs=1, lr=0.1), blobs, state=tmp_path / "s", device=CPU)
    narrow = replace(recipe().settings, latent_dim=8)
    with pytest.raises(InputError, match=r"settings\.latent_dim = 16, .*8;"):
        train(recipe(epochs=1, settings=narrow), blobs, state=tmp_path / "s", device=CPU)


def test_a_file_that_is_no_state_is_refused(blobs, tmp_path):
    (tmp_path / "s").write_text("hello")
    with pytest.raises(InputError, match="state of a training"):
        train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)


@pytest.mark.parametrize(
    ("name", "spoil", "word"),
    [
        ("pixels", lambda pixels: pixels / 255, "from 0 to 255"),
        ("pixels", lambda pixels: pixels[:, :1], "3, S, S"),
        ("labels", lambda labels: labels.float(), "int64"),
        ("labels", lambda labels: labels[1:], r"\(48,\)"),
        ("labels", lambda labels: labels + 1, "from 0 to 1"),
    ],
)
def test_tensors_that_are_no_images_or_classes_are_refused(blobs, name, spoil, word):
    with pytest.raises(ValueError, match=word):
        replace(blobs, **{name: spoil(getattr(blobs, name))})


def test_supervised_training_learns_two_plain_classes(blobs, tmp_path):
    config = recipe(
        "supervised",
        epochs=12,
        lr=0.1,
        schedule="cosine",
        augmentation=Augmentation((0.8, 1.0), jitter=0, gray=0, blur=0),
    )
    plain = TrainingSet(blobs.pixels, blobs.labels, blobs.classes, {})
    model, measures = train(config, plain, state=tmp_path / "s", device=CPU)
    assert measures["accuracy"] > 0.9
    assert list(model.heads) == ["supervised"]


@pytest.mark.parametrize("freeze", ["trunk", "batchnorm", "nothing"])
def test_freezing_holds_the_named_parameters(blobs, tmp_path, freeze):
    before, _ = loop.build(recipe(), 2)
    after, _ = train(recipe(epochs=1, freeze=freeze), blobs, state=tmp_path / "s", device=CPU)
    same = {name: torch.equal(value, after.state_dict()[name]) for name, value in before.state_dict().items()}
    conv = all(
        held for name, held in same.items() if name.startswith("backbone") and "conv" in name and "weight" in name
    )
    statistics = all(held for name, held in same.items() if name.startswith("backbone") and "running" in name)
    assert conv == (freeze == "trunk")
    assert statistics == (freeze != "nothing")
    assert not same["heads.visimsiam.out.weight"]


def test_init_takes_over_the_backbone(blobs):
    start, _ = loop.build(recipe(seed=5), 0)
    model, _ = loop.build(recipe(seed=6), 0, init=start)
    for name, value in start.backbone.state_dict().items():
        assert torch.equal(model.backbone.state_dict()[name], value)


def test_an_epoch_shows_every_row_once_and_depends_on_epoch_and_seed_alone():
    rows = torch.cat(batches(40, 8, epoch=3, seed=1))
    assert sorted(rows.tolist()) == list(range(40))
    assert torch.equal(rows, torch.cat(batches(40, 8, epoch=3, seed=1)))
    assert not torch.equal(rows, torch.cat(batches(40, 8, epoch=4, seed=1)))
    assert [len(b) for b in batches(5, 8, epoch=0, seed=0)] == [5]
    assert [len(b) for b in batches(17, 8, epoch=0, seed=0)] == [8, 8]


def test_the_rate_warms_up_and_falls_to_zero():
    config = recipe(schedule="cosine", warmup=0.1, lr=1.0)
    rates = [learning_rate(config, step, 100) for step in range(100)]
    assert rates[:10] == pytest.approx([0.1 * (i + 1) for i in range(10)])
    assert rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[-1] < 0.001
    assert {learning_rate(recipe(), step, 100) for step in range(100)} == {0.05}
    for steps in (1, 2, 25):  # a warm-up of a part of a step
        assert max(learning_rate(config, step, steps) for step in range(steps)) <= 1.0


def test_collapse_is_reported():
    assert warn({"loss": 1.0, "spread": 0.5}) is None
    assert "collapse" in warn({"loss": 1.0, "spread": 0.02})


def test_a_loss_that_is_not_finite_stops_the_run(blobs, tmp_path):
    with pytest.raises(InputError, match="lower --lr"):
        train(recipe(lr=1e18, epochs=3), blobs, state=tmp_path / "s", device=CPU)


@pytest.mark.parametrize(
    ("spoil", "got"),
    [
        (lambda step: step.loss, "Tensor"),
        (lambda step: replace(step, loss=step.loss[None]), r"\(1,\)"),
        (lambda step: replace(step, loss=1.0), "float"),
        (lambda step: replace(step, loss=step.loss.detach()), "gradient"),
        (lambda step: replace(step, measures=None), "NoneType"),
        (lambda step: replace(step, measures={"gap": 1.0}), "'gap' of type float"),
        (lambda step: replace(step, measures={"gap": step.loss[None]}), r"'gap' of shape \(1,\)"),
    ],
)
def test_a_method_that_returns_no_step_is_refused(spoil, got, blobs, tmp_path, monkeypatch):
    kind = METHODS[recipe().method]
    right = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, *batch: spoil(right(self, *batch)))
    with pytest.raises(InputError, match=got):
        train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)


def test_measures_with_a_gradient_do_not_keep_the_graphs_of_their_steps(blobs, tmp_path, monkeypatch):
    kind, kept = METHODS[recipe().method], []
    right, add = kind.forward, Sums.add
    with_graph = lambda self, *batch: replace(step := right(self, *batch), measures={"gap": 2 * step.loss})  # noqa: E731
    monkeypatch.setattr(kind, "forward", with_graph)
    monkeypatch.setattr(Sums, "add", lambda self, values: (add(self, values), kept.append(self._totals["gap"])))
    train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)
    assert not any(total.requires_grad for total in kept)


def test_a_state_of_other_images_is_refused(blobs, tmp_path):
    train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU, origin={"data": "one"})
    with pytest.raises(InputError, match=r"'one', .*'other'"):
        train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU, origin={"data": "other"})


def test_measures_are_of_the_last_epoch_however_often_they_are_shown(blobs, tmp_path, monkeypatch):
    _, quick = train(recipe(), blobs, state=tmp_path / "a", device=CPU)
    clock = iter(range(0, 100_000, 10))
    monkeypatch.setattr(loop.time, "monotonic", lambda: next(clock))
    _, slow = train(recipe(), blobs, state=tmp_path / "b", device=CPU)
    assert slow == quick
    _, again = train(recipe(), blobs, state=tmp_path / "a", device=CPU)  # all done: only the checkpoint was missing
    assert again == quick


def test_a_transformer_is_built_for_the_size_and_reads_small_views(blobs, tmp_path):
    config = recipe(backbone="vit_tiny_patch16_224", epochs=1)
    model, _ = train(config, blobs, state=tmp_path / "s", device=CPU)
    assert model.spec.backbone_options == {"img_size": 32, "dynamic_img_size": True}
    assert model.eval()(blobs.pixels[:2]).embedding.shape == (2, 192)


def test_a_backbone_that_cannot_read_a_view_is_reported_in_one_line():
    with pytest.raises(InputError, match=r"16 pixels .*--set small_size"):
        loop.build(recipe(backbone="gmlp_ti16_224"), 0)


def test_a_start_of_another_architecture_is_refused():
    start, _ = loop.build(recipe(), 0)
    with pytest.raises(InputError, match=r"'test_resnet', .*'resnet18'"):
        loop.build(recipe(backbone="resnet18"), 0, init=start)


def test_a_lack_of_memory_names_what_to_lower(blobs, tmp_path, monkeypatch):
    def full(*args, **named):
        raise RuntimeError("CUDA error: out of memory")

    monkeypatch.setattr(ImageViews, "__call__", full)
    with pytest.raises(InputError, match="lower --batch-size"):
        train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)


class Full:
    """Pixels that no device has room for."""

    def __init__(self, pixels):
        self.shape, self.dtype, self.nbytes = pixels.shape, pixels.dtype, 60_000_000_000

    def __len__(self):
        return self.shape[0]

    def to(self, device):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 55.88 GiB")


def test_images_that_do_not_fit_on_the_device_are_named_as_the_cause(blobs, tmp_path):
    with pytest.raises(InputError, match=r"60\.0 GB.*--limit") as error:
        train(recipe(epochs=1), replace(blobs, pixels=Full(blobs.pixels)), state=tmp_path / "s", device=CPU)
    assert "--batch-size" not in str(error.value)


@pytest.mark.parametrize(
    ("held", "advice", "other"), [(0.6, "--limit", "--batch-size"), (0.4, "--batch-size", "--limit")]
)
def test_a_step_without_memory_blames_the_images_where_they_take_most_of_it(
    blobs, tmp_path, monkeypatch, held, advice, other
):
    def full(*args, **named):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(ImageViews, "__call__", full)
    monkeypatch.setattr("trainers.memory.device_memory", lambda device: int(blobs.pixels.nbytes / held))
    with pytest.raises(InputError, match=advice) as error:
        train(recipe(epochs=1), blobs, state=tmp_path / "s", device=CPU)
    assert other not in str(error.value)


@pytest.mark.parametrize(
    ("changes", "size"),
    [
        ({"precision": "bf16"}, 32),  # a stride of 32
        ({"precision": "bf16", "size": 64}, 16),  # of the low-resolution views
        ({"precision": "fp32", "size": 64, "backbone": "resnet18_cifar"}, None),
        ({"precision": "bf16", "freeze": "batchnorm"}, None),
    ],
)
def test_a_last_map_of_one_value_in_bf16_is_reported_before_and_where_the_loss_is_no_number(
    blobs, tmp_path, monkeypatch, changes, size
):
    config = recipe(**{"backbone": "resnet10t", "epochs": 1} | changes)
    note = small_map(config, *loop.build(config, 0))
    assert f"views of {size} pixels" in note if size else note is None
    if config.size == 32 and size:
        monkeypatch.setattr(ImageViews, "__call__", lambda *args, **named: Seen(torch.full((3, 16, 512), torch.nan)))
        with pytest.raises(InputError, match=r"1 x 1.*--size") as error:
            train(config, blobs, state=tmp_path / "s", device=CPU)
        assert "lower --lr" not in str(error.value)


def test_a_kappa_that_is_stuck_at_zero_is_reported():
    assert "kappa has fallen" in warn({"loss": 1.0, "spread": 1.0, "kappa": 1e-4})


class Watcher(Method):
    """Notes what a method is given, and learns nothing of use."""

    needs_pixels = True
    n_small, small_size = 1, 16

    def __init__(self, settings, task):
        super().__init__(settings, task)
        self.live, self.weight, self.seen, self.steps = [task.backbone], torch.nn.Parameter(torch.ones(())), [], []
        assert task.size == 32

    def before_step(self, batch):
        self.batch = batch

    def forward(self, features, head, labels):
        self.seen.append((self.batch.pixels, features))
        return Step(self.weight * features.mean(), {})

    def after_step(self, step):
        self.steps.append(step)


def test_a_method_can_read_the_pixels_of_its_features_and_follow_the_backbone(blobs, tmp_path, monkeypatch):
    monkeypatch.setitem(METHODS.where, "watcher", f"{__name__}:Watcher")
    config = recipe("watcher", freeze="trunk", epochs=1)
    model, method = build(config, 2)
    train(config, blobs, state=tmp_path / "s", device=CPU, start=(model, method))
    assert method.steps == [0, 1, 2]
    assert method.live[0] is model.backbone
    for (standard, small), features in method.seen:
        assert standard.shape == (2, 16, 3, 32, 32)
        assert small.shape == (1, 16, 3, 16, 16)
        with torch.no_grad():
            again = [model.backbone(views.flatten(0, 1)).unflatten(0, views.shape[:2]) for views in (standard, small)]
        assert torch.allclose(torch.cat(again), features, atol=1e-5)


def one_step(tmp_path, n=16, **changes):
    """One step of a network without batch normalisation on images of one colour, which all views keep."""
    colours = torch.randint(0, 256, (n, 3, 1, 1), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    data = TrainingSet(colours.expand(n, 3, 32, 32).contiguous(), torch.arange(n) % 2, ["a", "b"], {})
    config = TrainConfig(
        "supervised",
        "mlp",
        size=32,
        epochs=1,
        schedule="constant",
        momentum=0.0,
        weight_decay=0.0,
        lr=0.5,
        augmentation=Augmentation(jitter=0, gray=0, blur=0),
        **changes,
    )
    start = loop.build(config, 2)
    before = {name: value.clone() for name, value in start[0].state_dict().items()}
    model, _ = train(config, data, state=tmp_path / str(changes), device=CPU, start=start)
    return {name: value - before[name] for name, value in model.state_dict().items()}


def test_accumulated_batches_step_as_one_batch_of_their_size(tmp_path):
    whole, parts = one_step(tmp_path, batch_size=16), one_step(tmp_path, batch_size=4, accumulate=4)
    assert whole.keys() == parts.keys()
    assert all(torch.allclose(whole[name], parts[name], atol=1e-6) for name in whole)
    with pytest.raises(InputError, match="--set accumulate"):
        one_step(tmp_path, batch_size=8, accumulate=3)
    config = recipe("moco", settings=METHODS["moco"].Settings(queue=16, key_groups=2), accumulate=2)
    with pytest.raises(InputError, match="--set accumulate out"):
        train(
            config,
            TrainingSet(torch.zeros(48, 3, 32, 32, dtype=torch.uint8), None, [], {}),
            state=tmp_path / "m",
            device=CPU,
        )


def test_a_clipped_gradient_has_the_norm_that_was_requested(tmp_path):
    moved = one_step(tmp_path, batch_size=16, clip=0.01)
    assert torch.cat([value.flatten() for value in moved.values()]).norm().item() == pytest.approx(0.5 * 0.01, rel=1e-3)


def test_the_precision_of_sngp_holds_one_pass_where_more_epochs_follow(blobs, tmp_path):
    settings = METHODS["sngp"].Settings(features=8)
    for epochs in (1, 2):
        model, _ = train(recipe("sngp", epochs=epochs, settings=settings), blobs, state=tmp_path / "s", device=CPU)
    start, _ = loop.build(recipe("sngp", settings=settings), 2)
    other, _ = train(recipe("sngp", settings=settings), blobs, state=tmp_path / "whole", device=CPU)
    assert torch.equal(model.heads["sngp"].precision, other.heads["sngp"].precision)
    assert not torch.equal(model.heads["sngp"].precision, start.heads["sngp"].precision)
