"""A folder of an object store: its files, and the rows of its images."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from curate.counted import counted
from curate.manifest.contract import MAX_PATH_BYTES, ReadError, SourceOptions
from curate.manifest.folder import folder_columns, without_empty_sides
from curate.manifest.hub import is_hub, tree_of
from curate.manifest.memory import MemoryManifest
from curate.manifest.names import begins_like_an_image, is_image_name, may_be_an_image
from curate.manifest.reach import Reach
from curate.manifest.remote import StoredFile, ask, get_range, size_of, version_in
from curate.manifest.schemes import CHAIN, GOOGLE, file_system, scheme_of, shown
from scoring.errors import InputError
from scoring.images.sniff import HEAD

LOOKED_AT = 10_000  # files at a time


def list_files(url: str, *, hidden: bool = False) -> list[StoredFile]:
    """Return the files at any depth below the URL of a store's folder, sorted by the bytes of their names.

    Uses about 2 kB per file while the driver lists them, and a tenth of that afterwards. Names with a part that starts
    with a dot are left out unless ``hidden``.

    Raises:
        InputError: if the store cannot be listed, or a name is too long or not text.
    """
    system, inner = file_system(url, listing=scheme_of(url) not in GOOGLE)  # its retries take half a minute
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
    while listed:  # the driver's report is ten times as large as what is kept
        path, facts = listed.popitem()
        name = path.strip("/").removeprefix(prefix) if path.strip("/").startswith(prefix) else ""
        if path.endswith("/"):  # placeholder of an empty folder by some tools
            continue
        if name and (hidden or not any(part.startswith(".") for part in name.split("/"))):
            files.append(StoredFile(name, size_of(facts), version_in(facts)))
    files.sort(key=lambda file: file.name.encode("utf-8", "surrogatepass"))
    return files


def images_of(
    url: str, files: Sequence[StoredFile], options: SourceOptions, reach: Reach
) -> tuple[list[StoredFile], int]:
    """Return the images among the files of a folder, in order, and the number of files that could not be checked.

    A file without a suffix is an image if its first bytes are an image's, which takes one small request, up to
    ``connections`` at a time. A limit also bounds these requests.

    Raises:
        CredentialsError: as `remote.ask`.
    """
    base, images, unread = url.rstrip("/"), list[StoredFile](), 0

    def look(file: StoredFile) -> bool | None:
        try:
            return begins_like_an_image(get_range(f"{base}/{file.name}", 0, HEAD, reach))
        except ReadError:
            return None

    with ThreadPoolExecutor(options.connections) as pool:
        step = LOOKED_AT if options.limit is None else min(LOOKED_AT, max(options.limit, options.connections))
        for start in range(0, len(files), step):
            some_files = files[start : start + step]
            unnamed = [file for file in some_files if file.size and may_be_an_image(file.name.rpartition("/")[2])]
            answers = dict(zip(unnamed, pool.map(look, unnamed), strict=True))
            images += [file for file in some_files if answers.get(file, is_image_name(file.name))]
            unread += [*answers.values()].count(None)
            if options.limit is not None and len(images) >= options.limit:
                break
    return images, unread


def open_listing(
    url: str, images: Sequence[StoredFile], options: SourceOptions, reach: Reach, *, unread: int = 0
) -> MemoryManifest:
    """Return the rows of the images of a folder of a store; names are never interpreted.

    ``unread`` is the number of files that could not be checked.
    """
    images = images[: options.limit]
    base = url.rstrip("/")
    for image in images:
        _refuse_name(image.name, url)
    names = [image.name for image in images]
    columns = {"key": pa.array(names, pa.string()), "uri": pa.array([f"{base}/{name}" for name in names], pa.string())}
    if options.label_from_folder:
        columns |= folder_columns([name.encode() for name in names])
    skipped = f"; skipped {counted(unread, 'file')} without a suffix that cannot be read" if unread else ""
    sizes = np.array([image.size for image in images], np.int64)
    versions = np.array(
        [int.from_bytes(hashlib.sha256(image.version.encode()).digest()[:6]) for image in images], np.int64
    )
    return MemoryManifest(
        f"folder {shown(url)}: {counted(len(images), 'file')}{skipped}",
        without_empty_sides(pa.table(columns)) if options.label_from_folder else pa.table(columns),
        options=options,
        reach=reach,
        identity=("store", base),
        versions=(sizes, versions),
        sizes=sizes,
    )


def _refuse_name(name: str, url: str) -> None:
    size = len(name.encode("utf-8", "surrogatepass"))
    if size > MAX_PATH_BYTES or ".tar::" in name or CHAIN.search(name):
        what = f"a name of {size:,} bytes" if size > MAX_PATH_BYTES else f"{name[:80]!r}"
        raise InputError(
            f"expected names of at most {MAX_PATH_BYTES} bytes without '.tar::' in {shown(url)!r}, got "
            f"{what}; pass a list of what to score"
        )
