"""From bytes to pixels: the decoder of each format, and one outcome for any bytes.

Files of plain structure, by a quick check, are decoded in this process, all others in a separate one
(``supervised.py``).
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

import numpy as np

from scoring.images.budget import BUDGET
from scoring.images.deep import WHITE
from scoring.images.geometry import (
    Pixels,
    Raster,
    centre_crop,
    cut_middle,
    displayed_size,
    orient,
    resize,
    resized_size,
)
from scoring.images.jpeg import read_jpeg_header
from scoring.images.outcome import DecodedImage, DecodeError, single_line
from scoring.images.pillow import MAX_SIDE
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import SIDE as QUALITY_SIDE
from scoring.images.quality import Quality, measure
from scoring.images.raster import DEFAULT_MAX_PIXELS, DecodeOptions, Header, LocalImage, format_of
from scoring.images.signature import SIDE, chroma, perceptual_hash, signature
from scoring.images.sniff import sniff, webp_canvas
from scoring.images.supervised import ChildImage, opened_in_child
from scoring.images.thumbnail import SIDE as THUMBNAIL_SIDE
from scoring.images.thumbnail import thumbnail

MOST_CHUNKS = 20_000  # of a PNG; libpng writes one for every 8 KB
_SMALL_CHUNK = 4096  # bytes; of these the checksum is compared here, of others the decoder does it
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # colour type -> bits
_WEBP_PARTS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ICCP", b"EXIF", b"XMP "}  # chunks of a still image
_MOVING = 0x02  # flag of a WebP's VP8X
__all__ = ["DEFAULT_MAX_PIXELS", "KIND", "MAX_SIDE", "decode", "decode_rgb", "decode_small"]
KIND = "background and image by contrast"  # version of the rules that determine pixels


def is_plain(data: bytes, name: str) -> bool:
    """Return whether this is a still PNG or WebP of intact structure; False for JPEGs, which have another check.

    Args:
        data: the encoded image.
        name: its format, by ``sniff``.

    >>> is_plain(b"GIF89a", "gif")
    False
    """
    return (name == "png" and _is_plain_png(data)) or (name == "webp" and _is_plain_webp(data))


def _is_plain_png(data: bytes) -> bool:
    """Return whether a PNG's chunks begin with IHDR, end with IEND, and have lengths within the file.

    Source: PNG specification, third edition, sections 5 and 11.2.
    """
    if len(data) < 33 or data[8:16] != b"\0\0\0\x0dIHDR":
        return False
    depth, colour, compression, filtering, interlaced = data[24:29]
    if depth not in _PNG_DEPTHS.get(colour, ()) or compression or filtering or interlaced > 1:
        return False
    at, has_pixels = 8, False
    for _ in range(MOST_CHUNKS):
        if at + 12 > len(data):
            return False
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 12 + length
        if end > len(data) or kind == b"acTL":  # an animation
            return False
        if length <= _SMALL_CHUNK and zlib.crc32(data[at + 4 : end - 4]) != struct.unpack_from(">I", data, end - 4)[0]:
            return False
        has_pixels |= kind == b"IDAT"
        if kind == b"IEND":
            return has_pixels
        at = end
    return False


def _is_plain_webp(data: bytes) -> bool:
    """Return whether the file is a still WebP with valid chunks; source: RFC 9649, sections 2.4 to 2.7."""
    if len(data) < 30 or int.from_bytes(data[4:8], "little") + 8 != len(data) or webp_canvas(data) is None:
        return False
    if data[12:16] == b"VP8X" and data[20] & _MOVING:
        return False
    at, n_pictures = 12, 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from("<4sI", data, at)
        at += 8 + length + (length & 1)
        if kind not in _WEBP_PARTS:
            return False
        n_pictures += kind in (b"VP8 ", b"VP8L")
    return n_pictures == 1 and at == len(data)


class _OpenedPlain(LocalImage):
    """An image of plain structure, decoded in this process unless libjpeg-turbo finds an error."""

    def raster(self, short_side: int | None) -> tuple[Raster, str | None]:
        """Decode the image; return it and a warning or None."""
        if self.header.format != "jpeg":
            return super().raster(short_side)
        with suppress(ValueError, MemoryError):  # the decoder below reports the same error
            return self.strict_raster(short_side), None
        with opened_in_child(self.data, self.header.format, self.options) as image:
            return image.raster(short_side)


@contextmanager
def opened(data: bytes, options: DecodeOptions, *, supervised: bool = False) -> Iterator[LocalImage | ChildImage]:
    """Read the header of an image; its pixels can be read inside the block.

    Args:
        data: the encoded image.
        options: limits, and how it is read.
        supervised: always read it in a separate process.

    Raises:
        DecodeError: also from the block, where running out of memory is ``too_large``.
    """
    name = format_of(data)
    try:
        jpeg = read_jpeg_header(data) if name == "jpeg" else None
        if not supervised and (jpeg.is_plain if jpeg else is_plain(data, name)):
            yield _OpenedPlain(data, name, options, jpeg)
        else:
            with opened_in_child(data, name, options) as image:
                yield image
    except MemoryError:
        raise DecodeError("too_large", "it does not fit in memory") from None


def decode(
    data: bytes,
    preprocessing: Preprocessing,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    *,
    sha256: str | None = None,
    with_quality: bool = False,
    supervised: bool = False,
) -> DecodedImage:
    """Decode, orient, resize and crop one image; any bytes give an outcome instead of an exception.

    May be called from many threads at once. Images over 4 megapixels share a budget of 100 megapixels in flight.
    All but JPEG, PNG and WebP of plain structure are read in a separate process, so that a crash, a hang or memory
    growth does no harm.

    Args:
        data: the encoded image.
        preprocessing: size, resize and interpolation; mean and std are applied on the device.
        options: limits, and how it is read.
        sha256: of the bytes, if already known.
        with_quality: measure ``quality`` too.
        supervised: always read it in a separate process; the outcome is the same.

    Returns:
        the outcome; ``pixels`` has shape (size, size, 3).
    """
    name = sniff(data)
    digest = sha256 or hashlib.sha256(data).hexdigest()
    header: Header | None = None
    try:
        with opened(data, options, supervised=supervised) as image, BUDGET.hold((header := image.header).n_pixels):
            raster, warning = image.raster(preprocessing.resize)
            header = replace(header, orientation=raster.orientation)
            picture = _resized(raster, preprocessing.resize, preprocessing.interpolation)
            small, larger = (_small_image(raster, side) for side in (SIDE, THUMBNAIL_SIDE))
            measures = _measures(raster, picture, small, preprocessing, header) if with_quality else None
        pixels = np.ascontiguousarray(centre_crop(orient(picture, raster.orientation), preprocessing.size))
    except DecodeError as failure:
        return outcome_of(data, name, header, digest, failure=failure)
    if raster.highest is not None and raster.highest > options.white:
        seen = f"values up to {raster.highest:,} are above the white of {options.white:,}, and shown as white"
        warning = warning or seen
    decoded = outcome_of(data, name, header, digest, pixels=pixels, small=small, larger=larger)
    error = single_line(warning) if warning else None
    return replace(decoded, quality=measures, error=error, highest=raster.highest)


def decode_rgb(
    data: bytes,
    *,
    short_side: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_truncated: bool = False,
    white: int = WHITE,
) -> Pixels:
    """Return the whole image as 8-bit RGB, oriented, at full size or with its short side resized.

    It is decoded as by ``decode``, for callers that crop differently.

    Args:
        data: the encoded image.
        short_side: in pixels, at least 1; None keeps the full size. With it, only the middle of an image more than 8
            times as long as wide is returned.
        max_pixels: as in ``DecodeOptions``.
        allow_truncated: accept an image that ends early.
        white: the 16-bit value of white.

    Returns:
        uint8, shape (H, W, 3), contiguous.

    Raises:
        DecodeError: the image cannot be decoded; ``status`` is the kind of failure.
        ValueError: ``short_side`` or ``max_pixels`` is below 1, or ``white`` out of its range.
    """
    options = DecodeOptions(max_pixels, allow_truncated=allow_truncated, white=white)
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    with opened(data, options) as image, BUDGET.hold(image.header.n_pixels):
        raster, _ = image.raster(short_side)
        picture = raster.pixels if short_side is None else _resized(raster, short_side, "bicubic")
        return np.ascontiguousarray(orient(picture, raster.orientation))


def decode_small(data: bytes, short_side: int, options: DecodeOptions) -> Pixels:
    """Return the whole image as 8-bit RGB, oriented, reduced to a short side; a smaller image is unchanged.

    Only the middle of an image more than 8 times as long as wide is returned.

    Args:
        data: the encoded image.
        short_side: in pixels, at least 1.
        options: as in ``decode``.

    Raises:
        DecodeError: as ``decode_rgb``.
        ValueError: ``short_side`` is below 1.
    """
    if short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    with opened(data, options) as image, BUDGET.hold(image.header.n_pixels):
        raster, _ = image.raster(short_side)
        least = min(short_side, raster.width, raster.height)
        return np.ascontiguousarray(orient(_resized(raster, least, "bicubic"), raster.orientation))


def model_square(raster: Raster, preprocessing: Preprocessing) -> Pixels:
    """Return the model's input square of a decoded image, uint8, shape (size, size, 3); a view."""
    resized = _resized(raster, preprocessing.resize, preprocessing.interpolation)
    return centre_crop(orient(resized, raster.orientation), preprocessing.size)


def _resized(raster: Raster, short_side: int, interpolation: str) -> Pixels:
    middle = cut_middle(raster)
    width, height = resized_size(middle.width, middle.height, short_side)
    return resize(middle.pixels, width, height, interpolation)


def _small_image(raster: Raster, side: int) -> Pixels:
    return orient(resize(raster.pixels, side, side, "bilinear"), raster.orientation)


def _measures(raster: Raster, resized: Pixels, small: Pixels, preprocessing: Preprocessing, header: Header) -> Quality:
    """Measure the quality of an image; reuse the model's resized image if it has the size for measuring."""
    is_reduced = (preprocessing.resize, preprocessing.interpolation) == (QUALITY_SIDE, "bicubic") and min(
        raster.width, raster.height
    ) >= QUALITY_SIDE
    return measure(raster, small, reduced=resized if is_reduced else None, jpeg=header.jpeg_quality)


def outcome_of(
    data: bytes,
    name: str | None,
    header: Header | None,
    sha256: str,
    *,
    failure: DecodeError | None = None,
    pixels: Pixels | None = None,
    small: Pixels | None = None,
    larger: Pixels | None = None,
) -> DecodedImage:
    """Return the record of an image, with the hash, signature and thumbnail of its reductions.

    Args:
        data: the encoded image.
        name: its format, by ``sniff``.
        header: its header, or None if unreadable.
        sha256: of the bytes.
        failure: why decoding failed.
        pixels: for the model, shape (size, size, 3).
        small: the whole image, oriented, shape (32, 32, 3).
        larger: the same, shape (64, 64, 3).
    """
    width, height = (failure.width, failure.height) if failure else (None, None)
    if header is not None:
        width, height = displayed_size(header.width, header.height, header.orientation)
    if max(width or 0, height or 0) >= 2**31:  # impossible size: the header is wrong
        width = height = None
    return DecodedImage(
        pixels=pixels,
        width=width,
        height=height,
        n_bytes=len(data),
        format=name,
        sha256=sha256,
        phash=None if small is None else perceptual_hash(small),
        signature=None if small is None else np.concatenate([signature(small), chroma(small)]),
        quality=None,
        n_frames=header.n_frames if header else None,
        status=failure.status if failure else "ok",
        error=str(failure) if failure else None,
        thumbnail=None if larger is None else thumbnail(larger),
    )
