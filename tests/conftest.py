"""Shared by all tests."""

import gc
import os
import socketserver
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
import typer.testing

for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):  # tests are many small things, and a process runs on each core
    os.environ.setdefault(name, "1")
typer.testing._get_command = cache(typer.testing._get_command)  # it builds all commands, in 0.04 s, for each line
os.fsync = lambda handle: None  # no test cuts the power of its own process, and thousands of files are written
os.environ.pop("COLUMNS", None)  # pytest-xdist sets it, and what goes to a file is not to be broken at a width

socketserver.BaseServer.serve_forever.__defaults__ = (0.02,)  # seconds until it ends; 0.5 s add up in a hundred tests

collect_ignore_glob = ["*conftest.py"]  # none is a module of tests; of two folders, pytest would mix them up


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for garbage neither while tests are collected nor ever in what was: it all stays, and takes seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(700, 10, 100)  # going through all that is imported later is 2% of the time
        gc.enable()


SHARED = Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real images next to the checkout; tests that need it are skipped where it is absent."""
    if not SHARED.is_dir():
        pytest.skip(f"the real images are not at {SHARED}")
    return SHARED


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights that scores 32-pixel images quickly."""
    import torch

    from scoring.backbones import create_backbone
    from scoring.checkpoint import save_checkpoint
    from scoring.heads import KappaHeadSpec
    from scoring.images import Preprocessing
    from scoring.model import ModelSpec, ScoringModel

    path = tmp_path_factory.mktemp("model") / "tiny.safetensors"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        spec = ModelSpec("test_resnet", {}, {"visimsiam": KappaHeadSpec(16, 31.0)}, Preprocessing(size=32, resize=32))
        model = ScoringModel(spec, backbone=create_backbone(spec.backbone)).eval()  # weights as timm draws them
        with torch.no_grad():  # or random weights give every image nearly the same kappa
            model.heads["visimsiam"].out.weight.mul_(20)
    card = {"method": "visimsiam", "training": {"data": "none"}, "metrics": {}, "data_licence": "CC0"}
    save_checkpoint(path, model, card)
    return path


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory):
    """A folder where commands are killed and calls fail, and a process that forks them: see tests/crash."""
    import shutil
    import sys

    from crash_lab import Lab, compiled

    if not (sys.platform.startswith("linux") and (shutil.which("gcc") or shutil.which("cc"))):
        pytest.skip("calls are made to fail by a preloaded library, which takes Linux and a C compiler")
    place = tmp_path_factory.mktemp("crash")
    with Lab(place, compiled(place)) as made:
        yield made
