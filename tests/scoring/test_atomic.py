import os
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from scoring.atomic import AtomicFile, require_folder
from scoring.errors import InputError

HOLDS = """
import sys, time
from scoring.atomic import AtomicFile, require_folder
from scoring.errors import InputError
file = AtomicFile(sys.argv[1])
file.write(b"half")
file.flush()
print(file.temporary.name, flush=True)
time.sleep(60)
"""


def age(path):
    os.utime(path, (time.time() - 60, time.time() - 60))


@pytest.mark.parametrize("kill", [False, True])
def test_temporaries_of_the_dead_go_and_those_of_the_living_stay(tmp_path, kill):
    out = tmp_path / "table.parquet"
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(out)], stdout=subprocess.PIPE, text=True)
    try:
        held = tmp_path / process.stdout.readline().strip()
        if kill:
            process.kill()
            process.wait()
        age(held)
        with AtomicFile(out) as file:
            file.write(b"whole")
        assert out.read_bytes() == b"whole"
        assert held.exists() != kill
    finally:
        process.kill()
        process.communicate()


def test_a_young_temporary_is_left_alone_and_so_is_that_of_another_output(tmp_path):
    young = tmp_path / ".table.parquet.tmp.1.abcd"
    other = tmp_path / ".other.parquet.tmp.1.abcd"
    for path in (young, other):
        path.write_bytes(b"x")
    age(other)
    with AtomicFile(tmp_path / "table.parquet") as file:
        file.write(b"whole")
    assert young.exists()
    assert other.exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_bytes_are_on_the_disk_before_the_name_is_and_the_name_before_it_is_told(tmp_path, monkeypatch, overwrite):
    out, done = tmp_path / "table.parquet", []
    if overwrite:
        out.write_bytes(b"old")

    def noted(what, real, *args, **named):
        done.append(what)
        return real(*args, **named)

    def synced(real, handle):
        found = os.fstat(handle)
        return noted("folder" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes", real, handle)

    monkeypatch.setattr(os, "fsync", partial(synced, os.fsync))
    monkeypatch.setattr(os, "link", partial(noted, "name", os.link))
    replace = Path.replace
    monkeypatch.setattr(Path, "replace", lambda path, target: noted("name", replace, path, target))
    with AtomicFile(out, overwrite=overwrite) as file:
        file.write(b"whole")
    assert done == ["5 bytes", "name", "folder"]
    assert out.read_bytes() == b"whole"


@pytest.mark.parametrize(("flag", "words"), [(0, "permission denied"), (1, "the file system is read-only")])
def test_a_folder_that_takes_no_file_is_refused_before_the_work(tmp_path, monkeypatch, flag, words):
    require_folder(tmp_path / "a")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=flag * os.ST_RDONLY))
    with pytest.raises(InputError, match=f"cannot write {tmp_path}/a: {words}"):
        require_folder(tmp_path / "a")
