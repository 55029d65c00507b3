"""A command that dies at any operation on the disk leaves the old state or the new, and can be run again.

What a process that dies leaves is the folder as it stands just before its next operation: bytes that were not handed
to the system are lost in either case. So the folder is copied before every operation of one run.
"""

import os
import shutil
from pathlib import Path

import pytest
from rounds_table import CLASSES, answer, content, table

from curate.rounds.import_labels import round_import
from curate.rounds.init import round_init
from curate.rounds.next import round_next

OPERATIONS = ((os, ("fsync", "link", "mkdir", "pwrite", "ftruncate")), (Path, ("unlink", "rename", "replace")))


class Copies:
    """Copies of a folder, one before every operation that changes the disk; those that are alike once."""

    def __init__(self, folder: Path, places: Path, monkeypatch) -> None:
        self.folder, self.places, self.busy, self.n_operations = folder, places, False, 0
        self.seen: dict[str, Path] = {}
        places.mkdir()
        for place, names in OPERATIONS:
            for name in names:
                monkeypatch.setattr(place, name, self.before(getattr(place, name)))

    def before(self, real):
        def call(*args, **kwargs):
            if not self.busy:
                self.busy = True
                self.copy()
                self.busy = False
            return real(*args, **kwargs)

        return call

    def copy(self) -> None:
        self.n_operations += 1
        state = str(sorted(content(self.folder).items())) + str(sorted(map(str, self.folder.rglob("*"))))
        if state not in self.seen:
            place = self.places / str(len(self.seen))
            place.mkdir()
            if self.folder.exists():
                shutil.copytree(self.folder, place / "r")
            self.seen[state] = place


def visible(folder: Path) -> dict[str, bytes]:
    """The files that have their names, of rounds that have theirs."""
    return {name: data for name, data in content(folder).items() if "/." not in f"/{name}"}


@pytest.fixture
def labelled(tmp_path):
    """A folder with one round that is labelled, next to its table."""
    truth = table(tmp_path / "t.parquet", 60)
    round_init(tmp_path / "r", tmp_path / "t.parquet", classes=CLASSES, batch=8, holdout="8")
    round_import(tmp_path / "r", answer(round_next(tmp_path / "r"), truth, tmp_path / "1.csv"))
    return tmp_path, truth


def test_next_leaves_the_old_state_or_the_new_wherever_it_dies(labelled):
    tmp_path, _ = labelled
    old = visible(tmp_path / "r")
    with pytest.MonkeyPatch.context() as patch:
        copies = Copies(tmp_path / "r", tmp_path / "k", patch)
        round_next(tmp_path / "r")
    new = visible(tmp_path / "r")
    assert copies.n_operations > 15
    assert len(copies.seen) > 8
    for place in copies.seen.values():
        files = visible(place / "r")
        assert files in (old, new), place
        if files == old:
            round_next(place / "r")
        assert content(place / "r") == new, place


def test_import_leaves_the_old_state_or_the_new_wherever_it_dies(labelled):
    tmp_path, truth = labelled
    answers = answer(round_next(tmp_path / "r"), truth, tmp_path / "2.csv")
    old = visible(tmp_path / "r")
    with pytest.MonkeyPatch.context() as patch:
        copies = Copies(tmp_path / "r", tmp_path / "k", patch)
        round_import(tmp_path / "r", answers)
    new = visible(tmp_path / "r")
    assert len(copies.seen) >= 3
    for place in copies.seen.values():
        files = visible(place / "r")
        assert files in (old, new), place
        again = round_import(place / "r", answers)
        assert (again.written is None) == (files == new)
        assert visible(place / "r") == new, place


def test_init_leaves_nothing_or_a_whole_folder_wherever_it_dies(tmp_path):
    table(tmp_path / "t.parquet", 60)

    def run(folder):
        round_init(folder, tmp_path / "t.parquet", classes=CLASSES, batch=8, holdout="8")

    with pytest.MonkeyPatch.context() as patch:
        copies = Copies(tmp_path / "r", tmp_path / "k", patch)
        run(tmp_path / "r")
    new = visible(tmp_path / "r")
    assert len(copies.seen) >= 5
    for place in copies.seen.values():
        files = visible(place / "r")
        assert files == new or "round.json" not in files, place
        if files != new:
            run(place / "r")
        assert visible(place / "r") == new, place
