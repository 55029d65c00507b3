"""The outcome of one image: its pixels, or the kind of failure."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.errors import InputError
from scoring.images.quality import Quality

STATUSES: dict[str, str] = {
    "ok": "decoded; `error` may hold a warning",
    "missing": "there is no such file, member or URL",
    "io_error": "the bytes could not be read",
    "denied": "the store or server denies access",
    "refused": "the URL is of a scheme not opened here, or leads into a private network or from afar to a local file",
    "empty": "zero bytes",
    "not_an_image": "the bytes do not begin like any image format known here",
    "unsupported": "an image, of a format or kind that is not decoded here",
    "truncated": "the bytes end before the image does",
    "corrupt": "the bytes contradict themselves",
    "too_large": "more pixels, scans or memory than is allowed",
    "timeout": "decoding it took longer than is allowed",
    "crashed": "the decoder crashed on it, twice",
}

_LONGEST_MESSAGE = 200


class DecodeError(InputError):
    """An image cannot be decoded.

    Attributes:
        status: a key of ``STATUSES``, never ``ok``.
        width: in pixels as displayed; None if the header is unreadable.
        height: the same.
        n_frames: images in the file; None if not counted.
    """

    def __init__(self, status: str, message: str) -> None:
        if status not in STATUSES or status == "ok":
            raise ValueError(f"status must be a failure in STATUSES, got {status!r}")
        super().__init__(single_line(message))
        self.status = status
        self.width: int | None = None
        self.height: int | None = None
        self.n_frames: int | None = None


@dataclass(frozen=True)
class DecodedImage:
    """One image after decoding: an outcome, never an exception.

    Attributes:
        pixels: uint8 RGB, shape (size, size, 3), contiguous and writable; None unless ``status`` is ``ok``.
        width: in pixels as displayed (EXIF orientation applied); None if the header is unreadable.
        height: the same.
        n_bytes: length of the encoded bytes.
        format: detected from the bytes: jpeg png webp gif tiff bmp avif heif pnm ico, or the name of a refused format;
            or None.
        sha256: hex digest of the encoded bytes.
        phash: 64-bit perceptual hash of the whole image, unsigned; None unless ``status`` is ``ok``.
        signature: of the whole image, int8, shape (287,): 255 numbers for grey, zeros for a flat image, and 32 for
            colour; see ``signature.py``. None unless ``status`` is ``ok``.
        thumbnail: of the whole image, uint8, shape (4096,), see ``thumbnail.py``; None unless ``status`` is ``ok``.
        quality: measures of the whole image; None unless ``status`` is ``ok`` and they were requested.
        n_frames: images in the file, of which one is decoded; None if not counted.
        status: a key of ``STATUSES``.
        error: the reason of a failure; a warning or None if ``status`` is ``ok``.
        highest: largest value of an image with 16 bits per channel, or an upper bound; else None.
    """

    pixels: NDArray[np.uint8] | None
    width: int | None
    height: int | None
    n_bytes: int
    format: str | None
    sha256: str
    phash: int | None
    signature: NDArray[np.int8] | None
    quality: Quality | None
    n_frames: int | None
    status: str
    error: str | None
    highest: int | None = None
    thumbnail: NDArray[np.uint8] | None = None


def single_line(message: Any) -> str:
    """Return the text on one line, printable, and at most 200 characters long.

    >>> single_line("broken  file" + chr(27) + "[31m")
    'broken file?[31m'
    """
    text = " ".join(str(message).split())
    text = "".join(letter if letter.isprintable() else "?" for letter in text)
    return text if len(text) <= _LONGEST_MESSAGE else text[: _LONGEST_MESSAGE - 3] + "..."
