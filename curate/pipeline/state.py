"""The completed steps: each command line, with the state of its files, to detect changes."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.version import __version__
from scoring.atomic import AtomicFile
from scoring.errors import InputError

KIND = "pipeline state"
FILE = "pipeline.state.json"
MOST_BYTES = 64 << 20
RULES = {"dedup": 1, "report": 1}  # command -> number to raise when its results change within a version: it runs again


@dataclass(frozen=True)
class Stage:
    """The counts of a step's rows.

    Attributes:
        rows_in: rows of its input, or images.
        rows_out: rows of its output.
        lost: reason -> lost rows.
    """

    rows_in: int
    rows_out: int
    lost: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Done:
    """A completed step.

    Attributes:
        words: its command line, starting with the command.
        inputs: path -> state of the file, for everything it depends on.
        outputs: the same for its outputs; empty if it was started but not completed.
        digests: of its outputs, by path from the pipeline's folder.
        stage: counts of its rows; None if unknown.
        curate: the version of the command, from ``version_of``.
    """

    words: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    digests: Mapping[str, str] = field(default_factory=dict)
    stage: Stage | None = None
    curate: str = __version__


def version_of(command: str) -> str:
    """Return the version of a command's results: steps of another one are not up to date."""
    return f"{__version__}, rules {RULES[command]}" if command in RULES else __version__


def path_state(path: Path, leave_out: Path) -> str:
    """Return the state of a file or folder: size and modification time, summed over the files of a folder.

    Args:
        path: of the file or folder; the state is empty if it is missing.
        leave_out: a folder that is skipped.
    """
    if path.is_dir():
        n = total = 0
        for file in _files(path, leave_out.resolve()):
            status = file.stat(follow_symlinks=False)
            entry = f"{file.path}\0{status.st_size}\0{status.st_mtime_ns}".encode("utf-8", "surrogateescape")
            total += int.from_bytes(hashlib.sha256(entry).digest())  # a sum, independent of their order
            n += 1
        return f"{n} files, {total % (1 << 256):064x}"
    try:
        status = path.stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} bytes, {status.st_mtime_ns}"


def _files(folder: Path, leave_out: Path) -> Iterator[os.DirEntry[str]]:
    waiting = [str(folder)]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry
                elif Path(entry.path).resolve() != leave_out:
                    waiting.append(entry.path)


def read_state(folder: Path) -> dict[str, Done]:
    """Return the completed steps; empty for none; InputError for a malformed file."""
    path = folder / FILE
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    try:
        content = json.loads(data[:MOST_BYTES])
        if content["kind"] != KIND:
            raise ValueError
        return {str(name): _done(value) for name, value in content["steps"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"{path} was changed after curate wrote it; delete it, and repeat curate clean with --overwrite, or curate "
            "run with --again STEP"
        ) from None


def _done(value: Mapping[str, Any]) -> Done:
    stage = value["stage"]
    return Done(
        tuple(map(str, value["words"])),
        dict(value["inputs"]),
        dict(value["outputs"]),
        dict(value["digests"]),
        None
        if stage is None
        else Stage(
            int(stage["rows_in"]), int(stage["rows_out"]), {str(why): int(rows) for why, rows in stage["lost"].items()}
        ),
        str(value["curate"]),
    )


def write_state(folder: Path, steps: Mapping[str, Done]) -> None:
    """Replace the stored steps, atomically."""
    content = {"kind": KIND, "steps": {name: asdict(done) for name, done in steps.items()}}
    with AtomicFile(folder / FILE, overwrite=True) as file:
        file.write((json.dumps(content, indent=1, ensure_ascii=True) + "\n").encode())


def looks(base: Path, names: Iterable[str], leave_out: Path) -> dict[str, str]:
    """Return the state of each existing path, by its name from ``base``; other texts are skipped."""
    state_by_name = {name: path_state(base / name, leave_out) for name in dict.fromkeys(names) if _may_be_path(name)}
    return {name: state for name, state in state_by_name.items() if state}


def _may_be_path(name: str) -> bool:
    return bool(name) and "\0" not in name and "://" not in name
