"""Class folders as torchvision and Hugging Face `datasets` load them; written and read."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from curate.columns import KEY, LABEL
from curate.counted import counted
from curate.exporting.contract import Format, Plan
from curate.exporting.item import PREFIX
from curate.exporting.labels import UNKNOWN_KEY, UNUSABLE, Collector, ExpectedRows, Labels
from curate.exporting.names import KeyNames
from curate.exporting.parts import AllParts, Part
from curate.exporting.rows import Rows
from curate.exporting.sides import TEST, THEIR_NAMES, TRAIN, VAL
from curate.manifest.names import is_image_name
from curate.manifest.text import check_values, parse_json, read_text, to_json
from scoring.atomic import place_errors
from scoring.errors import InputError

README = (
    "README.md"  # lists the files of each split: otherwise `datasets` infers a split from a name such as `test_1.jpg`
)
METADATA = "metadata.jsonl"
SPLIT_NOTE = (
    "names contain words such as test, which load_dataset('imagefolder', ...) reads as splits: load the folder as shown"
)
UNSORTED = "in no class folder"
NO_IMAGE = "no image file"
TOO_DEEP = "deeper than one folder"
LINK = "a link, not followed"
MOST_FILES = 5_000_000
_WHAT = "an image folder"


def part(rows: Rows, part: Part, plan: Plan) -> None:
    """Copy or link the images of some rows into the folders of their splits and classes, and write their lines.

    Images without a class are placed next to the class folders; if no image has a class, all are in `train/`.
    """
    columns = rows.columns
    sides = plan.sides.of(rows.keys, rows.labels, rows.texts(plan.per) if plan.per else [])
    if list(_split_folders(plan).values()) == [f"{TRAIN}/"]:
        sides = [TRAIN] * len(rows)
    inside = ["" if label is None else plan.class_folders[label] for label in rows.labels]
    folders = [f"{side}/{folder}".strip("/") for side, folder in zip(sides, inside, strict=True)]
    for image in part.store(rows, plan.names, folders.__getitem__):
        item = rows.items[image.index].updated(image.facts)
        known = {LABEL: item.label} if plan.labelled else {}
        side = sides[image.index]
        line = {"file_name": image.name.removeprefix(f"{side}/"), **known, **item.record(columns)}
        part.piece(f"{side or TRAIN} {METADATA}", to_json(line, indent=None))


def finish(parts: AllParts, plan: Plan) -> tuple[str, ...]:
    """Write `metadata.jsonl` of each split, `README.md`, and a folder for every class without images."""
    class_folders(parts, plan)
    places = _split_folders(plan)
    for side, place in places.items():
        parts.joined(f"{place}{METADATA}", f"{side} {METADATA}")
    parts.write(README, _card(places))
    unlabelled = plan.n_rows - plan.labelled if plan.labelled else 0
    left_out = (f"{counted(unlabelled, 'image')} without a class, which ImageFolder leaves out",) if unlabelled else ()
    is_taken = plan.labelled and not plan.sides.names and plan.has_split_words
    return (*left_out, *((SPLIT_NOTE,) if is_taken else ()), *folder_notes(plan))


def _split_folders(plan: Plan) -> dict[str, str]:
    """Return the folder of each split; without splits the top folder if there are classes, else `train`."""
    return {side: f"{side}/" for side in plan.sides.names} or {TRAIN: "" if plan.labelled else f"{TRAIN}/"}


def _card(places: Mapping[str, str]) -> bytes:
    """Return the header of a dataset card, which names the files of each split."""
    files = [
        f"  - split: {THEIR_NAMES.get(side, side)}\n    path: {to_json(f'{place}**', indent=None).decode()}"
        for side, place in places.items()
    ]
    return ("---\nconfigs:\n- config_name: default\n  data_files:\n" + "".join(files) + "---\n").encode()


def class_folders(parts: AllParts, plan: Plan) -> None:
    """Create a folder for every class in every split, since loaders number classes by existing folders."""
    if not plan.labelled:
        return
    with place_errors(parts.folder):
        for side in plan.sides.names or ("",):
            for folder in map(plan.class_folders.__getitem__, plan.classes):
                (parts.folder / side / folder).mkdir(parents=True, exist_ok=True)


def folder_notes(plan: Plan) -> tuple[str, ...]:
    """Return notes on classes whose folder has another name or another position in the sorted order."""
    if not plan.labelled:
        return ()
    notes = []
    if renamed := [name for name in plan.classes if plan.class_folders[name] != name]:
        first = renamed[0]
        notes.append(
            f"{counted(len(renamed), 'class', 'classes')} with characters that not every file system allows: "
            f"{first!r} is "
            f"in the folder {plan.class_folders[first]}"
        )
    if plan.in_folder_order != list(plan.classes):
        notes.append("classes are numbered by folder name, not in the order of the list of classes")
    return tuple(notes)


def read(path: Path, rows: ExpectedRows, name: str | None = None) -> Labels:
    """Read labels from column ``name`` (`label`) of `metadata.jsonl` if present, else from class folders.

    `FOLDER/cat/0001.jpg` labels 0001.jpg as cat: annotators sort the exported images into such folders. Files are found
    by their exported names, or by the key itself. A file at the path in the metadata has the label of its line; a moved
    file has its folder's. Links are not followed.
    """
    if not path.is_dir():
        raise InputError(f"expected {_WHAT} at {path}, got {'a file' if path.exists() else 'nothing'}; pass the folder")
    label_column = name or LABEL
    roots = [path / side for side in (TRAIN, VAL, TEST) if (path / side / METADATA).exists()] or [_root(path)]
    noted = {root: _metadata(root / METADATA) for root in roots}
    labelled = any(row.get(label_column) not in (None, "") for metadata in noted.values() for row in metadata)
    collector = Collector(rows, str(path), votes=labelled)
    for root, metadata in noted.items():
        names = _Names(metadata, rows)
        classes = sorted(entry.name for entry in _entries(root) if entry.is_dir(follow_symlinks=False))
        if labelled and classes and not any("/" in str(row.get("file_name")) for row in metadata):
            raise InputError(
                f"expected labels either in {root / METADATA} or in folders, got both "
                f"({', '.join(classes[:3])}); remove one"
            )
        if labelled or not classes:
            _read_metadata([row for row in metadata if not _is_moved(root, row)], collector, names, label_column)
        if classes:
            lying = {row["file_name"] for row in metadata if isinstance(row.get("file_name"), str)}
            _read_folders(root, classes, collector, names, lying if labelled else set())
    return collector.finish()


def _is_moved(root: Path, row: dict[str, Any]) -> bool:
    """Return whether a file was moved out of the class folder that it was exported to."""
    file = row.get("file_name")
    return isinstance(file, str) and "/" in file and "\0" not in file and not os.path.lexists(root / file)


def _root(path: Path) -> Path:
    """Return the folder of the images: the folder of the only split, if everything else is outside of it."""
    folders = [entry.name for entry in _entries(path) if entry.is_dir(follow_symlinks=False)]
    inner = path / TRAIN
    if folders != [TRAIN] or (path / METADATA).exists():
        return path
    has_more = (inner / METADATA).exists() or any(entry.is_dir(follow_symlinks=False) for entry in _entries(inner))
    return inner if has_more else path  # otherwise `train` is a class: images of trains


class _Names:
    """Finds the key of a file by its name: through the metadata, else by the naming of exports."""

    def __init__(self, metadata: list[dict[str, Any]], rows: ExpectedRows) -> None:
        self._names = KeyNames(rows.uris)
        self._noted: dict[str, str] = {}
        for row in metadata:
            key, file = row.get(PREFIX + KEY, row.get(KEY)), row.get("file_name")
            if isinstance(key, str) and isinstance(file, str):
                self._noted[file.rpartition("/")[2]] = key

    def key_of(self, name: str) -> str | None:
        return self._noted.get(name) or self._names.key_of(name)


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the visible entries of a folder, sorted by name."""
    try:
        with os.scandir(folder) as listing:
            entries = [entry for entry, _ in zip(listing, range(MOST_FILES + 1), strict=False)]
    except OSError as error:
        raise InputError(f"cannot read the folder {folder}: {error.strerror}; check who owns it") from None
    if len(entries) > MOST_FILES:
        raise InputError(f"expected at most {MOST_FILES:,} files in {folder}, got more; pass the folder of one round")
    return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _metadata(path: Path) -> list[dict[str, Any]]:
    """Return the rows of metadata.jsonl; empty without the file."""
    try:
        if not stat.S_ISREG(os.lstat(path).st_mode):
            raise InputError(f"expected a file at {path}, got a link or a folder; put a file there")
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


def _read_metadata(metadata: list[dict[str, Any]], collector: Collector, names: _Names, label_column: str) -> None:
    for row in metadata:
        key, file = row.get(PREFIX + KEY, row.get(KEY)), row.get("file_name")
        if key is None and isinstance(file, str):
            key = names.key_of(file.rpartition("/")[2]) or file
        collector.add(key, row.get(label_column), row.get("annotator"), row.get("at"))


def _read_folders(root: Path, classes: list[str], collector: Collector, names: _Names, noted: set[str]) -> None:
    """Read the class of each file from its folder, unless the file was not moved and its metadata has a label."""
    for entry in _entries(root):
        if is_image_name(entry.name) and not entry.is_dir(follow_symlinks=False) and entry.name not in noted:
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
            elif where in noted:
                continue
            elif any("\udc80" <= letter <= "\udcff" for letter in label):  # a name of bytes that are not UTF-8
                collector.ignore(where, UNUSABLE)
            elif (key := names.key_of(entry.name)) is None:
                collector.ignore(where, UNKNOWN_KEY)
            else:
                collector.add(key, label)


IMAGEFOLDER = Format(
    part,
    finish,
    read=read,
    out="`CLASS/IMAGE`, below `train`, `val` and `test` by the column `split` or `--per`, `metadata.jsonl` with key "
    "and `label`, and `README.md` with the splits",
    back="a `label` in `metadata.jsonl`, or the images sorted into folders named after classes",
    folder=True,
    reads_images=True,
    links=True,
    per=True,
    sides=True,
    minimal=True,
    load=("import datasets; data = datasets.load_dataset({out}, split='train')",),
    load_classes=("import torchvision; data = torchvision.datasets.ImageFolder({train}{empty})",),
)
