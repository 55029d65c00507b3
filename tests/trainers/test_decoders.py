"""Caching and training where the decoder of one image takes the process with it: repeated, they find it and go on."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from scoring.cards import read_header
from scoring.marks import Marks, decoding_path

FAILING = Path(__file__).parents[1] / "scoring" / "images" / "failing_decoder.py"


@pytest.fixture
def dataset(tmp_path):
    """Eight JPEGs; the decoder crashes at one of them."""
    folder = tmp_path / "heap"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(8):
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(folder / f"{i}.jpg")
    with (folder / "5.jpg").open("ab") as file:
        file.write(b"<<SEGV>>")
    return folder


def twice(*line):
    """Run a command that dies the first time, and again; return how the second time ended."""
    ended = [
        subprocess.run([sys.executable, str(FAILING), *map(str, line)], capture_output=True, text=True)
        for _ in range(2)
    ]
    assert ended[0].returncode == -signal.SIGSEGV, ended[0].stderr
    assert ended[1].returncode == 0, ended[1].stderr
    return ended[1]


@pytest.mark.slow
def test_a_cache_leaves_out_the_image_that_crashes_the_decoder_when_it_is_repeated(dataset, tiny_checkpoint, tmp_path):
    out = tmp_path / "features"
    ended = twice("cache", dataset, "-o", out, "--model", tiny_checkpoint, "--epochs", 2, "--device", "cpu", "--json")
    assert json.loads(ended.stdout)["failures"] == {"crashed": 1}
    assert sorted(path.name for path in out.iterdir()) == [
        "cache.json",
        "epoch-000000.parquet",
        "epoch-000001.parquet",
        "lock",
    ]
    keys = [f"{i}.jpg" for i in range(8) if i != 5]
    assert pq.read_table(out / "epoch-000001.parquet", columns=["key"])["key"].to_pylist() == keys


@pytest.mark.slow
@pytest.mark.parametrize("source", ["--no-stream", "--stream"])
def test_training_leaves_out_the_image_that_crashes_the_decoder_when_it_is_repeated(
    source, dataset, tiny_checkpoint, tmp_path
):
    out = tmp_path / "mine.safetensors"
    line = ["train", "visimsiam", dataset, "-o", out, "--backbone", tiny_checkpoint, "--freeze", "--size", 32, source]
    twice(*line, "--epochs", 1, "--batch-size", 7, "--device", "cpu", "--set", "n_small=0", "--precision", "fp32")
    card = read_header(out)["training"]
    assert (card["images"], card.get("replaced")) == ((8, {"crashed": 1}) if source == "--stream" else (7, None))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["heap", "mine.safetensors"]


def test_a_mark_stays_where_a_process_died_until_the_work_is_done(tmp_path):
    decoding_path(tmp_path, 3).touch()
    with Marks(tmp_path) as marks:
        assert [marks.begin(number) for number in (2, 3)] == [False, True]
        for number in (2, 3):
            marks.end(number)
        assert [path.name for path in tmp_path.iterdir()] == [".decoding-000003"]
        assert [marks.begin(number) for number in (2, 3)] == [False, True]
    assert list(tmp_path.iterdir()) == []
