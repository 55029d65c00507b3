"""Hugging Face `imagefolder`: images and `metadata.jsonl` out; that, or folders named after classes, in."""

import os
import stat
from pathlib import Path
from typing import Any

from curate.columns import KEY, LABEL
from curate.exchange.contract import Format
from curate.exchange.item import PREFIX
from curate.exchange.labels import UNKNOWN_KEY, UNUSABLE, Collector, ExpectedRows, Labels
from curate.exchange.names import KeyNames
from curate.exchange.parts import Part, Whole
from curate.exchange.plan import Plan
from curate.exchange.rows import Rows
from curate.manifest.names import is_image_name
from curate.manifest.text import check_values, parse_json, read_text, to_json
from scoring.errors import InputError

SPLIT = "train"  # images lie in here: else a file called `test_1.jpg` would become a split of its own
METADATA = "metadata.jsonl"
UNSORTED = "in no class folder"
NO_IMAGE = "no image file"
TOO_DEEP = "deeper than one folder"
LINK = "a link, not followed"
MOST_FILES = 5_000_000
_WHAT = "an image folder"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Write the images of some rows, copied or linked, into `train/`, and their lines of `metadata.jsonl`."""
    columns = rows.columns
    for picture in part.store(rows, lambda _: SPLIT):
        item = rows.items[picture.index].known_anew(picture.facts)
        known = {LABEL: item.label} if plan.labelled else {}
        line = {"file_name": picture.name.removeprefix(f"{SPLIT}/"), **known, **item.record(columns)}
        part.piece(METADATA, to_json(line, indent=None))


def finish(whole: Whole, plan: Plan) -> tuple[str, ...]:
    """Write `train/metadata.jsonl`."""
    whole.joined(f"{SPLIT}/{METADATA}", METADATA)
    return ()


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read labels from `metadata.jsonl` where it has a column ``name`` (`label`), else from folders of classes.

    `FOLDER/cat/0001.jpg` says that 0001.jpg is a cat: sort the exported images into such folders. Files are found by
    the names that the export gave them, or by the key itself. Links are not followed.
    """
    if not path.is_dir():
        raise InputError(f"expected {_WHAT} at {path}, got {'a file' if path.exists() else 'nothing'}; give the folder")
    wanted = name or LABEL
    root = _root(path)
    metadata = _metadata(root / METADATA)
    classes = sorted(entry.name for entry in _entries(root) if entry.is_dir(follow_symlinks=False))
    labelled = any(row.get(wanted) not in (None, "") for row in metadata)
    if labelled and classes:
        raise InputError(
            f"expected labels either in {root / METADATA} or in folders, got both (folders {', '.join(classes[:3])}); "
            "take one away"
        )
    collector = Collector(rows, str(path), votes=labelled)
    names = KeyNames(rows.uris)
    if labelled or not classes:
        _read_metadata(metadata, collector, names, wanted)
    else:
        _read_folders(root, classes, collector, names)
    return collector.finish()


def _root(path: Path) -> Path:
    """Return the folder with the images: the split that we wrote, where all else is outside of it."""
    folders = [entry.name for entry in _entries(path) if entry.is_dir(follow_symlinks=False)]
    inner = path / SPLIT
    if folders != [SPLIT] or (path / METADATA).exists():
        return path
    has_more = (inner / METADATA).exists() or any(entry.is_dir(follow_symlinks=False) for entry in _entries(inner))
    return inner if has_more else path  # else `train` is a class: pictures of trains


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return what is in a folder, sorted by name, hidden entries left out."""
    try:
        with os.scandir(folder) as found:
            entries = [entry for entry, _ in zip(found, range(MOST_FILES + 1), strict=False)]
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}: {error.strerror}; check who owns it") from None
    if len(entries) > MOST_FILES:
        raise InputError(f"expected at most {MOST_FILES:,} files in {folder}, got more; give the folder of one round")
    return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _metadata(path: Path) -> list[dict[str, Any]]:
    """Return the rows of metadata.jsonl; none where there is no such file."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise InputError(f"expected a file at {path}, got a link or a folder; put the file there")
    except FileNotFoundError:
        return []
    rows = []
    text = read_text(path, what="JSON lines")
    check_values(text, str(path))
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            row = parse_json(line, where=f"line {number:,} of {path}", what="one JSON object a line")
            if not isinstance(row, dict):
                raise InputError(f"expected one JSON object a line, got something else in line {number:,} of {path}")
            rows.append(row)
    return rows


def _read_metadata(metadata: list[dict[str, Any]], collector: Collector, names: KeyNames, wanted: str) -> None:
    for row in metadata:
        key, file = row.get(PREFIX + KEY, row.get(KEY)), row.get("file_name")
        if key is None and isinstance(file, str):
            key = names.key_of(file.rpartition("/")[2]) or file
        collector.add(key, row.get(wanted), row.get("annotator"), row.get("at"))


def _read_folders(root: Path, classes: list[str], collector: Collector, names: KeyNames) -> None:
    for entry in _entries(root):
        if is_image_name(entry.name) and not entry.is_dir(follow_symlinks=False):
            collector.ignore(names.key_of(entry.name) or entry.name, UNSORTED)
        elif entry.is_symlink():
            collector.ignore(entry.name, LINK)
    for label in classes:
        for entry in _entries(root / label):
            where = f"{label}/{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                collector.ignore(where, TOO_DEEP)
            elif not is_image_name(entry.name):
                collector.ignore(where, NO_IMAGE)
            elif not _is_text(label):
                collector.ignore(where, UNUSABLE)
            elif (key := names.key_of(entry.name)) is None:
                collector.ignore(where, UNKNOWN_KEY)
            else:
                collector.add(key, label)


def _is_text(name: str) -> bool:
    return not any("\udc80" <= letter <= "\udcff" for letter in name)


IMAGEFOLDER = Format(
    part,
    finish,
    read=read,
    out="a folder for `load_dataset`: `train/` with the images, copied or linked, and `metadata.jsonl` with "
    "known labels as `label`",
    back="a `label` in `metadata.jsonl`, or the images sorted into folders named after classes",
    folder=True,
    reads_images=True,
    links=True,
    load='datasets.load_dataset("imagefolder", data_dir="subset")',
)
