"""What a run that was killed must come to, whichever method it trains."""

from functools import partial
from io import BytesIO

import pytest
import torch
from killed import kill_at
from PIL import Image
from torch import nn

from curate.training.recipe import recipe
from scoring.images import Preprocessing
from scoring.settings import parse_settings
from trainers.build import build
from trainers.data import TrainingSet
from trainers.loop import train
from trainers.methods.table import METHODS
from trainers.stream import ImageStream

SMALL = {  # of settings that cost memory or time, for methods that have them
    "latent_dim": 8,
    "hidden_dim": 8,
    "bottleneck": 4,
    "prototypes": 8,
    "channels": 8,
    "views": 2,
    "queue": 8,
    "key_groups": 2,
    "n_small": 1,
    "small_size": 16,
    "momentum": 0.9,
    "samples": "2",
}
OTHER = (  # where a setting gives a method other modules, or another memory, than it has on its own
    "umm learner=moco",
    "umm learner=bank",
    "dino momentum=0",
    "visimsiam predictor=mlp",
    "visimsiam predictor_every=2",
    "losspred form=l2",
)
STREAMED = (  # each learns from a stream what others do too: views, a queue, crops, votes, labels, losses, damage
    "simclr",
    "moco",
    "dino",
    "umm",
    "vae",
    "supervised",
    "losspred",
    "junk",
)


def runs():
    """Every method from memory and, in a full run of all tests, from a stream; variants in a full run alone."""
    for variant in (*METHODS, *OTHER):
        for source in ("memory", "stream"):
            is_slow = variant in OTHER or (source == "stream" and variant not in STREAMED)
            yield pytest.param(variant, source, marks=[pytest.mark.slow] * is_slow, id=f"{variant}-{source}")


@pytest.fixture(scope="module")
def images():
    """Two batches an epoch, so that a run of four steps that is killed in the last goes on within an epoch."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 255, (16, 3, 32, 32), generator=generator, dtype=torch.uint8)
    return TrainingSet(pixels, torch.arange(16) % 2, ["even", "odd"], {})


@pytest.fixture(scope="module")
def files(images):
    """The images as files, one of them broken."""
    found = []
    for image in images.pixels:
        with BytesIO() as file:
            Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "png")
            found.append(file.getvalue())
    found[5] = found[5][:100]
    return found


@pytest.mark.parametrize(("variant", "source"), list(runs()))
def test_a_run_that_was_killed_ends_with_the_weights_memory_and_measures_of_one_that_was_not(
    variant, source, images, files, tmp_path, monkeypatch
):
    name, *typed = variant.split()
    settings = {key: value for key, value in SMALL.items() if key in METHODS[name].Settings.about()}
    shared = {"backbone": "test_resnet", "size": 32, "epochs": 2, "batch_size": 8, "lr": 1e-3}
    shared["stream"] = source == "stream"
    config = recipe(name, shared, settings | parse_settings(typed, example="queue=8"))

    def readers(windows):
        return (partial(bytes, files[row]) for rows in windows for row in rows)

    def run(state, **named):
        model, method = build(config, 2, n=images.n)
        read = Preprocessing(size=32, resize=32)
        streamed = ImageStream(16, readers, read, images.labels, images.classes, workers=1)
        data = streamed if config.stream else images
        _, measures = train(
            config, data, state=tmp_path / state, device=torch.device("cpu"), start=(model, method), **named
        )
        return nn.ModuleDict({"model": model, "method": method}).state_dict(), measures, data.failures

    complete, measured, failures = run("whole")
    kill_at(3, partial(run, "cut"), monkeypatch)
    resumed, *again = run("cut")
    assert [at for at, value in complete.items() if not torch.equal(value, resumed[at])] == []
    assert again == [measured, failures]
    assert failures == ({"truncated": 1} if config.stream else {})
