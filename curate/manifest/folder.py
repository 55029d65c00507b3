# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH112, PTH116, PTH118, PTH119, PTH120
"""From a folder of images to rows, in the byte order of their paths, which is the same on any machine."""

import os
import stat
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise

import numpy as np
import pyarrow as pa

from curate.counted import counted
from curate.manifest.contract import SourceOptions
from curate.manifest.memory import MemoryManifest, version_of
from curate.manifest.names import (
    SIDES,
    begins_like_an_image,
    count_suffixes,
    is_image_name,
    key_of,
    may_be_an_image,
    suffix_of,
    uri_of,
)
from scoring.errors import InputError
from scoring.images.sniff import HEAD
from scoring.system import READ, read_at

_BLOCK = 65536  # names kept as Python objects before they become an Arrow array
SHARD_SUFFIXES = ("parquet", "tar")


@dataclass
class Skipped:
    """Entries that a scan skipped."""

    not_images: Counter[str] = field(default_factory=Counter)  # by suffix; files without one by their first bytes
    hidden: int = 0
    links: int = 0  # links to a folder, out of the root, or dangling
    repeated: int = 0  # folders reached a second time through a link
    special: int = 0  # FIFOs, sockets, devices
    shards: dict[str, list[bytes]] = field(default_factory=lambda: {suffix: [] for suffix in SHARD_SUFFIXES})
    unread: int = 0  # without a suffix, and unreadable

    def __str__(self) -> str:
        """Return the skipped entries for a description; may be empty."""
        parts = []
        if n := self.not_images.total():
            files = "1 file of another kind" if n == 1 else f"{n:,} files of other kinds"
            parts.append(f"{files} ({count_suffixes(self.not_images)})")
        parts += [f"{self.hidden:,} hidden"] if self.hidden else []
        parts += [counted(self.links, "link")] if self.links else []
        parts += [f"{counted(self.repeated, 'folder')} reached twice"] if self.repeated else []
        parts += [counted(self.special, "special file")] if self.special else []
        parts += [f"{counted(self.unread, 'file')} without a suffix that cannot be read"] if self.unread else []
        return f"; skipped {', '.join(parts)}" if parts else ""


@dataclass(frozen=True)
class ImageFile:
    """One image file: relative path, size in bytes, mtime in ns, and location; empty if it equals that path."""

    path: bytes
    size: int
    time: int
    place: bytes = b""


def scan_folder(root: bytes, options: SourceOptions, skipped: Skipped) -> Iterator[ImageFile]:
    """Yield the image files under ``root``, sorted by the bytes of their relative paths.

    A file without a suffix is an image if its first bytes are an image's. Only one folder's names are in memory. A
    folder is sorted as its name with a slash, so walking in that order gives the order of whole paths. A link to a file
    is listed if its target is inside the root; other links only with ``follow_symlinks``. Each folder is entered once,
    so loops end.

    Args:
        root: absolute path of a folder.
        options: `hidden` and `follow_symlinks` are used.
        skipped: skipped entries are counted here.

    Raises:
        InputError: if a folder cannot be listed.
    """
    real_root = os.path.realpath(root)
    visited = {_identity(os.stat(root))}
    root = os.path.join(root, b"")  # with a slash, since millions of files are joined to it
    pending = [b""]  # stack of folders and files
    while pending:
        path = pending.pop()
        if path and not path.endswith(b"/"):
            file = _image_file(root, path, real_root, options, skipped)
            if file is not None:
                yield file
        elif not path or _is_new_folder(root + path, visited, skipped):
            pending += _listing(root, path, options, skipped)


def _listing(root: bytes, folder: bytes, options: SourceOptions, skipped: Skipped) -> list[bytes]:
    """Return the paths in one folder, in reverse order; paths of sub-folders end with a slash."""
    paths = []
    try:
        with os.scandir(root + folder) as entries:
            for entry in entries:
                if entry.name.startswith(b".") and not options.hidden:
                    skipped.hidden += 1
                elif _is_folder(entry, options.follow_symlinks):
                    paths.append(folder + entry.name + b"/")
                else:
                    paths.append(folder + entry.name)
    except OSError as error:
        raise InputError(
            f"cannot list the folder {os.fsdecode(root + folder)!r}: {error.strerror}; make it readable, or "
            "move it elsewhere"
        ) from None
    paths.sort(reverse=True)
    return paths


def _is_folder(entry: os.DirEntry[bytes], follow: bool) -> bool:
    try:
        return entry.is_dir(follow_symlinks=follow)
    except OSError:  # a link to itself: handled as a file, and counted
        return False


def _is_new_folder(folder: bytes, visited: set[tuple[int, int]], skipped: Skipped) -> bool:
    try:
        identity = _identity(os.stat(folder))
    except FileNotFoundError:  # removed since its parent was listed
        return False
    if identity in visited:
        skipped.repeated += 1
        return False
    visited.add(identity)
    return True


def _image_file(
    root: bytes, path: bytes, real_root: bytes, options: SourceOptions, skipped: Skipped
) -> ImageFile | None:
    """Return an image file's entry, or count why it is skipped."""
    full = root + path
    try:
        status = os.lstat(full)
    except FileNotFoundError:  # removed since its folder was listed
        return None
    place = b""
    if stat.S_ISLNK(status.st_mode):
        target = _link_target(full, real_root, options)
        if target is None:
            skipped.links += 1
            return None
        status, place = target
        if place.startswith(inside := os.path.join(real_root, b"")):
            place = root + place.removeprefix(inside)
    if not stat.S_ISREG(status.st_mode):
        skipped.special += 1
        return None
    if not is_image_name(name := path.rpartition(b"/")[2]):
        suffix = suffix_of(name)
        if may_be_an_image(name) and status.st_size and _begins_like_an_image(full, skipped):
            return ImageFile(path, status.st_size, status.st_mtime_ns, place)
        skipped.not_images[suffix] += 1
        if suffix in SHARD_SUFFIXES:
            skipped.shards[suffix].append(full)
        return None
    return ImageFile(path, status.st_size, status.st_mtime_ns, place)


def _begins_like_an_image(full: bytes, skipped: Skipped) -> bool:
    """Return whether a file without a known suffix is an image; an unreadable one is counted."""
    try:
        handle = os.open(full, READ)
        try:
            return begins_like_an_image(read_at(handle, HEAD, 0))
        finally:
            os.close(handle)
    except OSError:
        skipped.unread += 1
        return False


def _link_target(full: bytes, real_root: bytes, options: SourceOptions) -> tuple[os.stat_result, bytes] | None:
    """Return the target of a link, and its path without links; None for a file that is skipped."""
    try:
        target, place = os.stat(full), os.path.realpath(full)
    except OSError:  # a dangling link, or a loop
        return None
    is_listed = options.follow_symlinks or place.startswith(os.path.join(real_root, b""))
    return (target, place) if is_listed and not stat.S_ISDIR(target.st_mode) else None


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def open_folder(places: Sequence[str], options: SourceOptions) -> MemoryManifest | list[str]:
    """Open a folder of images, or several folders and images, with keys relative to their common folder.

    Args:
        places: paths of folders and images.
        options: `hidden`, `follow_symlinks`, `label_from_folder`, `limit`, `max_bytes` are used.

    Returns:
        The manifest; or the sorted paths of shards in folders without images.

    Raises:
        InputError: if there is nothing to score, or an image is named twice; the message lists what exists instead.
    """
    paths = [os.path.abspath(os.fsencode(place)) for place in places]
    root = paths[0] if os.path.isdir(paths[0]) else os.path.dirname(paths[0])
    if len(paths) > 1:
        _refuse_overlap(paths)
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
    of_tables = ("key", "path_column", "image_column", "root")
    table_options = [name for name in of_tables if getattr(options, name) is not None]
    name = key_of(os.path.basename(root) or root)
    folder = f"folder {name}" if paths == [root] else f"{counted(len(paths), 'path')} in {name}"
    skipped = Skipped()
    columns = _Columns(root, options.label_from_folder)
    files = (file for path in paths for file in _files(path, root, options, skipped))
    for file in islice(files, options.limit):
        columns.add(file)
    table = columns.table()
    if table.num_rows == 0:
        return _shards_or_error(root, skipped)
    if table_options and not options.noted:
        raise InputError(
            f"--{table_options[0].replace('_', '-')} is for tables and lists, got a folder of images; leave it out: "
            "keys are the paths inside the folder"
        )
    if options.label_from_folder and table["label"].null_count == table.num_rows:
        raise InputError(
            f"expected sub-folders as labels, found none for {counted(table.num_rows, 'image')} in {name}; "
            "leave out --label-from-folder"
        )
    return MemoryManifest(
        f"{folder}: {counted(table.num_rows, 'file')}{skipped}",
        table,
        options=options,
        identity=("folder",),
        versions=(np.frombuffer(columns.sizes, np.int64), np.frombuffer(columns.times, np.int64)),
    )


def _refuse_overlap(paths: list[bytes]) -> None:
    for outer, inner in pairwise(sorted(os.path.join(path, b"") for path in paths)):
        if inner.startswith(outer):
            raise InputError(
                f"expected each image once, got {os.fsdecode(inner[:-1])!r} twice, by its path or the path of a folder "
                "around it; pass it once"
            )


def _files(path: bytes, root: bytes, options: SourceOptions, skipped: Skipped) -> Iterator[ImageFile]:
    """Yield the image files of a folder, or the image, with their paths from ``root``."""
    if path == root:
        yield from scan_folder(root, options, skipped)
    elif os.path.isdir(path):
        inside = os.path.join(os.path.relpath(path, root), b"")
        for file in scan_folder(path, options, skipped):
            yield replace(file, path=inside + file.path)
    else:
        yield ImageFile(os.path.relpath(path, root), *version_of(uri_of(path)))


class _Columns:
    """Rows of a folder being built; 16 bytes per row plus the text."""

    def __init__(self, root: bytes, labelled: bool) -> None:
        self._root = os.path.join(root, b"")
        self._paths: list[bytes] = []
        self._places: list[bytes] = []
        self._chunks: list[pa.Table] = []
        fields = [("key", pa.string()), ("uri", pa.string())]
        of_folders = [("label", pa.string()), ("split", pa.string())] if labelled else []
        self._schema = pa.schema([*fields, *of_folders])
        self.sizes = array("q")
        self.times = array("q")

    def add(self, file: ImageFile) -> None:
        self._paths.append(file.path)
        self._places.append(file.place)
        self.sizes.append(file.size)
        self.times.append(file.time)
        if len(self._paths) == _BLOCK:
            self._flush()

    def _flush(self) -> None:
        keys = [key_of(path) for path in self._paths]
        columns: dict[str, Sequence[str | None] | pa.Array] = {
            "key": keys,
            "uri": [uri_of(at or self._root + path) for path, at in zip(self._paths, self._places, strict=True)],
        }
        if "label" in self._schema.names:
            columns |= folder_columns(self._paths)
        self._chunks.append(pa.table(columns, schema=self._schema))
        self._paths.clear()
        self._places.clear()

    def table(self) -> pa.Table:
        self._flush()
        rows = pa.concat_tables(self._chunks)
        return without_empty_sides(rows) if "split" in rows.column_names else rows


def folder_label(path: bytes) -> str | None:
    """Return the name of an image's folder as its label; None at the top, in a folder of a split, or outside.

    >>> folder_label(b"train/cats/1.jpg"), folder_label(b"train/1.jpg"), folder_label(b"1.jpg")
    ('cats', None, None)
    """
    parts = _folders(path)
    return key_of(parts[-1]) if parts and parts[-1].lower() not in SIDES else None


def folder_side(path: bytes) -> str | None:
    """Return the split named by a folder of the path: train, val or test; None without one.

    >>> folder_side(b"data/Train/cats/1.jpg"), folder_side(b"valid/1.jpg"), folder_side(b"cats/1.jpg")
    ('train', 'val', None)
    """
    return next((SIDES[part.lower()] for part in _folders(path) if part.lower() in SIDES), None)


def _folders(path: bytes) -> list[bytes]:
    parts = path.removeprefix(b"./").split(b"/")[:-1]
    return [] if b"" in parts or b".." in parts else parts


def folder_columns(paths: Sequence[bytes | None]) -> dict[str, pa.Array]:
    """Return ``label`` and, if a folder names a split, ``split`` of relative paths; null for None."""
    labels = [None if path is None else folder_label(path) for path in paths]
    sides = [None if path is None else folder_side(path) for path in paths]
    return {"label": pa.array(labels, pa.string()), "split": pa.array(sides, pa.string())}


def without_empty_sides(rows: pa.Table) -> pa.Table:
    """Return the rows without the column ``split`` if no folder names a split."""
    return rows.drop_columns(["split"]) if rows["split"].null_count == rows.num_rows else rows


def _shards_or_error(root: bytes, skipped: Skipped) -> list[str]:
    kinds = [suffix for suffix in SHARD_SUFFIXES if skipped.shards[suffix]]
    name = os.fsdecode(root)
    if len(kinds) == 1:
        return [*map(os.fsdecode, skipped.shards[kinds[0]])]
    if kinds:
        raise InputError(
            f"expected images or one kind of shard in {name!r}, got both .parquet and .tar files; choose one "
            f"kind, as in {os.path.join(name, '*.tar')!r}"
        )
    n = skipped.not_images.total()
    what = f"{counted(n, 'file')}: {count_suffixes(skipped.not_images)}" if n else "no files"
    rest = replace(skipped, not_images=Counter())
    raise InputError(
        f"expected images (.jpg, .png, ...), .parquet or .tar files in {name!r}, got {what}{rest}; pass the "
        "folder that holds the images"
    )
