"""Methods and backbones that a package outside the project adds by entry point."""

import sys

import numpy as np
import pytest
from PIL import Image

from curate.training.train import train
from scoring.backbones import create_backbone
from scoring.cards import read_header
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.lookup import lookup
from trainers.methods.table import METHODS, WHERE

CODE = '''
import torch
from dataclasses import dataclass
from torch import nn
from trainers.methods.method import Method, Step
from trainers.methods.settings import Settings, setting

@dataclass(frozen=True)
class PullSettings(Settings):
    weight: float = setting(2.0, "of the distance of two views", above=0)

class Pull(Method):
    """Two views lie close together."""
    Settings = PullSettings

    def forward(self, features, head, labels):
        apart = (features[0] - features[1]).square().mean()
        return Step(self.settings.weight * apart, {"apart": apart.detach()})

class Small(nn.Sequential):
    num_features = 4

    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Misspelt(Pull):
    defaults = {"epoch": 3}

class Viewless(Pull):
    n_standard = 0

no_method = 3
'''
ENTRIES = """
[curate.methods]
pull = acme_lab:Pull
broken = acme_missing:Pull
nothing = acme_lab:no_method
misspelt = acme_lab:Misspelt
viewless = acme_lab:Viewless

[curate.backbones]
acme_small = acme_lab:Small
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "site"
    (folder / "acme_lab-1.0.dist-info").mkdir(parents=True)
    (folder / "acme_lab.py").write_text(CODE)
    (folder / "acme_lab-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-lab\nVersion: 1.0\n")
    (folder / "acme_lab-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(folder)
    yield folder
    sys.modules.pop("acme_lab", None)


def test_a_package_adds_a_method_and_a_backbone_that_train_and_load_again(package, tmp_path):
    (tmp_path / "photos").mkdir()
    for i in range(4):
        noise = np.random.default_rng(i).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(noise).save(tmp_path / "photos" / f"{i}.png")
    out = tmp_path / "m.safetensors"
    train(
        "pull",
        tmp_path / "photos",
        out=out,
        backbone="acme_small",
        size=16,
        epochs=1,
        batch_size=4,
        device="cpu",
        set={"weight": 3.0},
    )
    card = read_header(out)
    assert (card["method"], card["backbone"]["name"]) == ("pull", "acme_small")
    assert card["metrics"]["loss"] == pytest.approx(3 * card["metrics"]["apart"], rel=1e-5)
    assert load_model(out)[0].width == 4
    assert list(METHODS)[: len(WHERE)] == list(WHERE)
    assert {"pull", "broken", "nothing"} <= set(METHODS)


def test_a_plugin_that_raises_or_is_no_method_is_named_in_one_line(package):
    for name, words in (("broken", "acme-lab .*ModuleNotFoundError"), ("nothing", "not a method")):
        with pytest.raises(InputError, match=words):
            lookup(METHODS, name, kind="method")
    with pytest.raises(InputError, match="did you mean 'pull'"):
        lookup(METHODS, "pul", kind="method")
    with pytest.raises(InputError, match="close names: acme_small"):
        create_backbone("acme_smal")
    for name, words in (("misspelt", "misspelt set 'epoch'"), ("viewless", "n_standard=0")):
        with pytest.raises(InputError, match=words):
            train(name, package, out=package / "m.safetensors", backbone="acme_small", size=16)
