# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100
"""The images of a batch: their bytes, and as files of a folder that goes out."""

import os
from pathlib import Path

from curate.columns import KEY
from curate.export.batch import PREFIX, Batch, Item
from curate.export.contract import ExportOptions
from curate.export.names import file_name, with_suffix
from curate.manifest.contract import ReadError
from curate.manifest.local import read_local
from curate.manifest.names import is_image_name
from scoring.atomic import place_errors
from scoring.atomic_folder import AtomicFolder
from scoring.errors import InputError
from scoring.images.sniff import sniff

BEGINNING = 1 << 20  # bytes of a file in which its first key stands
_SUFFIXES = {"jpeg": "jpg", "tiff": "tif", "heif": "heic", "netpbm": "pnm"}


def new_folder(out: Path, batch: Batch, options: ExportOptions, *, images: str, files: tuple[str, ...]) -> AtomicFolder:
    """Return a folder to fill; with ``options.overwrite`` in place of an earlier export of the same format.

    Args:
        out: the folder.
        batch: what goes out; no image of it may lie in the folder that is replaced.
        options: whether to replace.
        images: sub-folder of the images.
        files: further files of the format, as paths inside the folder; the first holds the keys.

    Raises:
        InputError: if something else is there.
    """
    if options.overwrite and out.is_dir() and not out.is_symlink():
        foreign = _foreign(out, images, files)
        if foreign is not None:
            raise InputError(f"{out} holds more than an export ({foreign}), and is left alone; choose another name")
        top = os.path.realpath(os.fsencode(out))
        paths = (item.path for item in batch if item.path is not None and b"\0" not in item.path)
        for folder in set(map(os.path.dirname, paths)):
            if os.path.commonpath([top, os.path.realpath(folder)]) == top:
                raise InputError(f"{out} holds images of the batch, and is left alone; choose another name")
    return AtomicFolder(out, overwrite=options.overwrite)


def _foreign(out: Path, images: str, files: tuple[str, ...]) -> str | None:
    """Return the first of what a folder holds that an export would not; None for an export, or an empty folder."""
    inside = sorted(out.iterdir())
    inner = sorted((out / images).iterdir()) if (out / images).is_dir() and not (out / images).is_symlink() else []
    for path in [*inside, *inner]:
        name = path.relative_to(out).as_posix()
        is_image = path.parent != out and is_image_name(path.name)
        is_ours = (
            path.is_dir() if name == images else (name in files or is_image) and (path.is_symlink() or path.is_file())
        )
        if not is_ours:
            return name
    if inside and not _holds_keys(out / files[0]):
        return f"no {files[0]} with keys"
    return None


def _holds_keys(path: Path) -> bool:
    """Return whether a file begins as ours do."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return f'"{PREFIX}{KEY}"'.encode() in file.read(BEGINNING)


def add_image(folder: AtomicFolder, item: Item, sub_folder: str, options: ExportOptions) -> str:
    """Copy or link an item's image into a sub-folder; return its name there.

    Raises:
        InputError: if it cannot be had; names the key.
    """
    path = item.path
    data = None if options.link and path is not None else image_bytes(item, options)
    kind = sniff(_head(item) if data is None else data) or "jpg"
    with place_errors(folder.path):
        name = with_suffix(file_name(item.key), item.key, _SUFFIXES.get(kind, kind))
        if data is not None:
            folder.write(f"{sub_folder}/{name}", data)
        elif path is not None:
            (folder.temporary / sub_folder).mkdir(exist_ok=True)
            (folder.temporary / sub_folder / name).symlink_to(os.fsdecode(os.path.abspath(path)))
    return name


def image_bytes(item: Item, options: ExportOptions) -> bytes:
    """Return the encoded image of an item: by the reader where there is one, else the local file.

    Raises:
        InputError: if it cannot be had; names the key.
    """
    try:
        if options.images is not None:
            return options.images(item.key)
        if item.path is not None:
            return read_local(item.path)
    except ReadError as error:
        hint = "name what was scored with --source" if item.uri is None else "take it out of the batch"
        raise InputError(f"cannot read the image of {item.key!r}: {error}; {hint}") from None
    got = "none" if item.uri is None else "a URL" if item.url else "a member of a tar file"  # a URL may be signed
    raise InputError(f"expected a local file for {item.key!r}, got {got}; give a reader of its bytes")


def _head(item: Item) -> bytes:
    """Return the first bytes of an item's local file, so that no link points nowhere."""
    path = item.path or b""
    try:
        return read_local(path, offset=0, size=min(4096, os.stat(path).st_size))  # noqa: PTH116 (a bytes path)
    except (OSError, ValueError, ReadError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot link to the image of {item.key!r}: {reason}; take it out of the batch") from None
