import os
import stat
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from scoring.atomic import AtomicFile, commit_together, refuse_existing, require_folder, undo_unfinished
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError
from scoring.temporaries import folder_lock

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
def test_temporaries_of_dead_processes_are_removed_and_others_kept(tmp_path, kill):
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


def test_a_young_temporary_is_removed_unless_another_process_holds_the_folder_or_output(tmp_path):
    young = tmp_path / ".table.parquet.tmp.1.abcd"
    other = tmp_path / ".other.parquet.tmp.1.abcd"
    for path in (young, other):
        path.write_bytes(b"x")
    age(other)
    with folder_lock(tmp_path) as held:  # as `flock FOLDER curate ...` does: it is waited for, and not forever
        assert held
        AtomicFile(tmp_path / "table.parquet").discard()
        assert young.exists()
    with AtomicFile(tmp_path / "table.parquet") as file:
        file.write(b"whole")
    assert not young.exists()
    assert other.exists()


def test_a_sealed_file_without_its_name_is_not_swept(tmp_path):
    files = [AtomicFile(tmp_path / name) for name in ("a", "b")]
    files[0].seal()
    age(files[0].temporary)
    AtomicFile(tmp_path / "a").discard()
    commit_together(files)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


DIES = """
import os, sys
from pathlib import Path
from scoring.atomic import AtomicFile, commit_together
from scoring.atomic_folder import AtomicFolder
files = [AtomicFile(Path(sys.argv[1], name), overwrite=sys.argv[2] == "over") for name in ("a", "b", "c")]
for file in files:
    file.write(b"new")
taken = AtomicFile.take_name
left = [int(sys.argv[3])]
def dying(self):
    if not left[0]:
        os._exit(9)
    left[0] -= 1
    taken(self)
AtomicFile.take_name = dying
commit_together(files)
"""


@pytest.mark.parametrize("named", [0, 1, 2])
def test_a_set_without_its_last_file_is_undone_and_nothing_else_is(tmp_path, named):
    command = [sys.executable, "-c", DIES, str(tmp_path), "new", str(named)]
    assert subprocess.run(command).returncode == 9
    paths = [tmp_path / name for name in ("a", "b", "c")]
    assert [path.exists() for path in paths] == [named > 0, named > 1, False]
    undo_unfinished(paths)
    assert not any(path.exists() for path in paths)
    paths[0].write_text("mine")
    undo_unfinished(paths)
    assert paths[0].read_text() == "mine"


def test_a_set_that_a_living_process_names_is_not_undone(tmp_path):
    paths = [tmp_path / "a", tmp_path / "b"]
    living = AtomicFile(paths[0])
    living.seal()
    living.take_name()
    undo_unfinished(paths)
    assert paths[0].exists()


@pytest.mark.parametrize("named", [0, 1, 2])
def test_old_and_new_files_are_never_a_set_with_its_last_file(tmp_path, named):
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text("old")
    command = [sys.executable, "-c", DIES, str(tmp_path), "over", str(named)]
    assert subprocess.run(command).returncode == 9
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["new"] * named + ["old"] * (2 - named)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("overwrite", [False, True])
def test_bytes_are_on_the_disk_before_the_name_is_and_the_name_before_it_is_reported(tmp_path, monkeypatch, overwrite):
    out, done = tmp_path / "table.parquet", []
    if overwrite:
        out.write_bytes(b"old")

    def noted(what, real, *args, **named):
        done.append(what)
        return real(*args, **named)

    def synced(real, handle):
        status = os.fstat(handle)
        return noted("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes", real, handle)

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


def test_a_file_that_was_named_just_before_its_writer_was_killed_is_called_complete(tmp_path):
    outs = [tmp_path / "table.parquet", tmp_path / "receipt.json"]
    for out in outs:
        out.write_bytes(b"whole")
        os.link(out, tmp_path / f".{out.name}.tmp.1.abcd")
    with pytest.raises(InputError, match="complete"):
        undo_unfinished(outs)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["receipt.json", "table.parquet"]
    os.link(outs[0], tmp_path / ".table.parquet.tmp.1.abcd")
    (tmp_path / ".table.parquet.tmp.1.dcba").mkdir()  # where it was put together
    with pytest.raises(InputError, match="complete"):
        refuse_existing(outs[0])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["receipt.json", "table.parquet"]
    with pytest.raises(InputError, match="another name"):  # nothing says any more who made it
        refuse_existing(outs[0])


def test_missing_folders_are_made_with_the_file_and_not_by_the_check(tmp_path):
    out = tmp_path / "a" / "b" / "x.txt"
    require_folder(out)
    assert not list(tmp_path.iterdir())
    with AtomicFile(out) as file:
        file.write(b"1")
    assert out.read_bytes() == b"1"


@pytest.mark.parametrize("make", [lambda path: path.touch(), lambda path: path.symlink_to("nowhere")])
def test_a_file_or_a_broken_link_where_a_folder_is_needed_is_one_line(tmp_path, make):
    make(tmp_path / "a")
    for attempt in (require_folder, AtomicFile, lambda out: AtomicFolder(out).__enter__()):
        with pytest.raises(InputError, match="not a folder"):
            attempt(tmp_path / "a" / "b" / "x.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
