"""Thumbnails of rows on demand, the last of them kept."""

import threading
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.facts.thumbs import thumbnail
from curate.manifest import Manifest, ReadError, SourceOptions, open_manifest, read_uri
from curate.tables.digests import key_bytes, tie_breaks
from curate.tables.table import Table
from scoring.images import DecodeError

KEPT = 4_000  # thumbnails, of some 3 kB
KNOWN = 20_000  # rows whose place is remembered
AT_ONCE = 4  # images that are decoded
STEP = 65_536  # rows of a source looked at together


class Pictures:
    """Makes thumbnails of rows of a table; safe to ask from many threads.

    Args:
        table: with ``key``, and ``uri`` unless a source is given.
        source: what was scored; its keys are held as hashes, 16 bytes a row.
        options: how to read the source.

    Raises:
        InputError: if the source cannot be opened.
    """

    def __init__(self, table: Table, *, source: str | None, options: SourceOptions | None) -> None:
        self.table = table
        self._source = None if source is None else _Source(open_manifest(source, options or SourceOptions()))
        self._column = KEY if source is not None else URI
        self._has_places = self._column in table.schema.names
        self._places: OrderedDict[int, bytes | None] = OrderedDict()
        self._made: OrderedDict[int, bytes | None] = OrderedDict()
        self._lock = threading.Lock()
        self._at_once = threading.BoundedSemaphore(AT_ONCE)

    def remember(self, rows: Sequence[int]) -> None:
        """Read where the images of rows are, all together, before each of them is asked for."""
        with self._lock:
            unknown = [row for row in rows if row not in self._places]
            if unknown and self._has_places:
                column = self.table.take(unknown, [self._column]).column(0).combine_chunks()
                texts = key_bytes(column) if self._column == KEY else [_encoded(each) for each in column.to_pylist()]
                self._places.update(zip(unknown, texts, strict=True))
            while len(self._places) > max(KNOWN, len(rows)):
                self._places.popitem(last=False)

    def __call__(self, row: int) -> bytes | None:
        """Return the thumbnail of a row; None where there is no image, or none that can be shown."""
        with self._lock:
            if row in self._made:
                self._made.move_to_end(row)
                return self._made[row]
        self.remember([row])
        with self._at_once:
            made = self._make(row)
        with self._lock:
            self._made[row] = made
            while len(self._made) > KEPT:
                self._made.popitem(last=False)
        return made

    def _make(self, row: int) -> bytes | None:
        place = self._places.get(row)
        if place is None:
            return None
        try:
            return thumbnail(self._source.data(place) if self._source is not None else read_uri(place.decode()))
        except (ReadError, DecodeError):
            return None


class _Source:
    """What was scored, by the hashes of its keys."""

    def __init__(self, manifest: Manifest) -> None:
        self._manifest = manifest
        parts: list[NDArray[np.uint64]] = [np.zeros(0, np.uint64)]
        for start in range(0, manifest.n_rows, STEP):
            keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY)
            parts.append(tie_breaks(key_bytes(keys)))
        hashes = np.concatenate(parts)
        self._order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def data(self, key: bytes) -> bytes:
        """Return the encoded image of a key; ReadError where there is none."""
        found = tie_breaks([key])[0]
        at = int(np.searchsorted(self._hashes, found))
        if at == len(self._hashes) or self._hashes[at] != found:
            raise ReadError("missing", "the source has no image of that key")
        place = int(self._order[at])
        return next(self._manifest.readers(place, place + 1))()


def _encoded(uri: str | None) -> bytes | None:
    return None if uri is None else uri.encode()
