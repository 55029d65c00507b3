"""What torch compiles gives the scores of the plain layers, for any batch, and nothing slower takes its place."""

import copy
import os
import shutil
import subprocess
import sys
from functools import cache

import pytest
import torch
from torch import nn

from scoring.backends import backend_versions
from scoring.compiled_backbone import GROUPS, CompiledBackbone, with_compiled
from scoring.errors import InputError
from scoring.folded import has_bfloat16, relative_error
from scoring.heads import KappaHeadSpec
from scoring.images import Preprocessing
from scoring.model import ModelSpec, ScoringModel
from scoring.runner import Runner

CPU = torch.device("cpu")
GROUP = GROUPS["cpu"]
FAR = {"fp32": 1e-4, "bf16": 0.03}  # relative error of embeddings
has_compiler = shutil.which(os.environ.get("CXX", "g++")) is not None
needs_bfloat16 = pytest.mark.skipif(not has_bfloat16(), reason="this CPU does not multiply in bfloat16")


def needs_compiler(test):
    """Mark a test that compiles with torch, which takes ten seconds the first time."""
    return pytest.mark.slow(pytest.mark.skipif(not has_compiler, reason="there is no C++ compiler")(test))


PRECISIONS = ["fp32", pytest.param("bf16", marks=needs_bfloat16)]


class Small(nn.Module):
    """A network of two convolutions, the first of them normalised."""

    num_features = head_hidden_size = 8

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, 2, 1)

    def forward(self, pictures):
        return self.second(self.norm(self.first(pictures)).relu()).relu().mean((2, 3))


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    network = Small()
    network.norm.running_mean.normal_()
    spec = ModelSpec("small", {}, {"visimsiam": KappaHeadSpec(8, 31.0)}, Preprocessing(32, 32))
    return ScoringModel(spec, backbone=network).eval()


@pytest.fixture(scope="module")
def runner(model):
    """Makes a compiled runner, once for each precision."""
    return cache(lambda precision: Runner(copy.deepcopy(model), CPU, precision, backend="compile"))


def pictures(n):
    drawn = torch.randint(0, 256, (n, 32, 32, 3), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return drawn.numpy()


@needs_compiler
@pytest.mark.parametrize("precision", PRECISIONS)
def test_compiled_backbones_give_the_scores_of_the_plain_layers(model, runner, precision):
    pixels = pictures(GROUP + 3)
    outputs = runner(precision).submit(pixels).result()
    with torch.inference_mode():
        expected = model(torch.from_numpy(pixels).permute(0, 3, 1, 2))
    assert relative_error(torch.from_numpy(outputs.embedding), expected.embedding) < FAR[precision]
    kappa = torch.from_numpy(outputs.columns["kappa_visimsiam"])
    assert torch.allclose(kappa, expected.columns["kappa_visimsiam"], rtol=2 * FAR[precision])


@needs_compiler
@pytest.mark.parametrize("precision", PRECISIONS)
def test_an_images_features_are_the_same_bits_in_any_batch_and_nothing_is_compiled_again(runner, precision):
    pixels = pictures(3 * GROUP + 5)
    with torch.compiler.set_stance("fail_on_recompile"):
        outputs = runner(precision).submit(pixels).result().embedding
        for start, stop in ((0, 1), (3, 7), (GROUP, len(pixels))):
            assert (runner(precision).submit(pixels[start:stop]).result().embedding == outputs[start:stop]).all()


@needs_compiler
def test_more_backbones_than_torch_allows_by_itself_keep_their_own_weights():
    """torch counts all of them as one function, and compiles it 8 times; once, here."""
    torch.manual_seed(0)
    shown = torch.rand(2, 3, 4, 4)
    with torch._dynamo.config.patch(recompile_limit=1):
        for _ in range(2):
            backbone = nn.Sequential(nn.Conv2d(3, 2, 4), nn.Flatten()).eval()
            with torch.no_grad():
                assert relative_error(CompiledBackbone(backbone, 4, "fp32", 2)(shown), backbone(shown)) < 1e-4


@needs_compiler
def test_memory_that_runs_out_for_one_group_is_reported_in_one_line(runner, monkeypatch):
    def forward(pixels):
        raise torch.OutOfMemoryError("out of memory")

    ours = copy.copy(runner("fp32"))
    monkeypatch.setattr(ours.model.quick, "forward", forward)
    with pytest.raises(InputError, match=f"not enough for {GROUP} images at once, as --backend compile takes them"):
        ours.submit(pictures(2 * GROUP))


def test_a_network_that_cannot_be_compiled_whole_is_refused_in_one_line():
    class Odd(nn.Module):
        def forward(self, pictures):
            print("something outside of the network")
            return pictures.mean((2, 3))

    with pytest.raises(InputError, match=r"^torch.compile cannot run Odd \(.*\); leave out --backend$") as caught:
        CompiledBackbone(Odd(), 32, "fp32", 4)
    assert "\n" not in str(caught.value)


@needs_compiler
def test_a_network_whose_features_come_out_otherwise_is_refused():
    class Moody(nn.Module):
        def forward(self, pictures):
            return pictures.mean((2, 3)) + (1 if torch.compiler.is_compiling() else 0)

    with pytest.raises(InputError, match=r"torch\.compile gives other features of Moody"):
        CompiledBackbone(Moody(), 32, "fp32", 4)


def test_a_precision_that_the_cpu_lacks_is_refused(model, monkeypatch):
    monkeypatch.setattr("scoring.compiled_backbone.has_bfloat16", lambda: False)
    with pytest.raises(InputError, match="multiplies in it; use --precision fp32"):
        with_compiled(model, CPU, "bf16")


PLAINLY = """
import torch, torch._dynamo.config
from scoring.compiled_backbone import CompiledBackbone
from scoring.errors import InputError

for is_off in (False, True):
    with torch._dynamo.config.patch(disable=is_off):
        try:
            CompiledBackbone(torch.nn.Sequential(torch.nn.Conv2d(3, 2, 4), torch.nn.Flatten()), 4, "fp32", 2)
        except InputError as error:
            print(error)
"""


@pytest.mark.slow
def test_without_a_compiler_and_with_torch_compile_switched_off_nothing_else_runs(tmp_path):
    """In its own process: torch remembers a function that it was reported not to compile."""
    without = {**os.environ, "CXX": str(tmp_path / "none"), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, "-c", PLAINLY], env=without, capture_output=True, text=True, check=True)
    lacking, is_off = done.stdout.splitlines()
    assert lacking.startswith("torch.compile cannot run Sequential (")
    assert "C++ compiler" in lacking
    assert "is TORCH_COMPILE_DISABLE set" in is_off


@needs_compiler
def test_the_compiler_is_named_with_its_version():
    assert "." in backend_versions("compile", "cpu")["compiler"]
