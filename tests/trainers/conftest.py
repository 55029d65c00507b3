"""A cache of features of a few images."""

import io
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from small_cache import N, make

from scoring.backbones import create_backbone
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from trainers.data import TrainingSet


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, Preprocessing(size=32, resize=36))
    return ScoringModel(spec, backbone=create_backbone(spec.backbone)).eval()


@pytest.fixture(scope="module")
def files():
    """Encoded images; the sixth is not one."""
    generator = np.random.default_rng(0)
    encoded = []
    for _ in range(N):
        buffer = io.BytesIO()
        Image.fromarray(generator.integers(0, 256, (6, 6, 3), dtype=np.uint8)).resize((50, 40)).save(buffer, "PNG")
        encoded.append(buffer.getvalue())
    encoded[5] = b"no image"
    return encoded


@pytest.fixture(scope="module")
def made(model, files, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache") / "f"
    assert sum(make(folder, model, files).values()) == 1
    return folder


@pytest.fixture
def copy(made, tmp_path):
    return shutil.copytree(made, tmp_path / "f")


@pytest.fixture(scope="module")
def blobs():
    """Two classes that a network can determine: bright left or bright right."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 60, (48, 3, 32, 32), generator=generator, dtype=torch.uint8)
    labels = torch.arange(48) % 2
    pixels[labels == 0, :, :, :16] += 150
    pixels[labels == 1, :, :16] += 150
    return TrainingSet(pixels, labels, ["left", "top"], {})
