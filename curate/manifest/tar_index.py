"""The members of a tar file: names, offsets and sizes. Nothing is ever extracted."""

import posixpath
import struct
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

from curate.manifest.contract import MAX_PATH_BYTES, ReadError
from curate.manifest.failures import CredentialsError
from curate.manifest.names import key_of
from curate.manifest.places import MissingPlaceError, Place, find_place
from curate.manifest.reach import Reach
from curate.manifest.schemes import UrlError
from scoring.errors import InputError

_MAX_HEADER = 1 << 20  # larger extended headers are attacks
_COMPRESSED = {b"\x1f\x8b": "gzip", b"BZ": "bzip2", b"\xfd7": "xz", b"(\xb5": "zstd"}
_HOSTILE = (tarfile.TarError, ValueError, OverflowError, RecursionError, struct.error, EOFError, KeyError)


@dataclass(frozen=True)
class Member:
    """One regular file inside a tar: its name as a key, offset and size of its data in bytes."""

    name: str
    offset: int
    size: int


@dataclass
class Contents:
    """Entries other than regular files found by indexing."""

    links: int = 0  # symbolic and hard links, devices, FIFOs, sparse files
    cut_off: str = ""  # name of the truncated member


class _Headers:
    """A file for tarfile that refuses to read more than a header may need."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.tell = file.tell
        self.seek = file.seek

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise tarfile.ReadError(f"a header of {size:,} bytes")
        return self._file.read(size)


def members(place: Place, file: BinaryIO, contents: Contents) -> Iterator[Member]:
    """Yield the regular files of a tar in order.

    Args:
        place: the tar, for messages and its size.
        file: the tar, open for reading.
        contents: skipped entries are counted here. If the tar ends inside a member's data, the member is still listed
            (reading it fails), and this is recorded.

    Raises:
        InputError: if it is compressed, not a tar, or has an invalid header.
    """
    _refuse_compressed(place, file)
    try:
        with tarfile.open(fileobj=_Headers(file), mode="r:") as archive:  # type: ignore[call-overload]
            while (info := archive.next()) is not None:
                archive.members = []  # tarfile keeps every member in memory
                if info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE) or info.sparse:
                    contents.links += not info.isdir()
                    continue
                yield _member(place, info)
                if info.offset_data + info.size > place.size:
                    contents.cut_off = info.name
                    return
            _check_end(place, file, archive.offset)
    except _HOSTILE as error:
        raise InputError(
            f"{place.name} is not a readable tar: {str(error)[:100] or type(error).__name__}; "
            "fetch or write it again, or leave it out"
        ) from None


def _member(place: Place, info: tarfile.TarInfo) -> Member:
    raw = info.name.encode("utf-8", "surrogateescape")
    if len(raw) > MAX_PATH_BYTES:
        raise InputError(
            f"expected member names of at most {MAX_PATH_BYTES} bytes in {place.name}, got {len(raw):,} bytes at "
            f"offset {info.offset}; write it again"
        )
    while raw.startswith(b"./"):
        raw = raw[2:].lstrip(b"/")
    return Member(key_of(raw), info.offset_data, info.size)


def _refuse_compressed(place: Place, file: BinaryIO) -> None:
    kind = _COMPRESSED.get(file.read(2))
    file.seek(0)
    if kind is not None:
        raise InputError(
            f"expected a plain .tar, got one compressed with {kind}: {place.name} gives no access to a single "
            "member; decompress it (gunzip, unzstd, xz -d) and pass the .tar"
        )


def _check_end(place: Place, file: BinaryIO, offset: int) -> None:
    """Check the end of a tar (zeros, or no more bytes): tarfile ends silently at a broken header."""
    file.seek(offset)
    block = file.read(tarfile.BLOCKSIZE)
    if block.strip(b"\0"):
        # At the end marker, `offset` is the marker itself; anything else there is a header that did not parse.
        raise InputError(
            f"{place.name} is not a readable tar: expected a header at byte {offset:,}, got other bytes; "
            "fetch or write it again, or leave it out"
        )


def read_member(shard: str, name: str, max_bytes: int, reach: Reach) -> bytes:
    """Return the bytes of a member named by a uri `shard.tar::name`.

    Raises:
        ReadError: "missing" if the shard or member does not exist, "refused" beyond ``reach``; else as `Place.read`.
        CredentialsError: as `Place.read`.
    """
    if why := reach.bars(shard):
        raise ReadError("refused", why)
    try:
        place = find_place(shard, reach=reach)
        with _INDEXING:
            extent = _index(place).get(name)
    except CredentialsError:
        raise
    except MissingPlaceError as error:
        raise ReadError("missing", str(error)) from None
    except UrlError as error:
        raise ReadError("refused", str(error)) from None
    except InputError as error:
        raise ReadError("io_error", str(error)) from None
    if extent is None:
        raise ReadError("missing", f"no member {name!r} in {posixpath.basename(shard)}")
    return place.read(*extent, max_bytes)


_INDEXING = threading.Lock()  # otherwise every thread that waits for a shard would index it


@lru_cache(maxsize=8)
def _index(place: Place) -> dict[str, tuple[int, int]]:
    with place.open() as file:
        return {member.name: (member.offset, member.size) for member in members(place, file, Contents())}
