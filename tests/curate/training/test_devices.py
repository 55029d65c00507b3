"""``--devices``: one command, several processes, one model."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from curate.training.launch import is_launcher, is_silent
from scoring.errors import InputError

NETWORK = ("--backbone", "test_vit", "--backbone-set", "img_size=32", "--size", "32", "--device", "cpu")
STEPS = ("--epochs", "2", "--batch-size", "8", "--set", "optimizer=sgd", "--lr", "0.01")


def train(folder, *args):
    """Run the command as a user does, with images of noise, one of which is broken."""
    photos = folder / "photos"
    photos.mkdir(exist_ok=True)
    for number in range(17):
        pixels = np.random.default_rng(number).integers(0, 255, (32, 32, 3), np.uint8)
        Image.fromarray(pixels).save(photos / f"{number:02}.png")
    (photos / "03.png").write_text("no image")
    command = [sys.executable, "-m", "curate", "train", "simclr", "photos", *NETWORK, *STEPS, *args]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_processes_are_started_once_and_the_first_one_alone_prints(monkeypatch):
    assert is_launcher(2)
    assert not is_launcher(1)
    assert not is_silent()
    for text, devices in (("0", 0), ("1,024", 2000)):
        with pytest.raises(InputError, match=text):
            is_launcher(devices)
    monkeypatch.setattr(os, "environ", {"WORLD_SIZE": "2", "RANK": "1"})
    assert not is_launcher(2)
    assert is_silent()
    with pytest.raises(InputError, match="torchrun"):
        is_launcher(3)


@pytest.mark.slow
def test_two_processes_write_the_model_of_one_and_print_once(tmp_path):
    one = train(tmp_path, "-o", "one.safetensors")
    two = train(tmp_path, "-o", "two.safetensors", "--devices", "2", "--json", "--course", "lab")
    assert one.returncode == two.returncode == 0, two.stderr
    assert json.loads(two.stdout)["images"] == 16
    assert two.stderr.count("left out 1 image") == two.stderr.count("model ") == 1
    assert not list(tmp_path.glob(".*.work"))
    assert len((tmp_path / "lab" / "course.csv").read_text().splitlines()) == 3
    ours, theirs = (load_file(tmp_path / f"{name}.safetensors") for name in ("one", "two"))
    for name, value in ours.items():
        assert torch.allclose(theirs[name], value, rtol=1e-4, atol=1e-4), name


@pytest.mark.slow
def test_a_mistake_in_several_processes_is_one_line_and_a_stream_is_shared(tmp_path):
    odd = train(tmp_path, "-o", "odd.safetensors", "--devices", "2", "--batch-size", "7")
    assert odd.returncode == 1
    assert [line for line in odd.stderr.splitlines() if "error" in line] == [odd.stderr.splitlines()[-1]]
    assert "--batch-size 6" in odd.stderr
    stream = train(tmp_path, "-o", "stream.safetensors", "--devices", "2", "--stream")
    assert stream.returncode == 0, stream.stderr
    assert "left out 1 image" in stream.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["photos", "stream.safetensors"]
