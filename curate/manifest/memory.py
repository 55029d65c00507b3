# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH116
"""A manifest with all rows in memory: folders, lists, CSV, JSONL, and the index of tar shards."""

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.manifest.contract import MAX_FILE_BYTES, Reader, RemoteReader, SourceOptions, check_range
from curate.manifest.keys import UniqueCheck
from curate.manifest.local import fail, local_path
from curate.manifest.places import fetch
from curate.manifest.reach import Reach
from curate.manifest.schemes import scheme_of
from curate.manifest.tar_index import read_member


def read_uri(uri: str, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> bytes:  # noqa: B008 (it is frozen)
    """Return the bytes behind a uri: a path, `file://` (percent-decoded), another URL, or `x.tar::member`; thread-safe.

    Args:
        uri: as in the `uri` column of a manifest.
        max_bytes: bound on the size.
        reach: where it may lead; by default to any local regular file, but not into private networks.

    Raises:
        ReadError, CredentialsError: as `fetch`.
    """
    if ".tar::" in uri:
        shard, _, member = uri.partition(".tar::")
        return read_member(shard + ".tar", member, max_bytes, reach)
    return fetch(uri, max_bytes, reach)


def uri_reader(uri: str | None, max_bytes: int = MAX_FILE_BYTES, reach: Reach = Reach()) -> Reader:  # noqa: B008
    """Return a reader of a uri; for None, one that reports a row without a file."""
    if uri is None:
        return partial(fail, "missing", "the row names no file")
    if scheme_of(uri) in (None, "file"):
        return partial(read_uri, uri, max_bytes, reach)
    return RemoteReader(partial(read_uri, uri, reach=reach), max_bytes)


ABSENT = (-1, -1)  # size and time of a missing or remote file
_BLOCK = 4096  # rows turned into Python objects at a time
Locate = Callable[[int], Reader]


class MemoryManifest:
    """Rows in an Arrow table; see `Manifest` for the meaning of each member.

    Args:
        description: one line for display.
        table: `key`, `uri`, then the user's columns.
        options: `max_bytes` and `connections` are used.
        reach: where uris may lead.
        identity: lines for the digest in addition to the rows (kind of source, digest of a list's bytes).
        versions: two numbers per file that change with it, each of shape (N,); by default its size and mtime in ns.
        sizes: of the files in bytes, shape (N,), if ``versions`` are not size and time.
        locate: row -> its reader; by default its uri is read.

    Attributes:
        renamed: renamed user columns; set by the code that renames them.
    """

    def __init__(
        self,
        description: str,
        table: pa.Table,
        *,
        options: SourceOptions,
        reach: Reach = Reach(),  # noqa: B008 (it is frozen)
        identity: Iterable[str] = (),
        versions: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
        sizes: NDArray[np.int64] | None = None,
        locate: Locate | None = None,
    ) -> None:
        self.description = description
        self.n_rows: int = table.num_rows
        self.schema: pa.Schema = table.schema
        self.renamed: dict[str, str] = {}
        self.classes: dict[str, tuple[str, ...]] = {}  # only Parquet lists class names
        self.connections = options.connections
        self._table = table
        self._max_bytes, self._reach = options.max_bytes, reach
        self._identity = tuple(identity)
        self._versions, self._sizes, self._locate = versions, sizes, locate

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop)."""
        check_range(start, stop, self.n_rows)
        return self._table.slice(start, stop - start)

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of the user's columns."""
        yield self._table.select(list(names))

    def readers(self, start: int, stop: int) -> Iterator[Reader]:
        """Yield one reader per row; nothing is opened before a reader is called."""
        check_range(start, stop, self.n_rows)
        return self._readers(start, stop)

    def _readers(self, start: int, stop: int) -> Iterator[Reader]:
        if self._locate is not None:
            yield from map(self._locate, range(start, stop))
            return
        for low in range(start, stop, _BLOCK):
            for uri in self._uris(low, min(low + _BLOCK, stop)):
                yield uri_reader(uri, self._max_bytes, self._reach)

    def _uris(self, start: int, stop: int) -> list[str | None]:
        return list(self._table["uri"].slice(start, stop - start).to_pylist())

    def files(self, start: int, stop: int) -> Iterable[tuple[int, int]]:
        """Return the size in bytes and the mtime in ns of each row's file, -1 if unknown."""
        check_range(start, stop, self.n_rows)
        if self._sizes is None:
            return self._pairs(start, stop)
        return ((size, -1) for size in self._sizes[start:stop].tolist())

    def _pairs(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the versions of rows."""
        if self._versions is None:
            return map(version_of, self._uris(start, stop))
        first, second = self._versions
        return zip(first[start:stop].tolist(), second[start:stop].tolist(), strict=True)

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the kind of source, the schema and each row's key, uri, size and time."""
        return self.digest_without(frozenset())

    def digest_without(self, absent: Set[int]) -> str:
        """Return the `digest` as if the files of these rows were missing."""
        digest = RowDigest(self._identity, self.schema)
        for low in range(0, self.n_rows, _BLOCK):
            high = min(low + _BLOCK, self.n_rows)
            keys = self._table["key"].slice(low, high - low).to_pylist()
            digest.add(keys, self._uris(low, high), without(absent, low, self._pairs(low, high)))
        return digest.hexdigest()


class RowDigest:
    """A sha256 over rows in order; every field is framed by its length, so that different rows differ."""

    def __init__(self, identity: Iterable[str], schema: pa.Schema) -> None:
        self._hash = hashlib.sha256()
        for text in (*identity, schema.to_string(show_field_metadata=False, show_schema_metadata=False)):
            self._hash.update(_framed(text))

    def add(self, keys: Iterable[str], uris: Iterable[str | None], versions: Iterable[tuple[int, int]]) -> None:
        """Add the next rows; the three have the same length."""
        for key, uri, (size, time) in zip(keys, uris, versions, strict=True):
            self._hash.update(_framed(key) + _framed(uri) + b"%d,%d;" % (size, time))

    def hexdigest(self) -> str:
        """Return the digest so far, 64 hex digits."""
        return self._hash.hexdigest()


def _framed(text: str | None) -> bytes:
    if text is None:
        return b"-"
    data = text.encode("utf-8", "surrogateescape")
    return b"%d:" % len(data) + data


def without(absent: Set[int], start: int, versions: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the versions of the rows from ``start`` on; absent rows get the version of a missing file."""
    return (ABSENT if row in absent else version for row, version in enumerate(versions, start))


def version_of(uri: str | None) -> tuple[int, int]:
    """Return (size in bytes, mtime in ns) of a local file; (-1, -1) if it is not one."""
    scheme = None if uri is None else scheme_of(uri)
    if uri is None or scheme not in (None, "file"):
        return ABSENT
    try:
        status = os.stat(local_path(uri) if scheme else uri)
    except (OSError, ValueError):
        return ABSENT
    return status.st_size, status.st_mtime_ns


def check_unique(keys: pa.ChunkedArray, column: str, where: str) -> None:
    """Refuse keys that repeat; raises InputError as `UniqueCheck.finish`."""
    check = UniqueCheck()
    for chunk in keys.chunks:
        check.add(chunk)

    def take(rows: np.ndarray) -> list[str]:
        return list(keys.take(pa.array(rows)).to_pylist())

    check.finish(take, column, where)
