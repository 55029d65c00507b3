"""The steps of a cleaning as a pipeline file, which can be edited and run."""

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.columns import KEY, LABEL, STATUS
from curate.exporting.table import FORMATS
from curate.manifest.local import refuse_inside
from curate.manifest.schemes import scheme_of
from curate.manifest.store_path import CLEANED, CLEANING
from curate.options.values import several
from curate.policies.verdicts import SUFFIX
from curate.tables.table import PART_FILES, open_table
from scoring.atomic import place_errors, require_folder
from scoring.errors import InputError
from scoring.temporaries import temporary_stem

FILE = CLEANING
STEPS_FOLDER = "steps"
SHA256 = "sha256"
SUBSET, REPORT, REVIEW = CLEANED, "report.html", "review"
SCORES = f"{STEPS_FOLDER}/score.parquet"
VERDICTS = f"subset{SUFFIX}"
MODEL = "world"
READING = ("key", "path-column", "image-column", "root")
AGAINST, LEAKS, LABELS = (f"{STEPS_FOLDER}/{name}.parquet" for name in ("against", "leaks", "labels"))
THUMBS = 500  # thumbnails of the report, each an image to decode
SURE = 0.99  # cosine of signatures above which most pairs are copies, to be confirmed by thumbnails
_MARK = re.compile(r"# Written by curate clean \(([0-9a-f]{16})\)\.[^\n]*\n")
NOTES = {
    "usable": "unusable in every domain: one colour, pure noise, enlarged from a few pixels, a placeholder\n"
    '# more can be dropped: drop = ["unusable", "dark"], drop-group = [1]',
    "unique": (
        "exact and near copies; the copy of the best quality is kept. Pairs from 0.95 to the threshold are listed"
    ),
    "leaks": "images that the other set has too are only listed",
    "labels": "suspected labels are only listed",
}


def is_scored(place: str) -> bool:
    """Return whether a path is a score table or a subset of one."""
    path = Path(place)
    if scheme_of(place) is not None or not (path.is_file() or any(path.glob(PART_FILES))):
        return False
    try:
        names = set(open_table(path).schema.names)
    except InputError:
        return False
    return {KEY, STATUS, SHA256} <= names


def check_source(source: str, out: Path) -> None:
    """Raise ``InputError`` for a source that is already scored, or that overlaps with the output folder."""
    if not source:
        raise InputError("expected the images to clean, got an empty text; pass a folder")
    if scheme_of(source) is not None:
        return
    if is_scored(source):
        raise InputError(
            f"expected images, got the scored table {source}; clean it with curate issues {source} --drop "
            "unusable and curate dedup, or pass the images that were scored"
        )
    refuse_inside(out, source)
    if Path(source).exists() and Path(source).resolve().is_relative_to(out.resolve()):
        raise InputError(f"{source} is inside {out}, which is for results only; choose another folder with -o")


def check_out(out: Path) -> None:
    """Raise ``InputError`` for a folder that cannot be created or written, or that contains something else."""
    if not out.exists() and not out.is_symlink():
        require_folder(out)
        return
    if not out.is_dir():
        raise InputError(f"expected a folder at {out}, or nothing, got a file; choose another name with -o")
    require_folder(out / FILE)
    if (out / FILE).is_file():
        return
    names = sorted(each.name for each in out.iterdir())
    other = next((name for name in names if not name.startswith(temporary_stem(out / FILE))), None)
    if other is not None:
        raise InputError(
            f"{out} holds {other!r}, which curate clean did not write; choose an empty folder, or a new one, with -o"
        )


def from_folder(place: str, folder: Path) -> str:
    """Return a path given from the current folder relative to ``folder`` or absolute, as typed; a URL unchanged."""
    if scheme_of(place) is not None or Path(place).is_absolute():
        return place
    try:
        return os.path.relpath(os.path.abspath(place), folder.resolve())  # noqa: PTH100 (a pattern is no path)
    except ValueError:  # another drive on Windows
        return os.path.abspath(place)  # noqa: PTH100


def from_current(place: str, folder: Path) -> str:
    """Return a path from ``from_folder`` relative to the current folder; a URL unchanged."""
    if scheme_of(place) is not None or Path(place).is_absolute():
        return place
    return os.path.relpath(folder / place)


def make_folder(out: Path) -> None:
    """Create the folder unless it exists."""
    with place_errors(out):
        out.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Cleaning:
    """The source to clean, and the settings; paths are relative to the output folder.

    Attributes:
        source: one or several locations of images.
        model: that scores them.
        refits: whether the scores of a dataset that grew are fitted again; False for a model with a stored fit.
        label: class column, or None.
        reading: options of the step ``score`` on how to read the source, such as ``root``.
        against: other images or scores in which leaks are searched, or None.
        against_scored: whether these are scored already.
        export: format to which the subset is exported, or None.
        reads_source: whether steps that draw images need the source.
        reviewed: whether a review has decisions.
        checks_labels: whether label errors are searched, if there is a class column.
    """

    source: str | list[str]
    model: str
    refits: bool = True
    label: str | None = None
    reading: Mapping[str, str | bool] = field(default_factory=dict)
    against: str | None = None
    against_scored: bool = False
    export: str | None = None
    reads_source: bool = False
    reviewed: bool = False
    checks_labels: bool = True

    def steps(self) -> dict[str, dict[str, Any]]:
        """Return the options of each step by its name."""
        images = {"source": self.source} if self.reads_source else {}
        named = {} if self.label is None else {"label": self.label}
        scoring: dict[str, Any] = {"source": self.source, "model": self.model, "add": True, **self.reading}
        if self.refits:
            scoring["refit"] = True
        steps: dict[str, dict[str, Any]] = {"score": scoring}
        if self.against is not None and not self.against_scored:
            steps["against"] = {"run": "score", "source": self.against, "model": self.model, "add": True}
        steps["usable"] = {"run": "issues", "table": "score", "drop": "unusable"}
        finders = {"finder": ["bytes", "signature"], "threshold": [SURE]}
        verdicts = {"verdicts": VERDICTS} if self.reviewed else {}
        steps["unique"] = {"run": "dedup", "table": "usable", **finders, "out": SUBSET, **named, **verdicts}
        results = [SUBSET]
        if self.against is not None:
            other = self.against if self.against_scored else AGAINST
            steps["leaks"] = {"run": "dedup", "table": "unique", "against": other, "only-against": True}
            steps["leaks"]["report-only"] = True
            results.append(LEAKS)
        if self.label is not None and self.checks_labels:
            steps["labels"] = {"table": "unique", "label": self.label, **verdicts}
            results.append(LABELS)
        page = {"table": "score", "results": results, "out": REPORT, "findings": REVIEW, "points": 0, "thumbs": THUMBS}
        steps["report"] = page | named | images
        if self.export is not None:
            out = f"export{FORMATS[self.export].suffix}"
            steps["export"] = {"table": "unique", "to": self.export, "out": out, **named, **images}
        return steps

    def text(self) -> str:
        """Return the text of the pipeline file: a digest line that reveals edits, then the steps.

        Raises:
            InputError: for a path that is not valid text.
        """
        lines = [f"folder = {_toml(STEPS_FOLDER)}"]
        for name, options in self.steps().items():
            lines += ["", *([f"# {NOTES[name]}"] if name in NOTES else []), f"[{name}]"]
            lines += [f"{key} = {_toml(value)}" for key, value in options.items()]
        text = "\n".join(lines) + "\n"
        return f"# Written by curate clean ({_digest(text)}). Edit it, then: curate run curate.toml\n{text}"


def command_of(folder: Path) -> list[str] | None:
    """Return the command line that repeats a cleaning from the current folder; None if its steps were edited.

    Raises:
        InputError: if the pipeline file is not valid TOML.
    """
    text = (folder / FILE).read_text("utf-8", "replace")
    if is_edited(text):
        return None
    steps = read_steps(folder)
    score, unique = steps["score"], steps["unique"]
    sources = [from_current(place, folder) for place in several(score["source"])]
    words = ["curate", "clean", *sources, "-o", str(folder)]
    if score["model"] != MODEL:
        model = from_current(score["model"], folder)
        words += ["--model", model if Path(model).is_file() else score["model"]]
    if score.get("label-from-folder"):
        words.append("--label-from-folder")
    elif unique.get("label", LABEL) != LABEL:
        words += ["--label", unique["label"]]
    for name in READING:
        if name in score:
            words += [f"--{name}", from_current(score[name], folder) if name == "root" else score[name]]
    if "leaks" in steps:
        other = steps["against"]["source"] if "against" in steps else steps["leaks"]["against"]
        words += ["--against", from_current(other, folder)]
    return words if "export" not in steps else [*words, "--export", steps["export"]["to"]]


def read_steps(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the steps of a cleaned folder by name; InputError if they are not valid TOML."""
    try:
        tables = tomllib.loads((folder / FILE).read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{folder / FILE} was changed after curate clean wrote it ({error}); clean again") from None
    return {name: step for name, step in tables.items() if isinstance(step, dict)}


def is_edited(text: str) -> bool:
    """Return whether a pipeline file was changed after a cleaning wrote it."""
    mark = _MARK.match(text)
    return mark is None or mark[1] != _digest(text[mark.end() :])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _toml(value: Any) -> str:
    """Return a value as TOML."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InputError(
                f"expected a path in UTF-8, got {value!r}, which curate.toml cannot hold; rename it"
            ) from None
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_toml, value))}]" if isinstance(value, list) else json.dumps(value)
