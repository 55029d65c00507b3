"""Reading of the images of rows, from their URIs or the scored source, and decoding in order by threads."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import KEY, STATUS, URI
from curate.manifest.ahead import ahead
from curate.manifest.contract import CONNECTIONS, Manifest, Reader, ReadError, SourceOptions
from curate.manifest.memory import read_uri, uri_reader
from curate.manifest.sources import open_manifest
from curate.tables.arrays import is_ok
from curate.tables.digests import is_text, key_array, key_texts, tie_breaks
from curate.tables.keys import places
from curate.tables.provenance import WHITE, reading_of, white_of
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images.budget import ENCODED

CHANGED = "changed"  # the bytes are not those that were scored
SHA256 = "sha256"
STEP = 65_536  # rows of a source looked at together
MOVED = "if the files moved, pass their folder, or what was scored, as --source"
WIDEST_GAP = 512  # rows of a source that are passed over rather than opening it again


@dataclass(frozen=True)
class Encoded:
    """The image of a row.

    Attributes:
        row: its index.
        key: as text.
        data: encoded bytes; None if unreadable.
        problem: the error, as ``status: sentence``; empty with ``data``.
        white: white level of 16-bit images.
    """

    row: int
    key: str
    data: bytes | None
    problem: str = ""
    white: int = WHITE


def drawn_rows(table: Table, n: int, *, seed: int, scored: bool = True) -> NDArray[np.int64]:
    """Return up to n rows with the lowest key hashes, lowest first, shape (<= n,); without keys, by row index.

    The sample does not depend on the row order, and a smaller one is a prefix of a larger one.

    Args:
        table: to sample.
        n: >= 1.
        seed: of the sample.
        scored: whether to exclude rows whose ``status`` is not ok; needs keys.
    """
    table.require([KEY] if scored else [])
    names = [name for name in (KEY, *([STATUS] if scored else [])) if name in table.schema.names]
    best, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for start, batch in table.numbered(names):
        inside = np.flatnonzero(is_ok(batch.column(STATUS))) if STATUS in names else np.arange(batch.num_rows)
        numbers = start + inside
        keys = (
            key_array(batch.column(KEY), table.path, start).take(pa.array(inside))
            if KEY in names
            else [b"%d" % row for row in numbers.tolist()]
        )
        best, rows = np.concatenate([best, tie_breaks(keys, seed=seed)]), np.concatenate([rows, numbers])
        least = np.argsort(best, kind="stable")[:n]
        best, rows = best[least], rows[least]
    return rows


def require_images(table: Table, source: str | None) -> None:
    """Raise InputError for a table without paths of images, if no source is given, before the work."""
    if source is None and table.n_rows and not holds_paths(table):
        raise InputError(f"{table.path} holds no path to any image; pass what was scored as --source")


def holds_paths(table: Table) -> bool:
    """Return whether any row of a table has a path to its image."""
    return URI in table.schema.names and any(part.column(0).null_count < len(part) for part in table.batches([URI]))


class Images:
    """Reads the images of some rows: from their URIs, or by key from the scored source.

    Args:
        rows: with ``key``, and ``uri`` unless a source is given; with ``sha256`` changed images are detected.
        name: of the table, for messages.
        numbers: indices for requesting the rows; 0, 1, ... by default.
        source: the scored folder, list, table or tar file; or the present folder of the files.
        options: for reading the source, as when it was scored.
        partial: rows may lack an image, which is reported on reading; else it is an error now.
        white: white level of 16-bit images, as when they were scored.

    Raises:
        InputError: if the source cannot be opened or has none of the keys, or a row has neither a path nor a source.
    """

    def __init__(
        self,
        rows: pa.Table,
        name: object,
        *,
        numbers: Sequence[int] | None = None,
        source: str | None = None,
        options: SourceOptions | None = None,
        partial: bool = False,
        white: int = WHITE,
    ) -> None:
        self.white = white
        numbers = range(rows.num_rows) if numbers is None else numbers
        keys = _keys(rows, numbers, name)
        self.key = dict(zip(numbers, keys, strict=True))
        self._uri, self._scored = (_texts(rows, column, numbers, name) for column in (URI, SHA256))
        self._manifest: Manifest | None = None
        self._place: dict[str, int] = {}
        self._source = source
        if source is not None:
            self._manifest = open_manifest(source, options or SourceOptions())
            self._place = _places(self._manifest, keys)
            absent = [key for key in keys if key not in self._place]
            if absent and (not partial or len(absent) == len(keys)):
                raise InputError(
                    f"--source: {source} has no image with the key {absent[0]!r} ({len(absent):,} of {len(keys):,} "
                    "are missing); pass what was scored, or a table with the keys in a column named key"
                )
        elif not partial and len(self._uri) < len(self.key):
            raise InputError(
                f"{name} holds no path to {len(self.key) - len(self._uri):,} of {len(self.key):,} images; "
                "pass what was scored as --source"
            )

    @classmethod
    def of(
        cls, table: Table, rows: Sequence[int] | NDArray[np.int64], *, source: str | None = None, partial: bool = False
    ) -> "Images":
        """Return the images of rows of a table, by index; a source is read as recorded in the table."""
        table.require([KEY] if source is not None else [])
        numbers = np.unique(np.asarray(rows, np.int64))
        taken = table.take(numbers, [name for name in (KEY, URI, SHA256) if name in table.schema.names])
        if source is None and table.moved is not None:
            taken = table.moved.current_rows(taken)
        return cls(
            taken,
            table.path,
            numbers=numbers.tolist(),
            source=source,
            options=None if source is None else reading_of(table),
            partial=partial,
            white=white_of(table),
        )

    @property
    def named(self) -> bool:
        """Whether any of the rows has a path, or a source is given."""
        return self._source is not None or bool(self._uri)

    def data(self, row: int) -> bytes:
        """Return the encoded image of a row, even if it has changed since it was scored; ReadError if unreadable."""
        if self._manifest is None:
            if row not in self._uri:
                raise ReadError("missing", "the table names no file for it")
            return read_uri(self._uri[row])
        place = self._place.get(self.key[row])
        if place is None:
            raise ReadError("missing", f"{self._source} has no image of that key")
        return next(self._manifest.readers(place, place + 1))()

    def read(self, rows: Sequence[int]) -> Iterator[Encoded]:
        """Yield each row's image, in the order of the source; an image that has changed is a problem."""
        pairs, numbers = self._readers(rows), deque[int]()

        def readers() -> Iterator[Reader]:
            for row, reader in pairs:
                numbers.append(row)
                yield reader

        connections = CONNECTIONS if self._manifest is None else self._manifest.connections
        for read in ahead(readers(), connections):
            row = numbers.popleft()
            try:
                data = read()
            except ReadError as error:
                yield Encoded(row, self.key[row], None, f"{error.status}: {error}")
                continue
            scored = self._scored.get(row)
            if scored is not None and hashlib.sha256(data).hexdigest() != scored:
                yield Encoded(row, self.key[row], None, f"{CHANGED}: the image is not the one that was scored")
            else:
                yield Encoded(row, self.key[row], data, white=self.white)

    def _readers(self, rows: Sequence[int]) -> Iterator[tuple[int, Reader]]:
        if self._manifest is None:
            for row in sorted(rows):
                uri = self._uri.get(row)
                yield row, uri_reader(uri) if uri is not None else lambda row=row: self.data(row)  # type: ignore[misc]
            return
        for row in rows:
            if self.key[row] not in self._place:  # of a partial source: reading says so
                yield row, lambda row=row: self.data(row)  # type: ignore[misc]
        ordered = sorted(
            (row for row in rows if self.key[row] in self._place), key=lambda row: self._place[self.key[row]]
        )
        places = np.array([self._place[self.key[row]] for row in ordered], np.int64)
        yield from zip(ordered, readers_in_order(self._manifest, places), strict=True)


def readers_in_order(manifest: Manifest, places: NDArray[np.int64]) -> Iterator[Reader]:
    """Yield a reader of each of the given rows of a source; ``places`` (N,) must increase."""
    cuts = [0, *(np.flatnonzero(np.diff(places) > WIDEST_GAP) + 1).tolist(), len(places)]
    for first, last in pairwise(cuts):
        if first == last:
            return
        readers = manifest.readers(int(places[first]), int(places[last - 1]) + 1)
        passed = int(places[first])
        for place in places[first:last].tolist():
            for _ in range(place - passed):
                next(readers)
            yield next(readers)
            passed = place + 1


def images_by_key(
    rows: pa.Table, *, source: str | None = None, options: SourceOptions | None = None
) -> Callable[[str], bytes]:
    """Return a function from the key of a row to its encoded image, which raises ``ReadError`` if absent.

    Args:
        rows: with ``key`` and, unless a source is given, ``uri``.
        source: the scored source.
        options: how to read the source.

    Raises:
        InputError: if the source cannot be opened, or has no key of the table.
    """
    images = Images(rows, "the batch", source=source, options=options, partial=True)
    row = {key: number for number, key in images.key.items()}
    return lambda key: images.data(row[key])


def _keys(rows: pa.Table, numbers: Sequence[int], name: object) -> list[str]:
    """Return the keys as text; row indices if absent."""
    if KEY not in rows.column_names:
        return [str(number) for number in numbers]
    keys = rows.column(KEY).combine_chunks()
    absent = np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))
    if len(absent):  # said of the row of the table
        key_texts(keys.slice(absent[0], 1), name, numbers[absent[0]])
    return key_texts(keys, name)


def _texts(rows: pa.Table, column: str, numbers: Sequence[int], name: object) -> dict[int, str]:
    """Return the values of a text column by row, if present."""
    if column in rows.column_names and not is_text(kind := rows.column(column).type) and not pa.types.is_null(kind):
        raise InputError(f"expected text in column {column!r} of {name}, got {kind}; cast it, or remove the column")
    values = rows.column(column).to_pylist() if column in rows.column_names else []
    return {row: value for row, value in zip(numbers, values, strict=False) if value is not None}


def _places(manifest: Manifest, keys: Sequence[str]) -> dict[str, int]:
    """Return the row of each key in a source, without missing keys."""
    key_set = pa.array(keys, pa.string())
    place: dict[str, int] = {}
    for start in range(0, manifest.n_rows, STEP):
        source_keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY)
        inside = pc.is_in(source_keys, value_set=key_set).to_numpy(zero_copy_only=False)
        place.update({source_keys[row].as_py(): start + row for row in np.flatnonzero(inside).tolist()})
    return place


def source_hashes(manifest: Manifest, name: str) -> NDArray[np.uint64]:
    """Return the hash of the key of each row of a source, shape (N,); ``name`` is for messages."""
    parts = [np.zeros(0, np.uint64)]
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY).combine_chunks()
        parts.append(tie_breaks(key_array(keys, name, start)))
    return np.concatenate(parts)


class Located:
    """The positions of many keys in a source.

    Args:
        hashes: of the keys (``tie_breaks``), shape (N,) uint64, distinct.
        source: the scored folder, list, table or tar file.
        options: for reading the source, as when it was scored.

    Attributes:
        manifest: the source.
        missing: number of keys that it lacks.

    Raises:
        InputError: if the source cannot be opened or has none of the keys.
    """

    def __init__(self, hashes: NDArray[np.uint64], source: str, options: SourceOptions) -> None:
        self.source = source
        self.manifest: Manifest = open_manifest(source, options)
        self._hashes = np.sort(hashes)
        self._place = places(self._hashes, source_hashes(self.manifest, source))
        self.missing = int((self._place < 0).sum())
        if self.missing == len(hashes):
            raise InputError(
                f"--source: {source} has no image with the key of any of the {len(hashes):,} rows; pass what "
                "was scored, or a table with the keys in a column named key"
            )

    def readers(self, keys: Sequence[str]) -> Iterator[Reader]:
        """Yield a reader of each key's image, in order; fast in the order of the source."""
        places = self.places_of(tie_breaks([key.encode() for key in keys]))
        present = places[places >= 0]
        ordered = readers_in_order(self.manifest, present) if (np.diff(present) > 0).all() else None
        for place in places.tolist():
            if place < 0:
                yield self._absent
            elif ordered is not None:
                yield next(ordered)
            else:
                yield next(self.manifest.readers(place, place + 1))

    def places_of(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the row of the source of each key hash; -1 for none."""
        return self._place[np.searchsorted(self._hashes, hashes)]

    def _absent(self) -> bytes:
        raise ReadError("missing", f"{self.source} has no image of that key")


T = TypeVar("T")
R = TypeVar("R")


def in_order(
    pool: Executor, work: Callable[[T], R], items: Iterable[T], most: int, n_bytes: Callable[[T], int]
) -> Iterator[R]:
    """Yield the results of threads in the order of the items; an item larger than the bound is processed alone.

    Args:
        pool: of threads.
        work: function of an item.
        items: consumed on demand.
        most: maximal number of items in progress, >= 1.
        n_bytes: encoded bytes of an item, or its result; at most ``ENCODED`` in progress.
    """
    waiting: deque[tuple[Future[R], int]] = deque()
    held = 0
    try:
        for item in items:
            size = n_bytes(item)
            while waiting and (len(waiting) >= most or held + size > ENCODED):
                held -= waiting[0][1]
                yield waiting.popleft()[0].result()
            waiting.append((pool.submit(work, item), size))
            held += size
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        for future, _ in waiting:
            future.cancel()
