"""Images of rows on demand, with a cache of thumbnails; errors are shown as an image of text."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from xml.sax.saxutils import escape

from curate.columns import KEY, URI
from curate.manifest.contract import ReadError
from curate.manifest.memory import read_uri
from curate.manifest.sources import open_manifest
from curate.reporting.thumbs import SIDE, TYPE, thumbnail
from curate.tables.digests import key_bytes, tie_breaks
from curate.tables.images import SHA256, source_hashes
from curate.tables.keys import HashIndex
from curate.tables.provenance import reading_of, white_of
from curate.tables.table import Table
from scoring.images import DecodeError

KEPT = 4_000  # thumbnails, of some 3 kB
KNOWN = 20_000  # rows whose paths are cached
AT_ONCE = 4  # images that are decoded
LARGE = 1_024  # pixels of the longer side of an image that is looked at on its own
SVG = "image/svg+xml"
CHANGED = "changed since it was scored"


@dataclass(frozen=True)
class RowImage:
    """The image shown for a row.

    Attributes:
        data: the encoded image.
        type: its media type.
        problem: the error that the image states instead; empty if it is the row's image.
    """

    data: bytes
    type: str = TYPE
    problem: str = ""


class RowImages:
    """Provides images of rows of a table; thread-safe.

    Args:
        table: with ``key``, and ``uri`` unless a source is given; with ``sha256`` changed images are detected.
        source: the scored source; its keys are stored as hashes, 16 bytes per row.

    Raises:
        InputError: if the source cannot be opened.
    """

    def __init__(self, table: Table, *, source: str | None) -> None:
        self.table, self._white = table, white_of(table)
        self._manifest = None if source is None else open_manifest(source, reading_of(table))
        self._index = None if self._manifest is None else HashIndex(source_hashes(self._manifest, "the source"))
        self._column = KEY if source is not None else URI
        self._has_places = self._column in table.schema.names
        self._columns = [self._column, *([SHA256] if SHA256 in table.schema.names else [])]
        self._places: OrderedDict[int, tuple[bytes | None, str | None]] = (
            OrderedDict()
        )  # and the digest that was scored
        self._small = lru_cache(KEPT)(partial(self.large, side=SIDE))
        self._lock = threading.Lock()
        self._at_once = threading.BoundedSemaphore(AT_ONCE)

    def remember(self, rows: Sequence[int]) -> None:
        """Look up the image paths of rows together, before each is requested."""
        with self._lock:
            unknown = [row for row in rows if row not in self._places]
            if unknown and self._has_places:
                taken = self.table.take(unknown, self._columns)
                if self._column == URI and self.table.moved is not None:
                    taken = self.table.moved.current_rows(taken)
                column = taken.column(0).combine_chunks()
                uris = [None if uri is None else str(uri).encode() for uri in column.to_pylist()]
                texts = key_bytes(column) if self._column == KEY else uris
                scored = taken.column(1).to_pylist() if SHA256 in self._columns else [None] * len(unknown)
                self._places.update(zip(unknown, zip(texts, scored, strict=True), strict=True))
            while len(self._places) > max(KNOWN, len(rows)):
                self._places.popitem(last=False)

    def __call__(self, row: int) -> RowImage:
        """Return the thumbnail of a row, or text if there is no image to show."""
        return self._small(row)

    def large(self, row: int, side: int = LARGE) -> RowImage:
        """Return the image of a row, its longer side at most ``side`` pixels, or text if there is none."""
        self.remember([row])
        with self._at_once:
            try:
                return RowImage(thumbnail(self._data(row), side, white=self._white))
            except (ReadError, DecodeError) as error:
                problem = CHANGED if error.status == CHANGED else f"no image: {error.status.replace('_', ' ')}"
        return RowImage(_in_words(problem), SVG, problem)

    def _data(self, row: int) -> bytes:
        """Return the encoded image that was scored; ReadError if it is missing."""
        place, scored = self._places.get(row, (None, None))
        if place is None:
            raise ReadError("missing", "the table names no file for it")
        if self._manifest is None or self._index is None:
            data = read_uri(place.decode())
        elif (at := int(self._index.find(tie_breaks([place]))[0])) < 0:
            raise ReadError("missing", "the source has no image of that key")
        else:
            data = next(self._manifest.readers(at, at + 1))()
        if scored is not None and hashlib.sha256(data).hexdigest() != scored:
            raise ReadError(CHANGED, "the image is not the one that was scored")
        return data


def _in_words(problem: str) -> bytes:
    """Return an image that states an error, one word per line, readable on light and dark pages."""
    words = problem.split()
    lines = "".join(
        f'<text x="64" y="{68 + 17 * at - 8.5 * (len(words) - 1)}">{escape(word)}</text>'
        for at, word in enumerate(words)
    )
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="128" height="128"><rect width="128" height="128" fill="#888" '
        f'fill-opacity=".18"/><g fill="#888" font-family="sans-serif" font-size="14" text-anchor="middle">'
        f"{lines}</g></svg>"
    ).encode()
