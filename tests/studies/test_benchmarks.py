"""A benchmark that nobody runs breaks unseen: this one is run, on a few images."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.study

ROOT = Path(__file__).parents[2]


def test_the_benchmark_of_the_cache_runs_and_times_every_part(tmp_path):
    photos = sorted((ROOT / "examples" / "photos").glob("*.jpg"))
    images = [photo.read_bytes() for photo in photos] * 6
    pq.write_table(pa.table({"image": images, "label": [at % 2 for at in range(len(images))]}), tmp_path / "p.parquet")
    script = [sys.executable, str(ROOT / "benchmarks" / "cache.py"), "--source", str(tmp_path / "p.parquet")]
    done = subprocess.run([*script, "--n", "72"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert set(result["rates"]) == {"from files", "from images", "from the cache", "making the cache"}
    assert set(result["us"]) == {"decode", "augment", "backbone", "head", "read"}
    assert all(value > 0 for value in result["us"].values())  # rates are differences of two runs: noise, at this size


@pytest.mark.parametrize("options", [["--models", "trio"], ["--models", "random:resnet10t", "--backend", "openvino"]])
def test_the_benchmark_of_scoring_reports_decoding_model_and_the_whole(options):
    pytest.importorskip("openvino")
    script = [sys.executable, str(ROOT / "benchmarks" / "score.py"), "--images", "24", "--repeats", "1"]
    done = subprocess.run([*script, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for what in ("by the clock", "of processor time"):
        _, _, table = done.stdout.partition(f"images for each second {what}")
        assert [line.split()[0] for line in table.splitlines()[1:5]] == ["decoding", "model", "resident", "whole"]


def test_the_benchmark_of_backends_reports_speeds_and_what_becomes_of_scores():
    ways = ["eager bf16, channels last", "curate fp32"]
    script = [sys.executable, str(ROOT / "benchmarks" / "backends.py"), "--models", "trio", "--rounds", "1"]
    script += ["--ways", *ways, "--images", str(ROOT / "examples" / "photos")]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(f"  {way} " in done.stdout for way in ways)
    rho = [
        float(line.split()[2]) for line in done.stdout.partition("curate fp32: cosine mean 1.0000")[2].splitlines()[1:]
    ]
    assert len(rho) == 5
    assert min(rho) > 0.999


@pytest.mark.parametrize("options", [["known"], ["speed", "--rows", "3000", "--width", "16", "--queries", "50"]])
def test_the_benchmark_of_retrieval_reports_coverage_and_speed(options):
    script = [sys.executable, str(ROOT / "benchmarks" / "retrieval.py"), *options]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    if options[0] == "speed":
        assert all("recall 1 (exact)" in line for line in lines)
        assert len(lines) == 3
    else:
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
        assert all(abs(float(inside.split()[0]) - float(chance)) < 0.02 for _, _, chance, inside, _ in cells)
