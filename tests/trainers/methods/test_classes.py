"""Classifiers with an uncertainty, trained: what they learn, and what they report for unseen classes."""

import pytest
import torch

from curate.training.recipe import recipe as recipe_of
from scoring.checkpoint import load_model, save_checkpoint
from scoring.class_modules import SNGPHead
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.method import Batch, Task
from trainers.methods.table import METHODS

NAMES = ("ensemble", "mcdropout", "hetxl", "sngp", "supervised")
CPU = torch.device("cpu")


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def recipe(name, **shared):
    lr = 0.05 if name in ("supervised", "sngp") else 3e-3
    return recipe_of(name, {"backbone": "test_resnet", "size": 32, "epochs": 12, "batch_size": 8, "lr": lr} | shared)


@pytest.fixture(scope="module")
def images():
    """Three kinds of image, red, green or blue, under noise."""
    pixels = torch.randint(0, 60, (24, 3, 32, 32), generator=seeded(), dtype=torch.uint8)
    labels = torch.arange(24) % 3
    pixels[torch.arange(24), labels] += 150
    return TrainingSet(pixels, labels, ["r", "g", "b"], {})


@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in NAMES[1:])])
def test_training_separates_classes_and_the_saved_model_gives_the_same(name, images, tmp_path):
    config = recipe(name)
    model, measures = train(config, images, state=tmp_path / "s", device=CPU)
    assert measures["accuracy"] > 0.8  # one view in ten is grey
    card = {"method": name, "training": {}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(tmp_path / "m.safetensors", model.eval(), card)
    read, _ = load_model(tmp_path / "m.safetensors")
    with torch.inference_mode():
        said, again = model(images.pixels).columns, read(images.pixels).columns
        alone = read(images.pixels[5:6]).columns
    assert next(iter(said)) == f"unc_{name}_entropy"
    for column, values in said.items():
        assert torch.allclose(values, again[column], atol=1e-5)
        assert values[5].item() == pytest.approx(alone[column].item(), rel=1e-3, abs=1e-4)


def test_the_loss_of_a_mixture_is_the_cross_entropy_of_the_mean_and_not_of_each():
    kind = METHODS["ensemble"]
    method = kind(kind.Settings(members=2), Task(width=2, n_classes=2))
    head = kind.head(kind.Settings(members=2), 32, 2).build(2)
    with torch.no_grad():
        head.out.weight.zero_()
        head.out.bias.copy_(torch.tensor([0.9, 0.1, 0.3, 0.7]).log())  # two members, (.9, .1) and (.3, .7)
    step = method(torch.zeros(1, 4, 2), head, torch.tensor([0, 0, 0, 1]))
    expected = -(3 * torch.tensor(0.6).log() + torch.tensor(0.4).log()) / 4
    assert step.loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert step.measures["accuracy"].item() == 0.75


def test_the_precision_is_of_the_last_pass_alone_each_image_once():
    kind = METHODS["sngp"]
    settings = kind.Settings(features=32)
    method, head = kind(settings, Task(width=4, n_classes=2)), kind.head(settings, 32, 2).build(4)
    assert isinstance(head, SNGPHead)
    batches = [torch.randn(2, 5, 4, generator=seeded(k)) for k in range(4)]  # two views
    for k, batch in enumerate(batches):
        method.before_step(Batch(torch.arange(5), begins_pass=k in (0, 2)))
        method(batch, head, torch.tensor([0, 1, 0, 1, 0]))
    phi = head.random_features(torch.cat([batches[2][0], batches[3][0]]))
    assert torch.allclose(head.precision, torch.eye(32) + phi.T @ phi, atol=1e-4)
