"""Fast JPEG decoding by libjpeg-turbo, reducing by 2, 4 or 8 while decoding."""

from dataclasses import dataclass
from functools import cache

import simplejpeg

from scoring.images.geometry import Raster, dct_scale
from scoring.images.outcome import DecodeError

MOST_SEGMENTS = 4096  # segments before the image
MOST_SCAN_PIXELS = 2_000_000_000  # scans x pixels; an ordinary progressive file has about 10 scans
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
# Quantisation of luminance at quality 50 (ITU-R T.81, annex K, table K.1), in any order: only its sum is compared.
_LUMINANCE = (
    *(16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29),
    *(51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121),
    *(120, 101, 72, 92, 95, 98, 112, 100, 103, 99),
)
_TABLE = 64  # numbers of a quantisation table
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_USUAL = {0xC0, 0xC1, 0xC2}  # Huffman-coded frames, in one or several scans
_FACTORS = {across << 4 | down for across in (1, 2, 4) for down in (1, 2, 4)}  # sampling factors
_ENDING = 256  # bytes at the end that contain the last marker
_SCALED_COLOURS = ("YCbCr", "RGB", "Gray")  # CMYK and YCCK are decoded by Pillow


@dataclass(frozen=True)
class JpegHeader:
    """The header before the first scan.

    Attributes:
        width: in pixels, as stored.
        height: the same.
        is_progressive: several scans refine one image.
        has_metadata: there is EXIF, XMP or a list of further images: read orientation and frames.
        quality: libjpeg's setting, 1 to 100, whose luminance table is nearest to the file's; None without a table.
        is_plain: one frame of 8 bits, 1 or 3 components and common coding, contiguous segments and an end marker, as
            cameras and programs write it.
    """

    width: int
    height: int
    is_progressive: bool
    has_metadata: bool
    quality: int | None = None
    is_plain: bool = False


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Return the header of a JPEG, or None if the segments are invalid.

    Source: ITU-T T.81, annex B.
    """
    at, has_metadata, frame, quality, n_plain = 2, False, None, None, 0
    for _ in range(MOST_SEGMENTS):
        while data[at : at + 2] == b"\xff\xff":  # fill bytes
            at += 1
        if data[at : at + 1] != b"\xff" or at + 4 > len(data):
            return None
        marker = data[at + 1]
        if marker == 0xDA:
            break
        if marker in _ALONE:
            at += 2
            continue
        length = int.from_bytes(data[at + 2 : at + 4], "big")
        if marker in _FRAMES and at + 9 <= len(data):
            size = int.from_bytes(data[at + 5 : at + 7], "big"), int.from_bytes(data[at + 7 : at + 9], "big")
            frame = (size[1], size[0], marker in _PROGRESSIVE)
            n_plain += 1 if _is_common_frame(marker, data[at + 4 : at + 2 + length]) else MOST_SEGMENTS
        if marker == 0xDB and quality is None:
            quality = quality_setting(data[at + 4 : at + 2 + length])
        has_metadata |= marker == 0xE1 or (marker == 0xE2 and data[at + 4 : at + 8] == b"MPF\x00")
        at += 2 + length
    if frame is None:
        return None
    is_plain = n_plain == 1 and data.find(b"\xff\xd9", max(at, len(data) - _ENDING)) > 0
    return JpegHeader(*frame, has_metadata, quality, is_plain)


def _is_common_frame(marker: int, frame: bytes) -> bool:
    """Return whether a frame segment has 8 bits, 1 or 3 components and a common subsampling."""
    n = len(frame) // 3 - 2
    return (
        marker in _USUAL
        and n in (1, 3)
        and len(frame) == 6 + 3 * n
        and frame[0] == 8
        and frame[5] == n
        and all(factors in _FACTORS for factors in frame[7::3])
    )


def quality_setting(segment: bytes) -> int | None:
    """Return libjpeg's quality, 1 to 100, whose luminance table is equal to a DQT segment's, or has the nearest sum.

    ``segment`` is the payload; None if it has no luminance table (number 0).
    """
    at = 0
    while at < len(segment):
        size, number = 1 + (segment[at] >> 4), segment[at] & 15
        table = segment[at + 1 : at + 1 + _TABLE * size]
        if len(table) < _TABLE * size:
            return None
        if number == 0:
            total = sum(table) if size == 1 else 256 * sum(table[::2]) + sum(table[1::2])
            return min(range(1, 101), key=lambda quality: abs(_luminance_sums()[quality] - total))
        at += 1 + _TABLE * size
    return None


@cache
def _luminance_sums() -> list[int]:
    """Return the sum of libjpeg's luminance table at each quality; index 0 is unused.

    Source: libjpeg's jcparam.c, `jpeg_quality_scaling` and `jpeg_add_quant_table` with 8-bit tables forced.
    """
    scales = [0, *(5000 // quality if quality < 50 else 200 - 2 * quality for quality in range(1, 101))]
    return [sum(min(255, max(1, (value * scale + 50) // 100)) for value in _LUMINANCE) for scale in scales]


def check_scans(data: bytes, width: int, height: int) -> None:
    """Raise DecodeError (``too_large``) for a progressive JPEG that takes minutes: scans x pixels above 2e9."""
    n_scans = data.count(b"\xff\xda")
    most = MOST_SCAN_PIXELS // (width * height)
    if n_scans > most:
        raise DecodeError("too_large", f"{n_scans} scans of {width} x {height} pixels; expected at most {most}")


def decode_strictly(data: bytes, short_side: int | None, max_pixels: int) -> Raster:
    """Decode with libjpeg-turbo; any error or warning is refused.

    Args:
        data: a JPEG.
        short_side: the target; the image is shrunk as far as ``dct_scale`` allows. None decodes at full size.
        max_pixels: bound on width x height in libjpeg-turbo's own reading of the header.

    Returns:
        the image as stored, orientation 1.

    Raises:
        ValueError: libjpeg-turbo reports an error or warning, or does not support the colours; Pillow may still decode
            it.
        MemoryError: the header requests too much memory.
        DecodeError: more than ``max_pixels`` (``too_large``).
    """
    height, width, colours, _ = simplejpeg.decode_jpeg_header(data)
    if width * height > max_pixels:
        raise DecodeError("too_large", f"{width} x {height} pixels; expected at most {max_pixels}")
    if colours not in _SCALED_COLOURS:
        raise ValueError(f"colours are {colours}")
    scale = 1 if short_side is None else dct_scale(width, height, short_side)
    shape = (-(-height // scale), -(-width // scale), 3)
    pixels = simplejpeg.decode_jpeg(data, "RGB", min_height=shape[0], min_width=shape[1])
    if pixels.shape != shape:
        raise ValueError(f"expected {shape}, decoded {pixels.shape}")
    return Raster(pixels, width, height)


def check_strictly(data: bytes) -> tuple[str, str]:
    """Raise as ``decode_strictly`` if a JPEG has errors, without computing its full pixels.

    It is decoded as grey at an eighth of its size: every code is read, but only the mean of each 8 x 8 block is
    computed.

    Returns:
        its colours (``YCbCr``, ``Gray`` ...) and their subsampling (``420`` ...), by libjpeg-turbo's names.

    Raises:
        ValueError: libjpeg-turbo reports an error or warning, or does not support the colours.
        MemoryError: the header requests too much memory.
    """
    height, width, colours, subsampling = simplejpeg.decode_jpeg_header(data)
    if colours not in _SCALED_COLOURS:
        raise ValueError(f"colours are {colours}")
    least = {"min_height": -(-height // 8), "min_width": -(-width // 8)}
    simplejpeg.decode_jpeg(data, "GRAY", fastdct=True, fastupsample=True, **least)
    return colours, subsampling
