"""The lock of a folder: one holder, which a dead process is not, and no file elsewhere is touched."""

import os

import pytest

from scoring import lock
from scoring.errors import InputError
from scoring.lock import LOCK, hold_folder


def test_a_folder_has_one_holder_at_a_time_and_says_which(tmp_path):
    first = hold_folder(tmp_path / "work")
    with pytest.raises(InputError, match=f"process {os.getpid()} .*wait"):
        hold_folder(tmp_path / "work")
    os.close(first)
    os.close(hold_folder(tmp_path / "work"))


def test_a_folder_that_is_no_folder_is_one_line_and_left_alone(tmp_path):
    (tmp_path / "work").write_text("precious")
    with pytest.raises(InputError, match=r"a folder at .*work"):
        hold_folder(tmp_path / "work")
    assert (tmp_path / "work").read_text() == "precious"


def test_a_link_in_the_locks_place_does_not_empty_what_it_points_at(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(InputError, match="got a link"):
        hold_folder(tmp_path / "work")
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_pipe_in_the_locks_place_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / LOCK)
    with pytest.raises(InputError, match=r"file at .*lock"):
        hold_folder(tmp_path)


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / "taken").touch()
    with pytest.raises(InputError, match=r"taken.*not a folder"):
        hold_folder(tmp_path / "taken" / "work")


def test_a_folder_that_is_taken_away_while_it_is_locked_is_made_and_locked_again(tmp_path, monkeypatch):
    """As by a process that ends, and gives the folder its last name, between our opening and our locking."""
    take, done = lock._take, []

    def late(handle, folder, known_as):
        if not done:
            done.append(folder.rename(tmp_path / "done"))
        take(handle, folder, known_as)

    monkeypatch.setattr(lock, "_take", late)
    handle = hold_folder(tmp_path / "work")
    assert os.path.samestat(os.fstat(handle), (tmp_path / "work" / LOCK).stat())
    os.close(handle)
