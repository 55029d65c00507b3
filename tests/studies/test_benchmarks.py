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
    script = [sys.executable, str(ROOT / "benchmarks" / "cache.py"), "--data", str(tmp_path / "p.parquet")]
    done = subprocess.run([*script, "--n", "72"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found["rates"]) == {"from files", "from images", "from the cache", "making the cache"}
    assert set(found["us"]) == {"decode", "augment", "backbone", "head", "read"}
    assert all(value > 0 for value in found["us"].values())  # rates are differences of two runs: noise, at this size
