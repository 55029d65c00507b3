"""The images that studies read: a folder in the layout of docs/studies/README.md, or your own data by name.

    --data DATA                        a folder that holds the files of the layout; `data` if left out
    --data NAME=PATH[:LABEL]           read PATH instead of the file NAME of the layout (repeatable)

PATH is a Parquet file with encoded images in the column `image`, or a folder of images in one folder a class. LABEL is
the column of the classes, `label` if left out; classes may be text. Studies of several sets take names of yours as
well, and then run on these sets alone. Give another --work folder for other data.
"""

import argparse
import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FOLDER = "data"
HELP = "docs/studies/README.md lists the files"
NO_IMAGES = ("cifar10h_test_0-1999", "cifar10n_train", "near_dup_small", "malformed")  # read as they are
NO_LABELS = "photos_unlabelled"
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")


@dataclass(frozen=True)
class StudyData:
    """Where a study's data are.

    Attributes:
        folder: holds NAME.parquet of every set.
        added: names that are not in the layout, in the order given.
        replaced: names of the layout for which another file was given.
    """

    folder: Path
    added: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()

    def need(self, *files: str) -> Path:
        """Return the folder; SystemExit with one line if it lacks one of the files."""
        for name in files:
            if not _file_of(self.folder, name).is_file():
                missing = f"error: {_file_of(Path(), name)} is missing in the folder of --data; {HELP}"
                raise SystemExit(f"{missing}; or give --data {name}=PATH[:LABEL]")
        return self.folder


def add_data(parser: argparse.ArgumentParser) -> None:
    """Add ``--data``, to be read by ``open_data``."""
    about = f"folder of the data sets ({HELP}), or NAME=PATH[:LABEL] (repeatable)"
    parser.add_argument("--data", action="append", metavar="DATA", help=f"{about}; default: {FOLDER}")


def open_data(texts: Sequence[str] | None, files: Collection[str], *, sets: bool = False) -> StudyData:
    """Return the data that ``--data`` names.

    Args:
        texts: what was typed.
        files: names of the layout that the study reads, such as ``caltech_subset``.
        sets: whether the study runs on any labelled set, so that other names are welcome.

    Raises:
        SystemExit: a wrong name, a missing file or a missing column, in one line.
    """
    typed = list(texts or [FOLDER])
    named = dict(each.split("=", 1) for each in typed if "=" in each)
    folders = [each for each in typed if "=" not in each] or [FOLDER]
    if len(folders) > 1:
        raise SystemExit(
            f"error: expected one folder of data, got {' and '.join(folders)}; others as NAME=PATH[:LABEL]"
        )
    for name in named:
        if name not in files and not (sets and re.fullmatch(r"[\w.-]+", name)):
            raise SystemExit(f"error: --data {name}=...: this study reads {', '.join(files)}, and no {name!r}")
    folder = Path(folders[0])
    if not named:
        return StudyData(folder)
    made = Path(tempfile.mkdtemp(prefix="study-data-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    for path in (_file_of(folder, name) for name in files if name not in named):
        if path.is_file():
            (made / path.name).symlink_to(path.resolve())
    for name, place in named.items():
        _lay(name, *_path_and_label(name, place), made)
    added = tuple(name for name in named if name not in files)
    return StudyData(made, added, tuple(name for name in named if name in files))


def _file_of(folder: Path, name: str) -> Path:
    return folder / (f"{name}.csv" if name.endswith("_pairs") else f"{name}.parquet")


def _path_and_label(name: str, place: str) -> tuple[Path, str | None]:
    path, label = (place, None) if Path(place).exists() or ":" not in place else place.rsplit(":", 1)
    if not Path(path).exists():
        raise SystemExit(f"error: --data {name}={place}: {path} does not exist; expected a Parquet file or a folder")
    return Path(path), label


def _lay(name: str, path: Path, label: str | None, folder: Path) -> None:
    """Put a set into a folder as NAME.parquet: as it is if it is in the layout, else written again."""
    out = _file_of(folder, name)
    if name in NO_IMAGES or out.suffix != ".parquet":
        out.symlink_to(path.resolve())
        return
    table = _of_folder(name, path) if path.is_dir() else _read(name, path)
    image = _column(name, path, table, "image")
    columns = {each: table[each] for each in table.schema.names}
    if pa.types.is_struct(image.type):
        image = pa.chunked_array([chunk.field("bytes") for chunk in image.chunks])
    columns |= {"id": columns.get("id", pa.array(range(table.num_rows))), "image": image}
    if label or name != NO_LABELS:
        columns["label"] = _numbers(name, path, _column(name, path, table, label or "label"))
    pq.write_table(pa.table(columns), out, row_group_size=1000)
    at = path.stat()
    os.utime(out, ns=(at.st_atime_ns, at.st_mtime_ns))  # what was scored is known by it


def _read(name: str, path: Path) -> pa.Table:
    try:
        return pq.read_table(path)
    except pa.ArrowInvalid:
        raise SystemExit(f"error: --data {name}={path}: expected a Parquet file or a folder of images") from None


def _of_folder(name: str, path: Path) -> pa.Table:
    paths = sorted(each for each in path.glob("*/*") if each.suffix.lower() in SUFFIXES)
    if not paths:
        raise SystemExit(f"error: --data {name}={path}: no images in folders of classes; expected CLASS/IMAGE.jpg")
    images = pa.array([each.read_bytes() for each in paths], pa.binary())
    return pa.table({"image": images, "label": [each.parent.name for each in paths], "file": [*map(str, paths)]})


def _column(name: str, path: Path, table: pa.Table, column: str) -> pa.ChunkedArray:
    if column not in table.schema.names:
        has = ", ".join(table.schema.names)
        hint = "; name its column: --data NAME=PATH:LABEL" if column == "label" else ""
        raise SystemExit(f"error: --data {name}={path}: no column {column!r} among {has}{hint}")
    return table[column]


def _numbers(name: str, path: Path, labels: pa.ChunkedArray) -> pa.Array:
    """Return classes as numbers from 0 on, in the order of their names; whole numbers stay."""
    values = labels.to_pylist()
    missing = sum(value is None or value != value for value in values)
    if missing:
        raise SystemExit(f"error: --data {name}={path}: {missing:,} of {len(values):,} rows have no label; drop them")
    if pa.types.is_integer(labels.type):
        return labels.cast(pa.int64())
    return pa.array(np.unique(np.array(values, dtype=str), return_inverse=True)[1].astype(np.int64))
