# Paths are bytes where names need not be UTF-8, and pathlib holds text.
# ruff: noqa: PTH100, PTH116, PTH211
"""Images of rows, read, checked, encoded and written by several threads in row order."""

import hashlib
import io
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from curate.exporting.rows import Rows
from curate.manifest.ahead import ahead
from curate.manifest.contract import CONNECTIONS, ReadError
from curate.manifest.local import fail, read_local
from curate.manifest.memory import uri_reader
from curate.tables.images import CHANGED, SHA256, Located, in_order
from scoring.atomic import place_errors
from scoring.errors import InputError
from scoring.images.budget import BODIES
from scoring.images.decoding import decode_rgb, opened
from scoring.images.deep import WHITE
from scoring.images.geometry import resize
from scoring.images.outcome import DecodeError
from scoring.images.raster import DecodeOptions
from scoring.images.sniff import sniff
from scoring.settings import require_between

ImageReader = Callable[[str], bytes]  # key -> the encoded image; raises ReadError
COPY, HARD, SYMBOLIC = "copy", "hard", "symbolic"
LINKS = (COPY, HARD, SYMBOLIC)  # how images are placed in an export
NO_FILE = "the table names no file for it"
AHEAD = 4  # images in memory per thread
N_BYTES = "n_bytes"
HEAD = 4096  # bytes needed to detect a format
SUFFIXES = {"jpeg": "jpg", "tiff": "tif", "heif": "heic"}
KINDS = ("jpeg", "png", "webp")
QUALITY = 90  # default quality of JPEG and WebP
LONG = 8  # maximum aspect ratio: `decode_rgb` crops longer images when it resizes


@dataclass(frozen=True)
class Encoding:
    """How images are written: short side at most ``side`` pixels, in the format ``kind``.

    Attributes:
        side: in pixels; None keeps the size. Images are never enlarged.
        kind: ``jpeg``, ``png`` or ``webp``; None keeps the format, or PNG if it is another one.
        quality: of JPEG and WebP, 1 to 100.
        white: the value of white in 16-bit images.
    """

    side: int | None = None
    kind: str | None = None
    quality: int = QUALITY
    white: int = WHITE

    @classmethod
    def of(cls, resize: int | None, encode: str | None) -> "Encoding | None":
        """Return the encoding requested by `--resize` and `--encode`; None to copy bytes.

        >>> Encoding.of(256, "webp:80")
        Encoding(side=256, kind='webp', quality=80, white=65535)
        """
        if resize is None and encode is None:
            return None
        require_between("--resize", resize, 1, unit="pixel")
        match = re.fullmatch(r"(jpeg|png|webp)(?::(\d{1,3}))?", encode or "png")
        quality = int(match[2] or QUALITY) if match else 0
        if match is None or not 1 <= quality <= 100 or (match[2] and match[1] == "png"):
            raise InputError(
                f"--encode: expected jpeg, png, webp, jpeg:QUALITY or webp:QUALITY (1 to 100), got {encode!r}"
            )
        return cls(resize, encode and match[1], quality)

    def __call__(self, data: bytes) -> tuple[bytes, dict[str, Any]]:
        """Return the encoded image and its changed facts; DecodeError if it cannot be decoded."""
        format = sniff(data)
        with opened(data, DecodeOptions()) as image:
            width, height = image.header.width, image.header.height
        short = min(width, height)
        smaller = self.side is not None and short > self.side
        kind = self.kind or (format if format in KINDS else "png")
        if not smaller and kind == format:
            return data, {}
        fits = smaller and max(width, height) <= LONG * short
        pixels = decode_rgb(data, short_side=self.side if fits else None, white=self.white)
        height, width = pixels.shape[:2]
        if self.side is not None and min(width, height) > self.side:
            scale = self.side / min(width, height)
            width, height = max(1, round(width * scale)), max(1, round(height * scale))
            pixels = resize(pixels, width, height, "bicubic")
        out = io.BytesIO()
        extra = {} if kind == "png" else {"quality": self.quality}
        Image.fromarray(pixels).save(out, kind.upper(), **extra)
        return out.getvalue(), {"width": width, "height": height, "format": kind}


@dataclass(frozen=True)
class ExportedImage:
    """The image of a row.

    Attributes:
        index: of the row in its part.
        data: encoded bytes; empty if it is a file already.
        sha256: hex digest; empty for a link.
        n_bytes: its size.
        suffix: file suffix of its format.
        name: of the file, if it is one.
        facts: changed values if it was re-encoded: width, height, format, size, digest.
    """

    index: int
    data: bytes
    sha256: str
    n_bytes: int
    suffix: str
    name: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Lost:
    """A row whose image cannot be read, with the reason."""

    index: int
    why: str


@dataclass
class RowImages:
    """Reads images.

    Attributes:
        images: key -> bytes, instead of the rows' paths.
        located: locations in a source, instead of the rows' paths.
        encoding: how images are re-encoded; None copies their bytes.
        link: how local files become files of the export.
        checked: whether an image that changed since scoring counts as lost.
        pool: threads.
    """

    images: ImageReader | None = None
    located: Located | None = None
    encoding: Encoding | None = None
    link: str = COPY
    checked: bool = False
    workers: int = 1

    def __post_init__(self) -> None:
        self.pool = ThreadPoolExecutor(self.workers, "image")

    def close(self) -> None:
        """Stop the threads."""
        self.pool.shutdown(cancel_futures=True)

    def read(self, rows: Rows) -> Iterator[ExportedImage | Lost]:
        """Yield the image of every row."""
        scored = self._scored(rows)
        sizes = _sizes(rows)
        work = ((index, reader, scored[index]) for index, reader in enumerate(self._readers(rows)))
        return in_order(self.pool, self._read, work, AHEAD * self.workers, lambda job: sizes[job[0]])

    def store(self, rows: Rows, folder: Path, name_of: Callable[[int, str], str]) -> Iterator[ExportedImage | Lost]:
        """Write or link the image of every row as a file.

        Args:
            rows: of a part.
            folder: whose sub-folders exist.
            name_of: index and suffix -> path inside the folder.
        """
        scored = self._scored(rows)
        paths = [None if self.link == COPY else item.path for item in rows.items]
        work = (
            (index, reader, scored[index], paths[index], folder, name_of)
            for index, reader in enumerate(self._readers(rows))
        )
        return in_order(self.pool, self._store, work, AHEAD * self.workers, lambda _: 0)

    def _scored(self, rows: Rows) -> list[str | None]:
        return rows.column(SHA256).to_pylist() if self.checked and rows.has(SHA256) else [None] * len(rows)

    def _readers(self, rows: Rows) -> Iterator[Callable[[], bytes]]:
        if self.located is not None:
            yield from ahead(self.located.readers(rows.keys), self.located.manifest.connections)
        elif self.images is not None:
            yield from (partial(self.images, key) for key in rows.keys)
        else:
            readers = (partial(fail, "missing", NO_FILE) if uri is None else uri_reader(uri) for uri in rows.uris)
            yield from ahead(readers, CONNECTIONS)

    @BODIES.image()
    def _read(self, work: tuple[int, Callable[[], bytes], str | None]) -> ExportedImage | Lost:
        index, reader, scored = work
        try:
            data = reader()
            digest = hashlib.sha256(data).hexdigest()
            if scored is not None and digest != scored:
                raise ReadError(CHANGED, "the image is not the one that was scored")
            facts: dict[str, Any] = {}
            if self.encoding is not None:
                data, facts = self.encoding(data)
                digest = hashlib.sha256(data).hexdigest() if facts else digest
                facts = {**facts, "n_bytes": len(data), SHA256: digest} if facts else {}
        except (ReadError, DecodeError) as error:
            return Lost(index, str(error))
        return ExportedImage(index, data, digest, len(data), suffix_of_bytes(data), facts=facts)

    def _store(self, work: tuple[Any, ...]) -> ExportedImage | Lost:
        index, reader, scored, path, folder, name_of = work
        if path is not None:
            return self._linked(index, path, folder, name_of)
        image = self._read((index, reader, scored))
        if isinstance(image, Lost):
            return image
        name = name_of(index, image.suffix)
        target = folder / name
        with place_errors(folder), fresh(target).open("xb") as file:
            file.write(image.data)
        return ExportedImage(index, b"", image.sha256, image.n_bytes, image.suffix, name, image.facts)

    def _linked(
        self, index: int, path: bytes, folder: Path, name_of: Callable[[int, str], str]
    ) -> ExportedImage | Lost:
        try:
            n_bytes = os.stat(path).st_size
            head = read_local(path, offset=0, size=min(HEAD, n_bytes))
        except (FileNotFoundError, NotADirectoryError):
            return Lost(index, "no such file")
        except (OSError, ValueError, ReadError) as error:
            return Lost(index, str(getattr(error, "strerror", None) or error))
        suffix = suffix_of_bytes(head)
        name = name_of(index, suffix)
        target = fresh(folder / name)
        source = os.path.abspath(path)
        with place_errors(folder):
            if self.link == HARD:
                os.link(source, os.fsencode(target))
            else:
                os.symlink(source, os.fsencode(target))
        return ExportedImage(index, b"", "", n_bytes, suffix, name)


def _sizes(rows: Rows) -> list[int]:
    """Return the size in bytes of each image when it was scored; 0 if not recorded."""
    column = rows.column(N_BYTES) if rows.has(N_BYTES) else None
    if column is None or not pa.types.is_integer(column.type):
        return [0] * len(rows)
    return [max(0, size or 0) for size in column.to_pylist()]


def suffix_of_bytes(data: bytes) -> str:
    """Return the file suffix for the format detected in the bytes."""
    kind = sniff(data) or "jpg"
    return SUFFIXES.get(kind, kind)


def fresh(path: Path) -> Path:
    """Return a free path; removes a killed run's leftovers (of a link, only the link)."""
    with suppress(FileNotFoundError):
        path.unlink()
    return path
