"""Removal of metadata from a file, so that damage there does not lose an intact image."""

import re
import struct
import zlib

_OF_PIXELS = {b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"IEND", b"acTL", b"fcTL", b"fdAT"}  # chunks of a PNG
_SIGNATURE = 8  # bytes before the first chunk of a PNG
_EXIF_ITEM = re.compile(rb"(infe.{8})Exif", re.DOTALL)  # the entry of an AVIF that names its EXIF
_UNKNOWN_ITEM = rb"\1free"


def without_metadata(data: bytes, name: str) -> bytes:
    """Return an image with only its pixels and orientation; unchanged for unknown formats.

    Args:
        data: the encoded image.
        name: its format: of ``png`` and ``avif`` something can be taken out.

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
