"""An addition that is killed: the table is whole at any moment, and a repeat ends as if nothing had happened."""

import hashlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from curate.engines import junk
from curate.engines.journal import JOURNAL, journal_lines
from curate.engines.score import score
from curate.tables.table import open_table

pytestmark = pytest.mark.usefixtures("few_copies")
SETTINGS = {"device": "cpu", "batch_size": 4, "shard_size": 4, "white": 65535}
FIRST, MORE, NEW = 60, 11, 5  # images, those drawn later, and how many of these are new

# Kills itself just before the n-th operation that changes the disk.
DYING = """
import os, shutil, signal, sys
from pathlib import Path

folder, out, n, copies = sys.argv[1:]
n, count = int(n), 0

def dying(real):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == n:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return call

from curate.engines import junk
from curate.engines.score import score

junk.COPIES = int(copies)
for place, names in ((os, "fsync link mkdir pwrite"), (Path, "unlink rename replace"), (shutil, "rmtree")):
    for name in names.split():
        setattr(place, name, dying(getattr(place, name)))
score(folder, out, add=True)
print("operations", count)
"""


def draw(path, number):
    pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(pixels).resize((32, 32), Image.Resampling.NEAREST).save(path)


@pytest.fixture(scope="module")
def grown(tmp_path_factory, tiny_checkpoint, few_copies):
    """Folders whose images are newer than the tables next to them: s.parquet with a fit, and s, a folder of parts."""
    place = tmp_path_factory.mktemp("grown")
    (place / "photos").mkdir()
    for number in range(FIRST):
        draw(place / "photos" / f"{2 * number:03}.png", number)
    for name in ("s.parquet", "s"):
        score(place / "photos", place / name, model=tiny_checkpoint, **SETTINGS)
    for number in range(MORE):
        draw(place / "photos" / f"{3 * number:03}.png", 1000 + number)
    (place / "photos" / "118.png").unlink()
    return place


def run(grown, out, n):
    command = [sys.executable, "-c", DYING, str(grown / "photos"), str(out), str(n), str(junk.COPIES)]
    return subprocess.run(command, capture_output=True, text=True)


def copied(grown, name, place):
    place.mkdir()
    copy = shutil.copytree if (grown / name).is_dir() else shutil.copy
    copy(grown / name, place / name)
    return place / name


def content(out: Path):
    return {p.name: p.read_bytes() for p in sorted(out.glob("part-*"))} if out.is_dir() else {"": out.read_bytes()}


def test_an_addition_that_is_killed_in_its_midst_is_finished_by_a_repeat(grown, tmp_path):
    complete, out = (copied(grown, "s.parquet", tmp_path / each) for each in ("whole", "killed"))
    score(grown / "photos", complete, add=True)
    assert run(grown, out, 20).returncode == -9
    assert content(out) == content(grown / "s.parquet")
    score(grown / "photos", out, add=True)
    assert content(out) == content(complete)
    assert open_table(out).metadata == open_table(complete).metadata
    assert {path.name for path in out.parent.iterdir()} - {"s.parquet.fit"} == {"s.parquet"}


def ends_well(grown, name, place, points):
    finished = copied(grown, name, place / "whole")
    done = run(grown, finished, 0)
    assert done.returncode == 0, done.stderr
    operations = int(done.stdout.split()[-1])
    assert operations > 12
    for n in points(operations):
        out = copied(grown, name, place / str(n))
        assert run(grown, out, n).returncode == -9, n
        assert content(out) in (content(grown / name), content(finished)), n
        again = run(grown, out, 0)
        assert again.returncode == 0, (n, again.stderr)
        assert content(out) == content(finished), n
        assert open_table(out).metadata == open_table(finished).metadata
        assert {p.name for p in out.parent.iterdir()} - {f"{name}.fit"} == {name}, n


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s.parquet", "s"])
def test_an_addition_that_is_killed_at_any_operation_is_finished_by_a_repeat(grown, tmp_path, name):
    ends_well(grown, name, tmp_path, lambda operations: range(1, operations + 1))


class Stop(Exception):
    """Ends a run between two shards."""


def stop_after(n_parts):
    def report(progress):
        if progress.done >= 4 * n_parts + 1:
            raise Stop

    return report


def test_a_source_that_grew_in_between_keeps_the_shards_that_are_finished(grown, tmp_path):
    out = copied(grown, "s.parquet", tmp_path / "t")
    photos = shutil.copytree(grown / "photos", tmp_path / "photos")  # with the times of the files
    with pytest.raises(Stop):
        score(photos, out, add=True, report=stop_after(2))
    work = out.with_name(".s.parquet.work")
    finished = [line["shard"] for line in journal_lines(work / JOURNAL)]
    assert finished
    for number in range(5):
        draw(photos / f"new{number}.png", 2000 + number)
    resumed = []
    result = score(photos, out, add=True, report=lambda progress: resumed.append(progress.resumed))
    assert resumed[0] == 4 * len(finished)
    keys = open_table(out).read(["key"])["key"].to_pylist()
    assert result.rows == len(keys) == FIRST + NEW + 5
    assert [key for key in keys if key != "118.png"] == sorted(path.name for path in photos.iterdir())


def test_a_file_that_changes_in_between_is_scored_again(grown, tmp_path):
    out = copied(grown, "s.parquet", tmp_path / "t")
    photos = shutil.copytree(grown / "photos", tmp_path / "photos")
    with pytest.raises(Stop):
        score(photos, out, add=True, report=stop_after(2))
    draw(photos / "003.png", 3000)
    score(photos, out, add=True)
    rows = open_table(out).read(["key", "sha256"]).to_pylist()
    now = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in photos.iterdir()}
    assert {row["key"]: row["sha256"] for row in rows if row["key"] != "118.png"} == now


def test_two_additions_at_once_leave_one_table(grown, tmp_path):
    out = copied(grown, "s.parquet", tmp_path / "t")
    ended = []

    def add():
        try:
            ended.append(score(grown / "photos", out, add=True).rows)
        except Exception as error:
            ended.append(type(error).__name__)

    threads = [threading.Thread(target=add) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert FIRST + NEW in ended
    assert set(ended) <= {FIRST + NEW, "InputError"}
    assert open_table(out).n_rows == FIRST + NEW
    assert not out.with_name(".s.parquet.work").exists()
