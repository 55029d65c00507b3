"""From bytes to a header and a raster, in the calling process: the step that runs C libraries.

Nothing here imports torch, so a decoder process (``child.py``) starts in a tenth of a second.
"""

import re
import struct
import zlib
from dataclasses import dataclass, replace
from importlib.util import find_spec

from scoring.images.deep import LEAST_WHITE, WHITE
from scoring.images.geometry import Raster, dct_scale
from scoring.images.jpeg import JpegHeader, check_scans, decode_strictly, read_jpeg_header
from scoring.images.outcome import DecodeError
from scoring.images.pillow import PillowFile, check_size
from scoring.images.sniff import DECODED, sniff

_OF_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"}  # chunks of a PNG
_SIGNATURE = 8  # bytes before the first chunk of a PNG
_EXIF_ITEM = re.compile(rb"(infe.{8})Exif", re.DOTALL)  # the entry of an AVIF that names its EXIF
_UNKNOWN_ITEM = rb"\1free"
DEFAULT_MAX_PIXELS = 100_000_000
DEFAULT_SECONDS = 20.0


def without_metadata(data: bytes, name: str) -> bytes:
    """Return an image with only its pixels and orientation; unchanged for unknown formats.

    Args:
        data: the encoded image.
        name: its format; metadata is removed from ``png`` and ``avif``.

    Source: PNG specification, third edition, section 5.3; ISO/IEC 23008-12, section 6 (item information).
    """
    if name == "png":
        return _png_of_pixels(data)
    return _EXIF_ITEM.sub(_UNKNOWN_ITEM, data, count=1) if name == "avif" else data


def _png_of_pixels(data: bytes) -> bytes:
    parts, at = [data[:_SIGNATURE]], _SIGNATURE
    while at + 12 <= len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if kind in _OF_PIXELS or (kind == b"eXIf" and _is_sound(data[at:end])):
            parts.append(data[at:end])
        at = end
    return b"".join(parts)


def _is_sound(chunk: bytes) -> bool:
    return zlib.crc32(chunk[4:-4]) == int.from_bytes(chunk[-4:], "big")


@dataclass(frozen=True)
class DecodeOptions:
    """Bounds on one image, and how it is read.

    Attributes:
        max_pixels: images with more pixels (width x height, from the header) are ``too_large``; at least 1.
        seconds: limit on the CPU time of a decoder process, above 0; exceeding it is a ``timeout``.
        allow_truncated: a JPEG, PNG, GIF or BMP that ends early is ``ok`` with a warning; missing pixels are empty.
        white: the white level of images with 16 bits per channel, 255 to 65535.

    Raises:
        ValueError: a value is out of its range.
    """

    max_pixels: int = DEFAULT_MAX_PIXELS
    seconds: float = DEFAULT_SECONDS
    allow_truncated: bool = False
    white: int = WHITE

    def __post_init__(self) -> None:
        if self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, got {self.max_pixels}")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"seconds must be above 0, got {self.seconds}")
        if not LEAST_WHITE <= self.white <= WHITE:
            raise ValueError(f"white must be {LEAST_WHITE} to {WHITE}, got {self.white}")


@dataclass(frozen=True)
class Header:
    """Everything known before pixels are decoded; width and height as stored; the warning is about damaged metadata."""

    format: str
    width: int
    height: int
    orientation: int
    n_frames: int | None
    jpeg_quality: int | None = None
    warning: str | None = None

    @property
    def n_pixels(self) -> int:
        """Number of decoded pixels."""
        return self.width * self.height


def format_of(data: bytes) -> str:
    """Return the format announced by the bytes; DecodeError if it cannot be decoded or its reader is missing."""
    if not data:
        raise DecodeError("empty", "expected an image, got zero bytes")
    name = sniff(data)
    if name is None:
        raise DecodeError("not_an_image", f"expected an image, got bytes that begin {data[:8]!r}")
    if name not in DECODED:
        raise DecodeError("unsupported", f"expected {', '.join(DECODED)}, got {name}; convert it first")
    if name == "heif" and find_spec("pillow_heif") is None:
        raise DecodeError("unsupported", "HEIC needs an extra package; run: pip install 'kappa-curate[heif]'")
    return name


class LocalImage:
    """An image whose header was read in this process.

    Args:
        data: the encoded image.
        name: from ``format_of``.
        options: limits, and how it is read.
        jpeg: the header, if it was read already.

    Attributes:
        header: everything known before pixels are decoded.

    Raises:
        DecodeError: the header cannot be read, or announces too large an image.
    """

    def __init__(self, data: bytes, name: str, options: DecodeOptions, jpeg: JpegHeader | None = None) -> None:
        self.data, self.options = data, options
        self._picture: PillowFile | None = None  # None while libjpeg-turbo is used
        self.header = self._read_header(name, jpeg)

    def strict_raster(self, short_side: int | None) -> Raster:
        """Decode a JPEG by libjpeg-turbo; raises as ``decode_strictly``."""
        raster = decode_strictly(self.data, short_side, self.options.max_pixels)
        return replace(raster, orientation=self.header.orientation)

    def raster(self, short_side: int | None) -> tuple[Raster, str | None]:
        """Decode by libjpeg-turbo if possible, else by Pillow; return the image and a warning or None.

        A JPEG may be reduced to at least ``short_side``; None keeps the full size. Raises DecodeError.
        """
        header, reason = self.header, None
        if header.format == "jpeg":
            try:
                return self.strict_raster(short_side), None
            except (ValueError, MemoryError) as error:
                reason = str(error)
        picture = self._picture or self._open(header.format)[0]
        if header.format == "jpeg" and short_side is not None:
            scale = dct_scale(header.width, header.height, short_side)
            picture.draft((header.width // scale, header.height // scale))
        allow_truncated, white = self.options.allow_truncated, self.options.white
        read = picture.read_shown(n_frames=header.n_frames, allow_truncated=allow_truncated, white=white)
        warning, orientation = read.warning or header.warning, header.orientation
        if reason is not None and not reason.startswith("colours are"):
            warning = warning or f"Pillow decoded it, but libjpeg-turbo says: {reason}"
        if header.format == "png":
            orientation, damage = picture.orientation()
            warning = warning or damage
        return Raster(read.pixels, header.width, header.height, orientation, read.highest), warning

    def _read_header(self, name: str, jpeg: JpegHeader | None) -> Header:
        data, max_pixels = self.data, self.options.max_pixels
        setting = None
        if name == "jpeg":
            jpeg = jpeg or read_jpeg_header(data)
            setting = jpeg.quality if jpeg else None
            if jpeg is not None:
                check_size(jpeg.width, jpeg.height, max_pixels)
                if jpeg.is_progressive:
                    check_scans(data, jpeg.width, jpeg.height)
                if not jpeg.has_metadata:
                    return Header(name, jpeg.width, jpeg.height, 1, 1, jpeg.quality)
        self._picture, damage = self._open(name)
        picture = self._picture
        width, height = picture.image.size
        if name == "jpeg":
            check_scans(data, width, height)
        orientation, in_exif = picture.orientation()
        return Header(name, width, height, orientation, picture.count_frames(), setting, damage or in_exif)

    def _open(self, name: str) -> tuple[PillowFile, str | None]:
        """Open the file; if its metadata is damaged, open it without and return a warning."""
        try:
            return PillowFile(self.data, name, self.options.max_pixels), None
        except DecodeError as failure:
            rest = without_metadata(self.data, name)
            if failure.status not in ("corrupt", "truncated") or rest == self.data:
                raise
            try:
                return PillowFile(rest, name, self.options.max_pixels), f"damaged metadata is ignored: {failure}"
            except DecodeError:
                raise failure from None
