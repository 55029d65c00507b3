"""A folder of rounds: its files, its lock for one process at a time, and the check for changes."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from curate.rounds.files.sealed import ChangedError, LabelFile, read_label_file, read_sealed
from curate.rounds.files.settings import CONFIG, KIND, RoundSettings
from curate.rounds.files.votes import RoundVotes
from curate.rounds.measures.lift import ModelQuality, PairLift
from curate.tables.table import open_table
from curate.tables.typed_json import from_json
from scoring.atomic import place_errors
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError
from scoring.file_digest import file_sha256
from scoring.lock import HeldFolder

HOLDOUT = "holdout.parquet"
ROUNDS = "rounds"
STATE, BATCH, STOP = "state.json", "batch.parquet", "stop.parquet"
STRATEGY, CONTROL, HELD_OUT = "strategy", "control", "holdout"  # arms of a batch
_NUMBER = re.compile(r"\d{4,}")
_LABELS = re.compile(r"labels-\d{4,}\.parquet")
_TEMPORARY = re.compile(r"\..+\.tmp\.\d+\.[0-9a-f]{8}")
_LEFTOVER = re.compile(r"\.\d{4,}\.tmp(\..*)?")


@dataclass(frozen=True)
class RoundState:
    """The content of `state.json`.

    Attributes:
        number: number of the round.
        files: name -> digest of the files of the round.
        labels: name -> digest of every earlier import.
        model: accuracy of the model fitted on earlier labels; None without labels.
        lift: of the strategy over random labels; None if not measured.
        parent: digest of the previous record.
        curate: version that wrote it.
    """

    number: int
    files: dict[str, str]
    labels: dict[str, str]
    model: ModelQuality | None = None
    lift: PairLift | None = None
    parent: str = ""
    curate: str = ""

    @property
    def look(self) -> int:
        """Number of imports that its model was fitted on."""
        return len(self.labels)


@dataclass(frozen=True)
class Round:
    """One round of a folder.

    Attributes:
        number: from 1.
        folder: folder of its files.
        state: content of `state.json`.
    """

    number: int
    folder: Path
    state: RoundState

    @cached_property
    def batch(self) -> pa.Table:
        """The batch, as ``read_batch`` returns it."""
        return read_batch(self.folder)

    @cached_property
    def labels(self) -> list[LabelFile]:
        """The labels imported while this was the last round, in the order imported."""
        return [read_label_file(path) for path in label_paths(self.folder)]

    @property
    def keys(self) -> list[str]:
        """The keys sent to annotators, in the order of the batch."""
        keys: list[str] = self.batch["key"].to_pylist()
        return keys

    def changed(self) -> list[str]:
        """Return the names of files that differ from the state; paths outside of the folder are not followed."""
        return [
            file
            for file, digest in self.state.files.items()
            if Path(file).name != file or "\0" in file or file_sha256(self.folder / file) != digest
        ]


def read_batch(folder: Path) -> pa.Table:
    """Return the batch of a round: `key`, `uri`, `rank`, `arm`, `pick`, `gain`, `predicted`, `probability` and parts.

    Raises InputError if it is missing or malformed.
    """
    path = folder / BATCH
    if not path.is_file():
        raise ChangedError(f"expected {path}, which is missing; restore the folder from a backup")
    return open_table(path, require=["key", "uri", "arm"]).read()


def label_paths(folder: Path) -> list[Path]:
    """Return the files of labels in the folder of a round, in the order imported."""
    return sorted(path for path in folder.iterdir() if _LABELS.fullmatch(path.name))


@dataclass(frozen=True)
class Folder:
    """A folder of rounds in its state when opened."""

    path: Path
    settings: RoundSettings
    rounds: tuple[Round, ...]

    @property
    def votes(self) -> RoundVotes:
        """All votes of annotators."""
        return RoundVotes([file.votes for file in self.label_files])

    @property
    def label_files(self) -> list[LabelFile]:
        """Every import, in order."""
        return [file for each in self.rounds for file in each.labels]

    @property
    def requested(self) -> dict[str, int]:
        """The round in which each key was sent out."""
        return {key: each.number for each in self.rounds for key in each.keys}

    @property
    def arms(self) -> dict[str, str]:
        """The arm of each key sent out: strategy, control or holdout."""
        return self._by_key("arm")

    @property
    def uris(self) -> dict[str, str | None]:
        """The image path or URL of each key sent out."""
        return self._by_key("uri")

    def _by_key(self, column: str) -> dict[str, Any]:
        values = ((each.keys, each.batch[column].to_pylist()) for each in self.rounds)
        return {key: value for pair in values for key, value in zip(*pair, strict=True)}

    @property
    def holdout(self) -> pa.Table:
        """Held-out rows: `key`, and `label` if known from the start."""
        return open_table(self.path / HOLDOUT, require=["key", "label"]).read()

    def of_round(self, number: int) -> Path:
        """Return the path of the folder of a round."""
        return self.path / ROUNDS / f"{number:04}"

    def name(self, path: Path) -> str:
        """Return a path relative to the folder."""
        return path.relative_to(self.path).as_posix()

    @property
    def head(self) -> str:
        """Digest of the last record: an import, a round, or the settings."""
        if not self.rounds:
            return file_sha256(self.path / CONFIG)
        last = self.rounds[-1]
        return last.labels[-1].content if last.labels else file_sha256(last.folder / STATE)

    def changed(self) -> list[str]:
        """Return the files that changed since they were written, one sentence each."""
        findings = []
        if file_sha256(self.path / HOLDOUT) != self.settings.holdout_sha256:
            findings.append(f"{HOLDOUT} differs from what {CONFIG} records")
        before = file_sha256(self.path / CONFIG)
        contents: dict[str, str] = {}
        for each in self.rounds:
            name = self.name(each.folder)
            if each.state.parent != before:
                findings.append(f"the files before {name}/{STATE} have changed")
            findings += [f"{name}/{file} differs from what {name}/{STATE} records" for file in each.changed()]
            for file, content in each.state.labels.items():
                if contents.get(file) != content:
                    findings.append(f"{file} differs from what {name}/{STATE} records")
            before = file_sha256(each.folder / STATE)
            for path in label_paths(each.folder):
                try:
                    labels = read_label_file(path)
                except InputError as error:
                    findings.append(str(error))
                    continue
                if labels.parent != before:
                    findings.append(f"the files before {self.name(path)} have changed")
                before = contents[self.name(path)] = labels.content
        return findings

    def check(self) -> None:
        """Raise InputError, with the number of changes and the first one, if any file changed since it was written."""
        findings = self.changed()
        if findings:
            more = f" ({len(findings):,} such findings)" if len(findings) > 1 else ""
            raise ChangedError(f"{self.path} was changed: {findings[0]}{more}; restore the file from a backup")


def open_folder(path: str | Path) -> Folder:
    """Open a folder of rounds and check its small files; InputError if a round is missing, damaged or changed."""
    path = Path(path)
    if not (path / CONFIG).is_file():
        raise InputError(f"expected a folder that `curate round init` made, and {path} has no {CONFIG}; make one first")
    settings = RoundSettings.from_json(read_sealed(path / CONFIG, KIND))
    rounds = []
    for number, folder in enumerate(_round_folders(path), 1):
        if int(folder.name) != number:
            raise ChangedError(
                f"{path} has no round {number} and has round {int(folder.name)}; restore it from a backup"
            )
        rounds.append(open_round(folder, number))
    return Folder(path, settings, tuple(rounds))


def open_round(folder: Path, number: int) -> Round:
    """Open a round and read its state; InputError if it is missing, damaged, changed or of another round."""
    written = read_sealed(folder / STATE, "round")
    parts = {**written, "model": written.get("model") or None}  # {} before there were labels
    state = from_json(RoundState, parts, what=str(folder / STATE), ignored=written)
    if state.number != number:
        raise ChangedError(f"{folder / STATE} is of round {state.number}; restore it from a backup")
    return Round(number, folder, state)


def rounds_at(path: str | Path) -> tuple[Path, int | None] | None:
    """Return the folder of rounds for a path, and the number of the round if the path refers to one.

    Args:
        path: of a folder of rounds, of one round in it, or of the state of one.

    Returns:
        the folder, and a number or None for all rounds; None if the path is something else.
    """
    path = Path(path)
    if (path / CONFIG).is_file():
        return path, None
    place = (path.parent if path.name == STATE else path).absolute()
    folder = place.parent.parent
    if place.parent.name == ROUNDS and place.name in numbered_folders(folder) and (folder / CONFIG).is_file():
        return folder, int(place.name)
    return None


def numbered_folders(path: Path) -> list[str]:
    """Return the names of existing rounds, in order."""
    return [folder.name for folder in _round_folders(path) if folder.name == f"{int(folder.name):04}"]


def _round_folders(path: Path) -> list[Path]:
    inside = path / ROUNDS
    if not inside.is_dir():
        return []
    return sorted(
        (entry for entry in inside.iterdir() if _NUMBER.fullmatch(entry.name)), key=lambda entry: int(entry.name)
    )


@contextmanager
def held(path: str | Path) -> Iterator[Folder]:
    """Lock and open a folder of rounds; leftovers of a killed process are removed.

    Raises:
        InputError: as `open_folder`; or if another process holds it, or any file was changed.
    """
    path = Path(path)
    if not (path / CONFIG).is_file():
        open_folder(path)  # raises if it is no folder of rounds
    with HeldFolder(path):
        sweep(path)
        folder = open_folder(path)
        folder.check()
        yield folder


def sweep(path: Path) -> None:
    """Remove unfinished rounds and files; call it only while holding the lock."""
    for folder in (path, *_round_folders(path)):
        for leftover in folder.glob(".*.tmp.*"):
            if _TEMPORARY.fullmatch(leftover.name) and leftover.is_file() and not leftover.is_symlink():
                leftover.unlink()
    inside = path / ROUNDS
    if inside.is_dir():
        for leftover in inside.iterdir():
            if _LEFTOVER.fullmatch(leftover.name) and leftover.is_dir() and not leftover.is_symlink():
                shutil.rmtree(leftover)


@contextmanager
def new_round(folder: Folder, number: int) -> Iterator[Path]:
    """Yield an empty folder that becomes a round on success and is removed on failure; InputError if not writable."""
    final = folder.of_round(number)
    with place_errors(final):
        final.parent.mkdir(exist_ok=True)
    with AtomicFolder(final) as made:
        yield made.temporary
