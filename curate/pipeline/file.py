"""The file of a pipeline: TOML, one table per step, in order."""

import re
import reprlib
import shlex
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.exporting.table import FORMATS
from scoring.errors import InputError
from scoring.lookup import closest, lookup

FORMAT = "to"
MOST_BYTES = 1 << 20
MOST_STEPS = 1000
FOLDER, RUN = "folder", "run"
DEFAULT_FOLDER = "curated"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
EXAMPLE = 'a step is a table such as [dedup], or [best] with run = "filter"'


@dataclass(frozen=True)
class Kind:
    """How a command takes part in a pipeline.

    Attributes:
        out: the option for its output.
        suffix: suffix of the output after the step's name; None if the step's ``to`` determines it.
        makes_table: whether later steps can read its output.
        reads_table: whether it reads the output of an earlier step; else it starts from images.
        goes_on: whether it resumes a killed run; others start again.
    """

    out: str = "out"
    suffix: str | None = ".parquet"
    makes_table: bool = True
    reads_table: bool = True
    goes_on: bool = False

    def name_of(self, step: str, options: Mapping[str, Any]) -> str:
        """Return the file or folder that a step of this name writes; InputError for an invalid format."""
        if self.suffix is not None:
            return step + self.suffix
        chosen = options.get(FORMAT)
        return step + lookup(FORMATS, str(chosen), kind="format").suffix if chosen is not None else step


STEPS: dict[str, Kind] = {  # to let another command be a step, add a line
    "score": Kind(reads_table=False, goes_on=True),
    "fit": Kind(out="apply"),
    "filter": Kind(),
    "issues": Kind(),
    "dedup": Kind(),
    "labels": Kind(),
    "calibrate": Kind(out="apply"),
    "select": Kind(),
    "balance": Kind(),
    "split": Kind(),
    "sheet": Kind(suffix=".png", makes_table=False),
    "report": Kind(suffix=".html", makes_table=False),
    "export": Kind(suffix=None, makes_table=False),
}


def kind_of(command: str) -> Kind:
    """Return the ``Kind`` of a command; InputError with the closest name if it cannot be a step."""
    return lookup(STEPS, command, kind="step")


@dataclass(frozen=True)
class Step:
    """One command of a pipeline.

    Attributes:
        name: of its table and output.
        command: a key of ``STEPS``.
        options: as in the file, in order, without ``run``.
    """

    name: str
    command: str
    options: Mapping[str, Any]


@dataclass(frozen=True)
class Pipeline:
    """A pipeline as stated in its file.

    Attributes:
        path: the file; relative paths in it start from its folder.
        text: its content.
        folder: the output folder, as in the file.
        steps: in order, at least one.
    """

    path: Path
    text: str
    folder: str
    steps: tuple[Step, ...]

    def place(self, step: str | None = None, key: str | None = None) -> str:
        """Return the position of a step, one of its keys, or a key outside all steps: ``FILE, line N``."""
        return f"{self.path}, line {line_of(self.text, step, key)}"


def read_pipeline(path: str | Path) -> Pipeline:
    """Read a pipeline and check everything that can be checked from the file alone.

    Raises InputError, with the line and the nearest valid word, for a file that is missing, too large or not TOML, a
    table that is not a step, or an invalid name.
    """
    path = Path(path)
    return parse_pipeline(path, _text(path))


def parse_pipeline(path: Path, text: str) -> Pipeline:
    """Return the pipeline in a text; ``path`` need not exist yet; InputError as ``read_pipeline``."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits raises a ValueError
        raise InputError(f"{path} is not TOML: {str(error)[:200]}") from None
    pipeline = Pipeline(path, text, str(content.get(FOLDER, DEFAULT_FOLDER)), ())
    steps = tuple(_step(pipeline, name, value) for name, value in content.items() if name != FOLDER)
    if not isinstance(content.get(FOLDER, ""), str) or not pipeline.folder:
        raise InputError(f"{pipeline.place(None, FOLDER)}: expected the path of a folder, got {content[FOLDER]!r}")
    if not 0 < len(steps) <= MOST_STEPS:
        raise InputError(f"{path}: expected 1 to {MOST_STEPS:,} steps, got {len(steps):,}; {EXAMPLE}")
    return Pipeline(path, text, pipeline.folder, steps)


def _text(path: Path) -> str:
    if not path.is_file():
        inside = path / "curate.toml"
        do = f"run curate run {shlex.quote(str(inside))}" if inside.is_file() else "check the name"
        raise InputError(f"expected the file of a pipeline, such as curate.toml, got {path}; {do}")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} is too large for a pipeline ({path.stat().st_size:,} bytes, at most {MOST_BYTES:,})")
    try:
        return path.read_text("utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8; expected TOML") from None


def _step(pipeline: Pipeline, name: str, value: Any) -> Step:
    """Return an entry of the file as a step."""
    if not isinstance(value, dict):
        known = closest(name, [FOLDER])
        raise InputError(f"{pipeline.place(None, name)}: {reprlib.repr(name)} is outside of any step{known}; {EXAMPLE}")
    if not NAME.fullmatch(name):
        raise InputError(
            f"{pipeline.place(name)}: a step's name becomes a file name: expected letters, digits, - and _, got "
            f"{reprlib.repr(name)}"
        )
    command = value.get(RUN, name)
    if not isinstance(command, str) or command not in STEPS:
        key = RUN if RUN in value else None
        raise InputError(
            f"{pipeline.place(name, key)}: {reprlib.repr(command)} is not a command that can be a step"
            f"{closest(str(command), STEPS)} (run = one of {', '.join(STEPS)})"
        )
    return Step(name, command, {key: each for key, each in value.items() if key != RUN})


def line_of(text: str, step: str | None, key: str | None = None) -> int:
    r"""Return the line, from 1, of a step's header or of one of its keys; without a step, of a key before all steps.

    >>> line_of("folder = 'a'\n\n[dedup]\nfinder = 'exact'", "dedup", "finder")
    4
    """
    lines = text.splitlines()
    start = 0 if step is None else _first(lines, 0, rf"\s*\[\s*{_quoted(step)}\s*\]")
    if key is None:
        return start + 1
    header = _first(lines, 0, rf"\s*\[\s*{_quoted(step or key)}\s*\.\s*{_quoted(key)}\s*\]", missing=-1)
    inside = _first(lines, start if step is None else start + 1, rf"\s*{_quoted(key)}\s*[=.]", missing=-1)
    return (inside if inside >= 0 else header if header >= 0 else start) + 1


def _quoted(name: str) -> str:
    """Return a pattern that matches a name in any TOML spelling."""
    return rf"[\"']?{re.escape(name)}[\"']?"


def _first(lines: Iterable[str], start: int, pattern: str, missing: int = 0) -> int:
    """Return the number of the first line, from ``start``, whose beginning matches a pattern."""
    numbered = enumerate(lines)
    return next((number for number, line in numbered if number >= start and re.match(pattern, line)), missing)
