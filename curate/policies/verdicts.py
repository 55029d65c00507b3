"""Decisions of reviewers on groups of images: an append-only file with one line of JSON each."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from curate.manifest.store_path import path_on_disk
from curate.tables.typed_json import from_json
from curate.version import __version__
from scoring.atomic import place_errors, sync_folder
from scoring.errors import InputError
from scoring.system import APPEND, HAS_FLOCK, try_flock

SUFFIX = ".verdicts.jsonl"
KEEP, DROP, RELABEL, UNSURE = "keep", "drop", "relabel", "unsure"
UNDO, SPLIT, AUDIT, BEGIN, RENAME = "undo", "split", "audit", "begin", "rename"
DECISIONS = (KEEP, DROP, RELABEL, UNSURE)
IMAGE, COPY, LABELS, LEAKS = "image", "copy", "label", "leak"  # questions of a group
MOST_BYTES = 1 << 30
SHORT = 16  # hexadecimal digits of an image's SHA-256 that bind a verdict to it
N_NAMED = 3
MEANWHILE = "another window saved a decision in the meantime; check the group again"


@dataclass(frozen=True)
class Line:
    """One line of the file.

    Attributes:
        session: id of the server run that wrote it.
        n: its number in the session, from 0.
        reviewer: name of the reviewer.
        when: time on that machine, for information only: the order of the lines counts.
        verdict: one of ``DECISIONS``, or ``undo``, ``split``, ``audit``, ``begin``, ``rename``.
        group: id of the group; for ``undo``, the undone line as ``SESSION:N``; for ``rename``, when the outcomes with
            the old keys were written, in ns.
        question: the question about the group.
        words: description of the group.
        keys: of the images.
        images: the first digits of each image's SHA-256 when scored; empty texts if the table has none.
        beside: for ``copy``, the image that each was compared with, empty texts for none; for ``rename``, the new keys.
        column: for ``relabel``, the label column.
        label: for ``relabel``, the new label.
        settles: whether it overrides all earlier verdicts on these images, after a disagreement.
        bad: for ``audit``, the indices in ``keys`` of the bad images.
        table: for ``begin``, the table under review.
        digest: for ``begin``, the digest of its keys and images.
        rows: for ``begin``, its number of rows.
        curate: for ``begin``, the version.
    """

    session: str
    n: int
    reviewer: str
    when: str
    verdict: str
    group: str = ""
    question: str = ""
    words: str = ""
    keys: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    column: str = ""
    label: str = ""
    settles: bool = False
    bad: tuple[int, ...] = ()
    table: str = ""
    digest: str = ""
    rows: int = 0
    curate: str = ""

    def __post_init__(self) -> None:
        known = (*DECISIONS, UNDO, SPLIT, AUDIT, BEGIN, RENAME)
        if self.verdict not in known:
            raise ValueError(f"expected a verdict of {', '.join(known)}, got {self.verdict!r}")
        if len(self.beside) != len(self.keys) and (self.beside or self.verdict == RENAME):
            raise ValueError("expected an image next to each key, or none if nothing was renamed")
        if len(self.keys) != len(self.images) or not all(0 <= at < len(self.keys) for at in self.bad):
            raise ValueError("expected an image for each key, and places among them")

    @property
    def id(self) -> str:
        """The id with which an ``undo`` refers to the line."""
        return f"{self.session}:{self.n}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return {name: value for name, value in asdict(self).items() if value or name == "n"}


@dataclass(frozen=True)
class ImageDecision:
    """The decision on one image.

    Attributes:
        image: the first digits of its SHA-256.
        answers: question -> verdict.
        labels: column -> new label.
        by: description of the last group, and the reviewers.
        apart: keys of images that it was compared with and that are different.
    """

    image: str
    answers: Mapping[str, str]
    labels: Mapping[str, str]
    by: str
    apart: tuple[str, ...] = ()

    @property
    def drop(self) -> bool:
        """Whether any verdict drops the image."""
        return DROP in self.answers.values()

    @property
    def keep(self) -> bool:
        """Whether a verdict keeps the image."""
        return KEEP in self.answers.values()


def answer_of(decisions: Mapping[str, ImageDecision], question: str, key: str, like: str = "") -> str:
    """Return the verdict on an image; for a pair, also if the other image was judged.

    Args:
        decisions: by key.
        question: the question answered.
        key: of the image.
        like: of the other image of the pair; empty for none.
    """
    answer = decisions[key].answers.get(question, "") if key in decisions else ""
    is_apart = question == COPY and like in decisions and key in decisions[like].apart
    return answer or (KEEP if is_apart else "")


@dataclass(frozen=True)
class Verdicts:
    """The complete lines of a file.

    Attributes:
        path: of the file.
        lines: the lines read.
        digest: their SHA-256.
        n_bytes: their number of bytes.
        torn: whether an incomplete last line was skipped.
        all: the lines in order.
    """

    path: Path
    lines: int
    digest: str
    n_bytes: int
    torn: bool
    all: list[Line] = field(default_factory=list)

    def live(self) -> list[Line]:
        """Return the lines that were not undone, with the present keys of renamed images."""
        gone = {line.group for line in self.all if line.verdict == UNDO}
        live: list[Line] = []
        for line in self.all:
            if line.verdict == RENAME:
                live = _renamed(live, line)
            elif line.verdict != UNDO and line.id not in gone:
                live.append(line)
        return live

    def decisions(self) -> dict[str, ImageDecision]:
        """Return the decisions by key; InputError if reviewers disagree."""
        decisions, disagree = combined(self.live())
        if disagree:
            named = "; ".join(f"{key!r}: {each.words}" for key, each in list(disagree.items())[:N_NAMED])
            raise InputError(
                f"{self.path}: reviewers disagree about {len(disagree):,} images ({named}); settle them: curate review "
                f"TABLE --verdicts {self.path}"
            )
        return decisions


def _renamed(lines: Sequence[Line], by: Line) -> list[Line]:
    """Return lines with the keys of renamed images replaced."""
    new_of = dict(zip(zip(by.keys, by.images, strict=True), by.beside, strict=True))
    new_of_key = dict(zip(by.keys, by.beside, strict=True))
    return [
        replace(
            line,
            keys=tuple(new_of.get(pair, pair[0]) for pair in zip(line.keys, line.images, strict=True)),
            beside=tuple(new_of_key.get(key, key) for key in line.beside),
        )
        for line in lines
    ]


@dataclass(frozen=True)
class Disagreement:
    """A disagreement of reviewers on one image.

    Attributes:
        question: the question answered.
        words: the verdicts with the reviewers.
    """

    question: str
    words: str


def combined(lines: Sequence[Line]) -> tuple[dict[str, ImageDecision], dict[str, Disagreement]]:
    """Return the decisions by key, and the keys about which reviewers disagree.

    Each reviewer's last answer to a question is used. Reviewers with different answers disagree, unless a later line
    settles it. An image is dropped if the answer to any question drops it.

    Args:
        lines: without undone ones, in order.
    """
    answers: dict[str, dict[str, dict[str, Line]]] = {}  # key -> question -> reviewer -> line
    images: dict[str, str] = {}
    apart: dict[str, tuple[str, ...]] = {}
    for line in lines:
        for at, (key, image) in enumerate(zip(line.keys, line.images, strict=True)):
            if line.verdict == AUDIT and at not in line.bad:
                continue
            images[key] = image
            if line.question == COPY and line.verdict == KEEP and line.beside and line.beside[at]:
                apart[key] = (*apart.get(key, ()), line.beside[at])
            of_question = answers.setdefault(key, {}).setdefault(line.question or IMAGE, {})
            if line.settles:
                of_question.clear()
            of_question[line.reviewer] = line
    decisions, disagree = {}, {}
    for key, questions in answers.items():
        clashes = [name for name, each in questions.items() if len(_answers(each)) > 1]
        if clashes:
            clashing = [f"{who} says {' '.join(_answer(line))}".rstrip() for who, line in questions[clashes[0]].items()]
            disagree[key] = Disagreement(clashes[0], ", ".join(clashing))
            continue
        last = [line for each in questions.values() for line in each.values()]
        dropping = [line for line in last if _answer(line)[0] == DROP]
        by = (dropping or last)[-1]
        answered = {name: next(iter(_answers(each)), (UNSURE, ""))[0] for name, each in questions.items()}
        decisions[key] = ImageDecision(
            images[key],
            answered,
            {line.column: line.label for line in last if line.verdict == RELABEL},
            f"{by.reviewer}, of {by.words}" if by.words else by.reviewer,
            apart.get(key, ()) if answered.get(COPY) == KEEP else (),
        )
    return decisions, disagree


def _answers(of: Mapping[str, Line]) -> set[tuple[str, str]]:
    """Return the distinct answers of reviewers, without unsure ones."""
    return {_answer(line) for line in of.values() if line.verdict != UNSURE}


def _answer(line: Line) -> tuple[str, str]:
    return (DROP, "") if line.verdict == AUDIT else (line.verdict, line.label)


def read_verdicts(path: str | Path, *, lines: int | None = None) -> Verdicts:
    """Return the verdicts of ``curate review``.

    Args:
        path: NAME.verdicts.jsonl.
        lines: number of lines to read, as recorded in a receipt; None for all complete lines.

    Raises:
        InputError: for a missing or malformed file, or one with fewer lines.
    """
    path = path_on_disk(path, "--verdicts")
    if not path.is_file():
        raise InputError(f"{path} does not exist; pass the NAME{SUFFIX} of curate review")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} is larger than {MOST_BYTES >> 20:,} MB; curate review did not write it")
    complete, newline, rest = path.read_bytes().rpartition(b"\n")
    parts = complete.split(b"\n") if newline else []
    if lines is not None and len(parts) < lines:
        raise InputError(f"{path} holds {len(parts):,} lines, expected {lines:,} as it had; restore it from a backup")
    parts = parts[:lines]
    parsed = [_parsed(path, number, part) for number, part in enumerate(parts, 1)]
    read = b"".join(part + b"\n" for part in parts)
    return Verdicts(path, len(parts), hashlib.sha256(read).hexdigest(), len(read), bool(rest) and lines is None, parsed)


def _parsed(path: Path, number: int, text: bytes) -> Line:
    what = f"line {number} of {path}"
    try:
        return from_json(Line, json.loads(text), what=what)
    except (ValueError, RecursionError) as error:
        do = "restore the file from a backup" if number > 1 else f"pass the NAME{SUFFIX} of curate review"
        raise InputError(f"{what} is not a verdict ({str(error)[:120]}); {do}") from None


class VerdictFile:
    """The file of verdicts, to which lines are appended; each line is flushed to disk.

    Several processes may append to one file: a line is only written if no other process has written one since it was
    read.

    Args:
        path: of the file; created with the first line.
        reviewer: name of the reviewer.
        begin: facts on the table for the first line of this session.

    Attributes:
        verdicts: all complete lines, including this session's.

    Raises:
        InputError: if the file is malformed.
    """

    def __init__(self, path: Path, reviewer: str, begin: Mapping[str, Any]) -> None:
        self.path, self.reviewer, self._begin = path, reviewer, dict(begin)
        self._session, self._n = secrets.token_hex(8), 0
        self.verdicts = read_verdicts(path) if path.exists() else Verdicts(path, 0, "", 0, torn=False)

    def append(self, verdict: str, **fields: Any) -> None:
        """Write one line; see ``append_all``."""
        self.append_all([(verdict, fields)])

    def append_all(self, decisions: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Write lines together, after a header if they are the first of this session; flush them to disk.

        Args:
            decisions: verdict and fields of each line.

        Raises:
            InputError: if the file cannot be written, or another process has written lines, which are then read.
        """
        now = datetime.now(UTC).isoformat(timespec="seconds")
        begin = Line(self._session, 0, self.reviewer, now, BEGIN, curate=__version__, **self._begin)
        first = max(self._n, 1)
        lines = [] if self._n else [begin]
        for n, (verdict, fields) in enumerate(decisions, first):
            lines.append(Line(self._session, n, self.reviewer, now, verdict, **fields))
        data = b"".join(json.dumps(line.to_json(), ensure_ascii=True).encode() + b"\n" for line in lines)
        with self._held() as handle:
            if os.write(handle, data) < len(data):
                raise InputError(f"cannot write {self.path}: the disk is full; free some space")
            os.fsync(handle)
        self._n = first + len(decisions)
        before = self.verdicts
        self.verdicts = replace(
            before, lines=before.lines + len(lines), n_bytes=before.n_bytes + len(data), all=[*before.all, *lines]
        )

    @contextmanager
    def _held(self) -> Iterator[int]:
        """Lock the file in the state that was read, and yield its descriptor; failed writes are undone."""
        is_new, size = not self.path.exists(), self.verdicts.n_bytes
        with place_errors(self.path):
            handle = os.open(self.path, APPEND, 0o666)
            try:
                if not try_flock(handle) and HAS_FLOCK:
                    raise InputError(f"another process writes to {self.path}; try again")
                if os.fstat(handle).st_size != size and (now := read_verdicts(self.path)).n_bytes != size:
                    self.verdicts = now  # another process has appended complete lines
                    raise InputError(MEANWHILE)
                os.ftruncate(handle, size)  # removes an incomplete last line
                try:
                    yield handle
                except BaseException:
                    os.ftruncate(handle, size)
                    raise
            finally:
                os.close(handle)
            if is_new:
                sync_folder(self.path.parent)
