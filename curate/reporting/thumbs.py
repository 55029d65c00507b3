"""Thumbnails of rows, small enough to embed a thousand of them in a page."""

import base64
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from curate.counted import counted
from curate.tables.images import MOVED, Encoded, Images, in_order
from curate.tables.provenance import WHITE
from curate.tables.table import Table
from scoring.images import DecodeError, decode_rgb

SIDE = 128  # pixels of the longer side
TYPE = "image/webp"
QUALITY, EFFORT = 75, 3  # of WebP: a third smaller than a JPEG that looks as good (benchmarks/report.py)
MOST_BYTES = 25_000_000  # of all thumbnails of a page, as text
AHEAD = 4  # images a thread that are read and not yet decoded


@dataclass(frozen=True)
class Thumbs:
    """Thumbnails of some rows.

    Attributes:
        data: row of the table -> encoded thumbnail.
        missing: number of rows whose image could not be read or decoded.
        words: a note on missing ones; empty if none is missing.
    """

    data: dict[int, bytes]
    missing: int
    words: str

    def to_json(self, rows: Sequence[int]) -> dict[str, Any]:
        """Return the thumbnails for the page, by position among its rows."""
        place = {row: number for number, row in enumerate(self.data)}
        return {
            "side": SIDE,
            "type": TYPE,
            "of": [place.get(row, -1) for row in rows],
            "data": [base64.b64encode(each).decode() for each in self.data.values()],
            "missing": self.missing,
            "words": self.words,
        }


def thumbnails(table: Table, rows: Sequence[int], *, source: str | None) -> Thumbs:
    """Return thumbnails of rows; missing and broken images are counted, not raised.

    Args:
        table: with ``key``, and ``uri`` unless a source is given.
        rows: indices, each once.
        source: the scored source, for tables whose images are in a Parquet file.

    Raises:
        InputError: if the source cannot be opened or has none of the keys.
    """
    if not len(rows):
        return Thumbs({}, 0, "")
    images = Images.of(table, rows, source=source, partial=True)
    if source is None and not images.named:
        words = f"{table.path} holds no path to any image: pass what was scored as --source"
        return Thumbs({}, len(rows), words)
    small: dict[int, bytes] = {}
    problems: dict[str, int] = {}
    size = 0
    for row, data, problem in _decoded(images.read(rows), os.cpu_count() or 1):
        size += -(-len(data or b"") // 3) * 4
        if data is not None and size <= MOST_BYTES:
            small[row] = data
        elif data is None:
            problems[problem] = problems.get(problem, 0) + 1
    missing = sum(problems.values())
    named = ", ".join(f"{n:,} {what}" for what, n in sorted(problems.items(), key=lambda item: -item[1])[:5])
    words = f"{counted(missing, 'image')} could not be shown ({named})" if missing else ""
    words += f": {MOVED}" if "missing" in problems else ""
    if size > MOST_BYTES:
        words = "; ".join([*([words] if words else []), f"thumbnails beyond {MOST_BYTES:,} bytes are left out"])
    return Thumbs({row: small[row] for row in rows if row in small}, missing, words)


def _decoded(encoded: Iterable[Encoded], workers: int) -> Iterator[tuple[int, bytes | None, str]]:
    """Yield thumbnails in order while images are read, with few in memory."""

    def small(image: Encoded) -> tuple[int, bytes | None, str]:
        if image.data is None:
            return image.row, None, image.problem.partition(":")[0]
        try:
            return image.row, thumbnail(image.data, white=image.white), ""
        except DecodeError as error:
            return image.row, None, error.status

    with ThreadPoolExecutor(workers) as pool:
        yield from in_order(pool, small, encoded, AHEAD * workers, lambda image: len(image.data or b""))


def thumbnail(data: bytes, side: int = SIDE, *, white: int = WHITE) -> bytes:
    """Return an image as WebP with a longer side of at most ``side`` pixels; DecodeError if it cannot be decoded.

    ``white`` is the white level of images with 16 bits per channel.
    """
    try:  # not enlarged beyond its pixels
        pixels = decode_rgb(data, short_side=side if side <= SIDE else None, white=white)
    except MemoryError:
        raise DecodeError("too_large", "it does not fit in memory") from None
    small = Image.fromarray(np.ascontiguousarray(pixels))
    small.thumbnail((side, side))
    out = io.BytesIO()
    small.save(out, "WEBP", quality=QUALITY, method=EFFORT)
    return out.getvalue()
