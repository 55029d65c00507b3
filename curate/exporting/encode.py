"""Resizing and re-encoding of exported images."""

import io
import re
from dataclasses import dataclass
from typing import Any

from PIL import Image

from scoring.errors import InputError
from scoring.images.decoding import decode_rgb, opened
from scoring.images.deep import WHITE
from scoring.images.geometry import resize
from scoring.images.raster import DecodeOptions
from scoring.images.sniff import sniff
from scoring.settings import require_between

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
        require_between("--resize", resize, 1, hint="it is a number of pixels")
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
        width, height = _size(data)
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


def _size(data: bytes) -> tuple[int, int]:
    """Return the stored width and height, reading only the header."""
    with opened(data, DecodeOptions()) as image:
        return image.header.width, image.header.height
