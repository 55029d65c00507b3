"""Structure checks of files, by lengths and first bytes, before any decoder runs.

A file that passes may be broken inside still; one that does not is decoded in its own process (``supervised.py``).
"""

import struct
import zlib

from scoring.images.sniff import webp_canvas

MOST_CHUNKS = 20_000  # of a PNG; libpng writes one for every 8 KB
_SMALL_CHUNK = 4096  # bytes; of these the checksum is compared here, of others the decoder does it
_PNG_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}  # colour type -> bits
_WEBP_PARTS = {b"VP8 ", b"VP8L", b"VP8X", b"ALPH", b"ICCP", b"EXIF", b"XMP "}  # of an image that does not move
_MOVING = 0x02  # flag of a WebP's VP8X


def is_plain(data: bytes, name: str) -> bool:
    """Return whether this is a still PNG or WebP of intact structure; JPEGs are judged by their header.

    Args:
        data: the encoded image.
        name: its format, by ``sniff``.

    >>> is_plain(b"GIF89a", "gif")
    False
    """
    return (name == "png" and _is_plain_png(data)) or (name == "webp" and _is_plain_webp(data))


def _is_plain_png(data: bytes) -> bool:
    """Walk the chunks: IHDR first, IEND last, every length within the file.

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
    """Walk the chunks of a still WebP; source: RFC 9649, sections 2.4 to 2.7."""
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
