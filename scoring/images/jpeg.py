"""The fast road for JPEG: libjpeg-turbo, shrinking by 2, 4 or 8 while it decodes."""

from dataclasses import dataclass

import simplejpeg

from scoring.images.geometry import Raster, dct_scale
from scoring.images.outcome import DecodeError

MOST_SEGMENTS = 4096  # before the picture begins
MOST_SCAN_PIXELS = 2_000_000_000  # scans x pixels; an ordinary progressive file has about 10 scans
_PROGRESSIVE = {0xC2, 0xC6, 0xCA, 0xCE}
_FRAMES = set(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_ALONE = {0x01, *range(0xD0, 0xD9)}  # markers without a length
_SCALED_COLOURS = ("YCbCr", "RGB", "Gray")  # the rest, CMYK and YCCK, is Pillow's


@dataclass(frozen=True)
class JpegHeader:
    """What stands before the first scan.

    Attributes:
        width: in pixels, as stored.
        height: likewise.
        is_progressive: several scans refine one picture.
        has_metadata: there is EXIF, XMP or a list of further pictures, so orientation and frames need reading.
    """

    width: int
    height: int
    is_progressive: bool
    has_metadata: bool


def read_jpeg_header(data: bytes) -> JpegHeader | None:
    """Return the header of a JPEG, or None where the segments make no sense.

    Source: ITU-T T.81, annex B.
    """
    at, has_metadata, frame = 2, False, None
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
        has_metadata |= marker == 0xE1 or (marker == 0xE2 and data[at + 4 : at + 8] == b"MPF\x00")
        at += 2 + length
    if frame is None:
        return None
    return JpegHeader(*frame, has_metadata)


def check_scans(data: bytes, width: int, height: int) -> None:
    """Refuse a JPEG whose scans, each a pass over the whole picture, would take minutes.

    Raises:
        DecodeError: scans x pixels is above 2e9 (``too_large``).
    """
    n_scans = data.count(b"\xff\xda")
    most = MOST_SCAN_PIXELS // (width * height)
    if n_scans > most:
        raise DecodeError("too_large", f"{n_scans} scans of {width} x {height} pixels; expected at most {most}")


def decode_strictly(data: bytes, short_side: int | None, max_pixels: int) -> Raster:
    """Decode with libjpeg-turbo, which must find nothing wrong.

    Args:
        data: a JPEG.
        short_side: the target; the picture is shrunk as far as ``dct_scale`` allows. None decodes at full size.
        max_pixels: bound on width x height in libjpeg-turbo's own reading of the header.

    Returns:
        the picture as stored, orientation 1.

    Raises:
        ValueError: libjpeg-turbo reports anything, or the colours are not its business; Pillow may still accept it.
        MemoryError: likewise, from a header that asks for too much.
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
