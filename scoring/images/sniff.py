"""The format of an image from its first bytes, not from the file name."""

import re
import struct

DECODED = ("jpeg", "png", "webp", "gif", "tiff", "bmp", "avif", "heif", "pnm", "ico")
HEAD = 32  # bytes, from which each of these can be found

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "jpeg"),
    (b"\x89PNG\r\n\x1a\n", "png"),
    (b"GIF87a", "gif"),
    (b"GIF89a", "gif"),
    (b"II*\x00", "tiff"),
    (b"MM\x00*", "tiff"),
    (b"II+\x00", "tiff"),
    (b"MM\x00+", "tiff"),
    (b"II\x00*", "tiff"),
    (b"MM*\x00", "tiff"),
    # refused: they start programs, carry other files, or are no training images
    (b"%!PS", "eps"),
    (b"\xc5\xd0\xd3\xc6", "eps"),
    (b"%PDF", "pdf"),
    (b"8BPS", "psd"),
    (b"\x00\x00\x00\x0cjP  ", "jpeg2000"),
    (b"\xff\x4f\xff\x51", "jpeg2000"),
    (b"\x00\x00\x00\x0cJXL ", "jpegxl"),
    (b"\xff\x0a", "jpegxl"),
    (b"DDS ", "dds"),
    (b"qoif", "qoi"),
    (b"SIMPLE  =", "fits"),
    (b"v/1\x01", "exr"),
    (b"#?RADIANCE", "hdr"),
    (b"\x01\xda", "sgi"),
    (b"BLP1", "blp"),
    (b"BLP2", "blp"),
    (b"FTEX", "ftex"),
    (b"icns", "icns"),
    (b"\xd7\xcd\xc6\x9a\x00\x00", "wmf"),
    (b"<svg", "svg"),
)
_NETPBM = re.compile(rb"P(?:([1-6])\s+(?:\d+\s+[\d#]|#)|(7)\s|([Ff])\s)")  # two numbers or a comment, so no prose
_ICON, _ENTRY = b"\x00\x00\x01\x00", 16  # beginning of an icon; bytes of an entry of its directory
_BMP_HEADERS = (12, 16, 40, 52, 56, 64, 108, 124)
_AVIF_BRANDS = {b"avif", b"avis"}
_HEIF_BRANDS = {b"heic", b"heix", b"hevc", b"hevx", b"heim", b"heis", b"hevm", b"hevs", b"mif1", b"msf1"}


def sniff(data: bytes) -> str | None:
    """Return one of ``DECODED``, the name of a known format that is refused, or None if nothing is recognised.

    >>> sniff(b"GIF89a..."), sniff(b"%PDF-1.7"), sniff(b"hello")
    ('gif', 'pdf', None)
    """
    for magic, name in _MAGIC:
        if data.startswith(magic):
            return name
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "webp"
    if data[:2] == b"BM" and len(data) >= 18:
        return "bmp" if int.from_bytes(data[14:18], "little") in _BMP_HEADERS else None
    if data[:4] == _ICON:
        return _icon(data)
    if netpbm := _NETPBM.match(data[:HEAD]):
        return "pnm" if netpbm[1] else "pam" if netpbm[2] else "pfm"
    if data[4:8] == b"ftyp":
        return _iso_brand(data)
    head = data[:512].lstrip().lower()
    if head.startswith((b"<?xml", b"<svg", b"<!--")) and b"<svg" in head:
        return "svg"
    return None


def webp_canvas(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) of a WebP header, before a decoder allocates the canvas; None if unreadable.

    Source: RFC 9649, sections 2.5, 2.6 and 2.7.
    """
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L" and len(data) >= 25:
        packed = int.from_bytes(data[21:25], "little")
        return 1 + (packed & 0x3FFF), 1 + (packed >> 14 & 0x3FFF)
    if kind == b"VP8 " and len(data) >= 30:
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None


def ends_early(data: bytes, name: str) -> bool:
    """Return whether a container's header declares more bytes than present (WebP, AVIF and HEIF)."""
    if name == "webp":
        return len(data) < 12 or int.from_bytes(data[4:8], "little") + 8 > len(data)
    if name not in ("avif", "heif"):
        return False
    at = 0
    for _ in range(1000):
        if at >= len(data):
            return at > len(data)
        size, header = int.from_bytes(data[at : at + 4], "big"), 8
        if size == 1:
            size, header = int.from_bytes(data[at + 8 : at + 16], "big"), 16
        if size == 0:  # reaches to the end of the file, however long that is
            return False
        if size < header:
            return False
        at += size
    return False


def _icon(data: bytes) -> str | None:
    """Return "ico" unless the directory is empty, or its first entry points into the directory."""
    n_entries, starts = int.from_bytes(data[4:6], "little"), int.from_bytes(data[18:22], "little")
    is_icon = n_entries > 0 and (len(data) < 6 + _ENTRY or starts >= 6 + _ENTRY * n_entries)
    return "ico" if is_icon else None


def _iso_brand(data: bytes) -> str | None:
    size = min(int.from_bytes(data[:4], "big"), 256, len(data))
    brands = {data[8:12]} | {data[at : at + 4] for at in range(16, size - 3, 4)}
    if brands & _AVIF_BRANDS:
        return "avif"
    return "heif" if brands & _HEIF_BRANDS else None
