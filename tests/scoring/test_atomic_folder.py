"""Folders that appear whole or not at all."""

import errno
import os
import sys
from pathlib import Path

import pytest

from scoring import atomic_folder
from scoring.atomic import AtomicFile, commit_together, undo_unfinished
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError


def test_what_a_dead_process_left_is_removed_and_what_a_living_one_holds_is_not(tmp_path):
    dead = tmp_path / ".out.tmp.1.abc"
    dead.mkdir()
    (dead / "x").write_text("x")
    os.utime(dead, (1, 1))
    first = AtomicFolder(tmp_path / "out")
    assert not dead.exists()
    os.utime(first.temporary, (1, 1))
    with AtomicFolder(tmp_path / "out") as second:
        assert first.temporary.exists()
        second.write("a/b", b"2")
    with pytest.raises(InputError, match="appeared while"):
        first.publish()
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "a", "b"]


def test_a_folder_has_its_name_when_all_is_in_it_and_is_gone_after_an_error(tmp_path):
    with AtomicFolder(tmp_path / "out") as folder:
        folder.write("a/b", b"1")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out/a/b").read_bytes() == b"1"
    with pytest.raises(FileExistsError), AtomicFolder(tmp_path / "other") as folder:  # noqa: PT012
        folder.write("b", b"2")
        raise FileExistsError
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(InputError, match="exists already"):
        AtomicFolder(tmp_path / "out")


def test_files_and_folders_of_one_name_remove_what_either_left_and_no_link(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / ".out.tmp.1.link").symlink_to(tmp_path / "precious")
    (tmp_path / ".out.tmp.1.file").write_text("x")
    (tmp_path / ".out.tmp.1.folder").mkdir()
    for path in tmp_path.iterdir():
        os.utime(path, (1, 1), follow_symlinks=False)
    AtomicFile(tmp_path / "out").discard()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".out.tmp.1.link", "precious"]


def test_a_folder_that_cannot_be_replaced_has_its_name_and_content_back(tmp_path, monkeypatch):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("old")
    rename = Path.rename

    def refusing(path, target):
        if ".tmp." in path.name:
            raise OSError(errno.EIO, "the disk is broken")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refusing)
    monkeypatch.setattr(atomic_folder, "exchange", lambda first, other: False)  # a disk that cannot
    with pytest.raises(InputError, match="input/output"), AtomicFolder(tmp_path / "out", overwrite=True) as folder:
        folder.write("new", b"new")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "old"]
    monkeypatch.undo()
    with AtomicFolder(tmp_path / "out", overwrite=True) as folder:
        folder.write("new", b"new")
    assert [path.name for path in tmp_path.rglob("*")] == ["out", "new"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="a call of Linux")
def test_two_folders_take_one_anothers_names_in_one_step(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
    assert atomic_folder.exchange(tmp_path / "one", tmp_path / "other")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*")) == ["one/other", "other/one"]
    assert not atomic_folder.exchange(tmp_path / "one", tmp_path / "none")


def test_a_file_inside_a_folder_of_our_own_waits_for_no_one(tmp_path, monkeypatch):
    def never(seconds):
        raise AssertionError("it waits for a lock that its own process holds")

    monkeypatch.setattr("scoring.temporaries.time.sleep", never)
    with AtomicFolder(tmp_path / "out") as folder, AtomicFile(folder.temporary / "a") as file:
        file.write(b"1")
    assert (tmp_path / "out/a").read_bytes() == b"1"


def test_a_file_without_the_folder_named_after_it_is_taken_back_and_with_it_is_kept(tmp_path):
    page, folder = AtomicFile(tmp_path / "page"), AtomicFolder(tmp_path / "out")
    for each in (page, folder):
        each.seal()
    page.take_name()
    page._let_go()  # as if the process had died here
    undo_unfinished([page.path, folder.path])
    assert not page.path.exists()
    folder.discard()
    commit_together([AtomicFile(tmp_path / "page"), AtomicFolder(tmp_path / "out")])
    undo_unfinished([page.path, folder.path])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "page"]


def test_a_folder_whose_name_cannot_be_made_durable_loses_it_again(tmp_path, monkeypatch):
    def full(folder):
        raise OSError(errno.ENOSPC, "full")

    made = AtomicFolder(tmp_path / "out")
    made.write("a", b"1")
    made.seal()
    monkeypatch.setattr("scoring.atomic.sync_folder", full)
    with pytest.raises(InputError, match="disk is full"):
        made.publish()
    assert list(tmp_path.iterdir()) == []
