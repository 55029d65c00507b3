"""A folder of an object store: its files, and the rows of those that are images."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from curate.manifest.contract import MAX_PATH_BYTES, ReadError, SourceOptions
from curate.manifest.folder import folder_columns, without_empty_sides
from curate.manifest.hub import is_hub, tree_of
from curate.manifest.memory import MemoryManifest
from curate.manifest.names import some
from curate.manifest.reach import Reach
from curate.manifest.remote import ask, size_of, version_in
from curate.manifest.schemes import CHAIN, GOOGLE, file_system, scheme_of, shown
from scoring.errors import InputError


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of a store: its name below the folder that was listed, its size in bytes, and what changes with it."""

    name: str
    size: int
    version: str


def list_files(url: str, *, hidden: bool = False) -> list[StoredFile]:
    """Return the files at any depth below a URL, in the order of the bytes of their names.

    Holds about 2 kB for each while the driver lists them, and a tenth of that afterwards.

    Args:
        url: of a folder of a store.
        hidden: also those with a part of their name that starts with a dot.

    Raises:
        InputError: if the store cannot be listed, or a name is too long or no text.
    """
    system, inner = file_system(url, listing=scheme_of(url) not in GOOGLE)  # whose own tries take half a minute
    hub = is_hub(system)
    try:
        listed = ask(lambda: tree_of(system, inner) if hub else system.find(inner, detail=True))
    except ReadError as error:
        reasons = {"denied": f"{error}: listing needs its own permission", "missing": "there is no such place"}
        reasons = {} if hub else reasons
        raise InputError(
            f"cannot list {shown(url)!r}: {reasons.get(error.status, str(error))}; check the URL, the network and the "
            "credentials"
        ) from None
    prefix = inner.strip("/") + "/"
    files = []
    while listed:  # what the driver reports for each is ten times what is kept of it
        path, facts = listed.popitem()
        name = path.strip("/").removeprefix(prefix) if path.strip("/").startswith(prefix) else ""
        if path.endswith("/"):  # what some tools put instead of an empty folder
            continue
        if name and (hidden or not any(part.startswith(".") for part in name.split("/"))):
            files.append(StoredFile(name, size_of(facts), version_in(facts)))
    files.sort(key=lambda file: file.name.encode("utf-8", "surrogatepass"))
    return files


def open_listing(url: str, images: Sequence[StoredFile], options: SourceOptions, reach: Reach) -> MemoryManifest:
    """Return the rows of the images of a folder of a store; a name is nothing but a name, whatever it looks like."""
    images = images[: options.limit]
    base = url.rstrip("/")
    for image in images:
        _refuse_name(image.name, url)
    names = [image.name for image in images]
    columns = {
        "key": pa.array(names, pa.string()),
        "uri": pa.array([f"{base}/{name}" for name in names], pa.string()),
    }
    if options.label_from_folder:
        columns |= folder_columns([name.encode() for name in names])
    sizes = np.array([image.size for image in images], np.int64)
    versions = np.array([_number(image.version) for image in images], np.int64)

    def states(start: int, stop: int) -> Iterable[tuple[int, int]]:
        return zip(sizes[start:stop].tolist(), versions[start:stop].tolist(), strict=True)

    return MemoryManifest(
        f"folder {shown(url)}: {some(len(images), 'file')}",
        without_empty_sides(pa.table(columns)) if options.label_from_folder else pa.table(columns),
        max_bytes=options.max_bytes,
        connections=options.connections,
        reach=reach,
        identity=("store", base),
        versions=states,
        files=lambda start, stop: ((size, -1) for size in sizes[start:stop].tolist()),
    )


def _number(version: str) -> int:
    """Return 48 bits of a file's version."""
    return int.from_bytes(hashlib.sha256(version.encode()).digest()[:6])


def _refuse_name(name: str, url: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_PATH_BYTES or ".tar::" in name or CHAIN.search(name):
        what = f"a name of {size:,} bytes" if size > MAX_PATH_BYTES else f"{name[:80]!r}"
        raise InputError(
            f"expected names of at most {MAX_PATH_BYTES} bytes without '.tar::' in {shown(url)!r}, got {what}; "
            "give a list of what to score"
        )
