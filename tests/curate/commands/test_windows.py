"""Commands run without what Windows lacks; see as_windows.py for what is taken away."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from scoring.errors import InputError
from scoring.lock import hold_beside

ROOT = Path(__file__).parents[3]
LINES = (
    "score images -o scores.parquet --label-from-folder",
    "info scores.parquet",
    "score images -o scores.parquet --label-from-folder --overwrite",  # a file takes the place of another
    "filter scores.parquet --keep-top 80% -o kept.parquet",
    "dedup scores.parquet -o unique.parquet",
    "round init rounds scores.parquet --batch 3",
    "round next rounds",
    "export scores.parquet --to imagefolder --label label -o folders",
)


def as_windows(place, lines):
    return subprocess.run(
        [sys.executable, Path(__file__).with_name("as_windows.py"), *lines],
        cwd=place,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")
def test_a_table_is_filtered_without_the_modules_and_calls_that_windows_lacks(full_table, tmp_path):
    shutil.copy(full_table, tmp_path / "scores.parquet")
    done = as_windows(tmp_path, ("info scores.parquet", "filter scores.parquet --keep-top 80% -o kept.parquet"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert pq.read_metadata(tmp_path / "kept.parquet").num_rows == 23  # of 28 that could be read


@pytest.mark.skipif(sys.platform != "linux", reason="open files are read from /proc")
@pytest.mark.slow
def test_a_pipeline_runs_without_the_modules_and_calls_that_windows_lacks(tmp_path):
    random = np.random.default_rng(0)
    for number in range(8):
        (tmp_path / "images" / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        pixels = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((64, 48))
        pixels.save(tmp_path / "images" / "ab"[number % 2] / f"{number}.{('png', 'gif')[number // 7]}")
    done = as_windows(tmp_path, LINES)
    assert done.returncode == 0, done.stdout + done.stderr
    table = pq.read_table(tmp_path / "scores.parquet")
    assert table["status"].to_pylist() == ["ok"] * 8  # the GIF by a decoder's own process
    assert pq.read_metadata(tmp_path / "kept.parquet").num_rows == 7  # 6.4, rounded up
    assert len(list((tmp_path / "folders").rglob("*.*g*"))) == 8
    assert {path.name for path in tmp_path.glob("**/*.lock")} == set()


def test_a_lock_next_to_a_folder_has_one_holder(tmp_path):
    first = hold_beside(tmp_path / "work")
    with pytest.raises(InputError, match="wait for it"):
        hold_beside(tmp_path / "work")
    first.release()
    hold_beside(tmp_path / "work").release()
    hold_beside(tmp_path / "missing" / "work").release()  # the folder is made
    assert (tmp_path / "missing").is_dir()
