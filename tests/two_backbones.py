"""A tiny model of two backbones, one of which is in a package that is made for the test."""

import sys
from pathlib import Path

import timm
import torch

from scoring.cards import PartSpec

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import joined

NAME, WIDTH = "test_resnet", 96
PACKAGE, FILE = "tiny-weights", "tiny_weights/models/tiny.pth"
CARD = {"method": "trunks", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}
LARGE, SMALL = 64, 32  # pixels


def make_package(folder, seed=0):
    """Write an installed package with the weights of a timm model under other names, and one that must not run."""
    torch.manual_seed(seed)
    state = timm.create_model(NAME).state_dict()
    with torch.no_grad():
        for name, value in state.items():
            if name.endswith("running_mean"):
                value.normal_()
    renamed = {f"_{at}.{name.rsplit('.')[-1]}": value for at, (name, value) in enumerate(state.items())}
    (folder / "tiny_weights" / "models").mkdir(parents=True, exist_ok=True)
    (folder / "tiny_weights" / "__init__.py").write_text("raise RuntimeError('code of the package ran')\n")
    torch.save(renamed, folder / FILE)
    about = folder / "tiny_weights-0.1.dist-info"
    about.mkdir(exist_ok=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-weights\nVersion: 0.1\n")
    return state


def install(folder, monkeypatch):
    """Make the package one that is installed here, and keep what is converted from it in the same folder."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("CURATE_CACHE", str(folder / "cache"))
    assert str(folder) in sys.path


def parts():
    """The backbones: one in the package, one in the checkpoint, which sees means of 2 x 2 pixels."""
    packaged = joined.in_package(NAME, PACKAGE, FILE)
    return [
        PartSpec(NAME, LARGE, 0.7, (0.5, 0.4, 0.3), (0.5, 0.6, 0.7), {}, packaged),
        PartSpec(NAME, SMALL, 0.3, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    ]


def own_weights():
    """Weights of the part that the checkpoint holds."""
    torch.manual_seed(7)
    return timm.create_model(NAME, num_classes=0).state_dict()


def images(n, seed=0):
    """Images of few and large patches, uint8 (n, 3, LARGE, LARGE): noise alone would all look alike."""
    generator = torch.Generator().manual_seed(seed)
    patches = torch.randint(0, 256, (n, 3, 8, 8), generator=generator, dtype=torch.uint8)
    return patches.repeat_interleave(LARGE // 8, 2).repeat_interleave(LARGE // 8, 3)


def make_model(projection=0):
    """The joined model, centred on 24 images."""
    return joined.join_backbones(parts(), {1: own_weights()}, images(24, 1).split(8), size=LARGE, projection=projection)
