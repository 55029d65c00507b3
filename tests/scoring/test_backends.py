"""A backend gives the scores of torch's plain layers within a stated tolerance, and refuses what it cannot run."""

import copy
import os
import subprocess
import sys
from functools import cache
from importlib.util import find_spec

import pytest
import torch
from torch import nn

from scoring.backends import BACKENDS, backend_versions
from scoring.cards import PartSpec
from scoring.errors import InputError, MissingExtraError
from scoring.folded import has_bfloat16, relative_error
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.openvino_backbone import GROUP, OpenvinoBackbone, with_openvino
from scoring.runner import Runner

CPU = torch.device("cpu")
MIDDLE = {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)}
FAR = {"fp32": 1e-4, "bf16": 0.03}  # relative error of embeddings
needs_openvino = pytest.mark.skipif(
    find_spec("openvino") is None or "CURATE_TEST_OPENVINO" not in os.environ,
    reason="openvino runs in its own process: tests/test_openvino.py",
)
needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")
PRECISIONS = ["fp32", pytest.param("bf16", marks=needs_bfloat16)]


@pytest.fixture(scope="module")
def model():
    """Two convolutional backbones side by side, and a head."""
    torch.manual_seed(0)
    parts = (PartSpec("resnet10t", 64, 0.6, **MIDDLE), PartSpec("tf_efficientnet_lite0", 32, 0.4, **MIDDLE))
    seen = Preprocessing(64, 64, mean=(0, 0, 0), std=(1, 1, 1))
    spec = ModelSpec("two", {}, {"visimsiam": KappaHeadSpec(8, 31.0)}, seen, parts, 0, "bf16")
    return ScoringModel(spec).eval()


@pytest.fixture(scope="module")
def by_openvino(model):
    """Makes a runner by openvino, once for each precision."""
    return cache(lambda precision: Runner(copy.deepcopy(model), CPU, precision, backend="openvino"))


def pictures(n, size=64):
    drawn = torch.randint(0, 256, (n, size, size, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return drawn.numpy()


def plainly(model, pixels):
    """What the layers of the model say as they are written, without anything folded or compiled."""
    with torch.inference_mode():
        return model(torch.from_numpy(pixels).permute(0, 3, 1, 2))


@needs_openvino
@pytest.mark.parametrize("precision", PRECISIONS)
def test_openvino_gives_the_scores_of_the_plain_layers(model, by_openvino, precision):
    pixels = pictures(GROUP + 3)
    outputs = by_openvino(precision).submit(pixels).result()
    expected = plainly(model, pixels)
    assert relative_error(torch.from_numpy(outputs.embedding), expected.embedding) < FAR[precision]
    kappa = torch.from_numpy(outputs.columns["kappa_visimsiam"])
    assert torch.allclose(kappa, expected.columns["kappa_visimsiam"], rtol=2 * FAR[precision])


@needs_openvino
def test_an_images_features_are_the_same_bits_whatever_is_next_to_it(by_openvino):
    runner = by_openvino("bf16" if has_bfloat16() else "fp32")
    pixels = pictures(2 * GROUP + 5)
    outputs = runner.submit(pixels).result().embedding
    for start, stop in ((0, 1), (3, 7), (GROUP, len(pixels))):
        assert (runner.submit(pixels[start:stop]).result().embedding == outputs[start:stop]).all()


@needs_openvino
@pytest.mark.slow
def test_openvino_runs_transformers_too():
    torch.manual_seed(0)
    spec = ModelSpec("vit_tiny_patch16_224", {"img_size": 32}, {}, Preprocessing(size=32, resize=32))
    network = ScoringModel(spec).eval()
    pixels = pictures(3, 32)
    outputs = Runner(copy.deepcopy(network), CPU, backend="openvino").submit(pixels).result()
    assert relative_error(torch.from_numpy(outputs.embedding), plainly(network, pixels).embedding) < 1e-4


@needs_openvino
@pytest.mark.slow
def test_openvino_reports_nothing_to_its_maker(tmp_path):
    lines = ["import sys, torch", "from scoring.openvino_backbone import OpenvinoBackbone"]
    lines += ["OpenvinoBackbone(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 4), torch.nn.Flatten()), 4, 'fp32')"]
    lines += ["assert sys.modules['openvino_telemetry'] is None"]
    home = {"HOME": str(tmp_path), "USERPROFILE": str(tmp_path)}
    subprocess.run([sys.executable, "-c", "\n".join(lines)], env={**os.environ, **home}, check=True)
    assert not (tmp_path / "intel").exists()  # where it keeps the number that it knows a user by


def test_what_is_not_installed_names_the_pip_line(model, monkeypatch):
    monkeypatch.setattr("scoring.openvino_backbone.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"'kappa-curate\[openvino\]'"):
        Runner(model, CPU, backend="openvino")


@needs_openvino
def test_a_gpu_and_a_precision_that_the_cpu_lacks_are_refused(model, monkeypatch):
    with pytest.raises(InputError, match="add --device cpu"):
        with_openvino(model, torch.device("cuda"), "bf16")
    monkeypatch.setattr("scoring.openvino_backbone.has_bfloat16", lambda: False)
    with pytest.raises(InputError, match="--precision fp32"):
        Runner(model, CPU, "bf16", backend="openvino")


@needs_openvino
def test_a_network_that_cannot_be_traced_is_refused_in_one_line():
    class Odd(nn.Module):
        def forward(self, pictures):
            raise RuntimeError("not traceable\nat all")

    with pytest.raises(InputError, match=r"Odd \(.*not traceable.*--backend$"):
        OpenvinoBackbone(Odd(), 32, "fp32")


@needs_openvino
def test_a_network_whose_features_come_out_otherwise_is_refused():
    class Moody(nn.Module):
        def forward(self, pictures):
            means = pictures.mean((2, 3))
            return means + 1 if torch.is_inference_mode_enabled() else means  # it is not while it is traced

    with pytest.raises(InputError, match="features of Moody"):
        OpenvinoBackbone(Moody(), 32, "fp32")


def test_an_unknown_backend_is_named_with_those_that_are_known(model):
    with pytest.raises(InputError, match="did you mean 'openvino'"):
        Runner(model, CPU, backend="openvin")


def test_scores_of_passes_with_dropout_need_torch():
    class Spread:
        needs, passes, columns = "features", 3, {}

    network = ScoringModel(ModelSpec("resnet10t", preprocessing=Preprocessing(size=32, resize=32)))
    network.backbone.add_module("drop", nn.Dropout(0.5))
    with pytest.raises(InputError, match=r"dropout, .*openvino leaves out"):
        Runner(network, CPU, scorers={"spread": Spread()}, backend="openvino")


def test_every_backend_says_which_packages_decide_its_last_digits():
    assert list(BACKENDS) == ["torch", "openvino"]
    assert backend_versions("torch") == {}
    if find_spec("openvino"):
        assert list(backend_versions("openvino")) == ["openvino"]
