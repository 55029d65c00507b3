"""A run that dies at every single operation on the disk, one after another, and is started again."""

import subprocess
import sys
from pathlib import Path

import pytest

# Dies without unwinding, as by a power cut, just before or just after the n-th operation that changes the disk.
DYING = """
import os, shutil, sys
from pathlib import Path

folder, out, model, n, when, overwrite = sys.argv[1:]
n, after, overwrite = int(n), when == "after", overwrite == "yes"
count = 0

def dying(real):
    def call(*args, **kwargs):
        global count
        count += 1
        if count == n and not after:
            os._exit(9)
        result = real(*args, **kwargs)
        if count == n and after:
            os._exit(9)
        return result
    return call

from curate.engines.score import score
from curate.engines.settings import ScoreSettings

settings = {"device": "cpu", "batch_size": 4, "shard_size": 4}
for place, names in ((os, "fsync link mkdir pwrite"), (Path, "unlink rename replace"), (shutil, "rmtree")):
    for name in names.split():
        setattr(place, name, dying(getattr(place, name)))
score(folder, out, model=model, **settings, overwrite=overwrite)
print("operations", count)
"""


def run(dataset: Path, out: Path, model: Path, n: int, when: str, overwrite: str = "no") -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", DYING, str(dataset), str(out), str(model), str(n), when, overwrite]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    import numpy as np
    from PIL import Image

    folder = tmp_path_factory.mktemp("kill") / "photos"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for i in range(9):
        Image.fromarray(generator.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(folder / f"{i}.png")
    return folder


def content(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(out.glob("part-*"))} if out.is_dir() else {"": out.read_bytes()}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s.parquet", "scores"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_run_that_dies_at_any_operation_ends_as_if_it_had_not(dataset, tiny_checkpoint, tmp_path, name, when):
    uninterrupted = run(dataset, tmp_path / name, tiny_checkpoint, 0, when)
    assert uninterrupted.returncode == 0, uninterrupted.stderr
    operations = int(uninterrupted.stdout.split()[-1])
    assert operations > 15
    for n in range(1, operations + 1):
        place = tmp_path / str(n)
        place.mkdir()
        dead = run(dataset, place / name, tiny_checkpoint, n, when)
        assert dead.returncode == 9, (n, dead.stderr)
        again = run(dataset, place / name, tiny_checkpoint, 0, when)
        assert again.returncode == 0, (n, again.stderr)
        assert content(place / name) == content(tmp_path / name), n
        assert [p.name for p in place.iterdir()] == [name], n


@pytest.mark.slow
@pytest.mark.parametrize("name", ["s.parquet", "scores"])
def test_replacing_a_table_never_leaves_less_than_one(dataset, tiny_checkpoint, tmp_path, name):
    """With --overwrite the old table stays whole until the new one has its name."""
    other = tmp_path / "other"
    other.mkdir()
    for path in list(dataset.iterdir())[:5]:
        (other / path.name).write_bytes(path.read_bytes())
    uninterrupted = run(dataset, tmp_path / name, tiny_checkpoint, 0, "before")
    operations = int(uninterrupted.stdout.split()[-1]) + 4
    old = run(other, tmp_path / f"old-{name}", tiny_checkpoint, 0, "before")
    assert old.returncode == 0
    for n in range(1, operations + 1, 2):
        place = tmp_path / str(n)
        place.mkdir()
        run(other, place / name, tiny_checkpoint, 0, "before")
        run(dataset, place / name, tiny_checkpoint, n, "before", "yes")
        kept = content(place / name) if (place / name).exists() else None
        if kept is None:  # between the two renames of a folder: the old one is next to it
            (aside,) = place.glob(f".{name}.*.old")
            kept = content(aside)
        assert kept in (content(tmp_path / name), content(tmp_path / f"old-{name}")), n
        again = run(dataset, place / name, tiny_checkpoint, 0, "before", "yes")
        assert again.returncode == 0, (n, again.stderr)
        assert content(place / name) == content(tmp_path / name), n
        assert [p.name for p in place.iterdir()] == [name], n
