"""Decoding of every format but plain JPEG by Pillow, with the plugin chosen by name.

Frames are counted here with a bound: Pillow walks the whole file, which takes minutes for a small hostile file.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Literal, cast

from PIL import (
    AvifImagePlugin,
    BmpImagePlugin,
    ExifTags,
    GifImagePlugin,
    IcoImagePlugin,
    Image,
    ImageFile,
    JpegImagePlugin,
    PngImagePlugin,
    TiffImagePlugin,
    WebPImagePlugin,
)

from scoring.images import deep
from scoring.images.colour import to_rgb
from scoring.images.frames import (
    FLAT,
    MOST_ICON_PIXELS,
    contrast,
    count_icons,
    icon_size,
    is_looked_through,
    n_looked_at,
    seek_same_size,
)
from scoring.images.geometry import Pixels
from scoring.images.netpbm import MOST_LOOPED_PIXELS, NetpbmFile, check_values, open_netpbm
from scoring.images.outcome import DecodeError
from scoring.images.quiet import quiet, silence_libtiff
from scoring.images.sniff import ends_early, webp_canvas

MOST_STEPS = 200_000  # blocks of a GIF, directories of a TIFF; more are not counted
MAX_SIDE = 65_535  # pixels; the limit of JPEG
MOST_RLE_PIXELS = 16_000_000  # Pillow unpacks run-length BMP in a Python loop
_COLOURS = ("RGB", "RGBA", "RGBX", "CMYK")  # modes of which Pillow keeps the high byte of 16 bits
_PARTIAL = ("jpeg", "png", "gif", "bmp")  # formats whose decoder returns partial images

Opener = Callable[[io.BytesIO], ImageFile.ImageFile]

_OPENERS: dict[str, Opener] = {
    "jpeg": lambda stream: JpegImagePlugin.jpeg_factory(stream, ""),
    "png": lambda stream: PngImagePlugin.PngImageFile(stream, ""),
    "webp": lambda stream: WebPImagePlugin.WebPImageFile(stream, ""),
    "gif": lambda stream: GifImagePlugin.GifImageFile(stream, ""),
    "tiff": lambda stream: TiffImagePlugin.TiffImageFile(stream, ""),
    "bmp": lambda stream: BmpImagePlugin.BmpImageFile(stream, ""),
    "avif": lambda stream: AvifImagePlugin.AvifImageFile(stream, ""),
    "heif": lambda stream: _open_heif(stream),
    "pnm": open_netpbm,
    "ico": lambda stream: IcoImagePlugin.IcoImageFile(stream, ""),
}

_TRUNCATED = ("truncated", "unexpected end", "premature end", "not enough image data", "end of file")
_UNSUPPORTED = ("unknown pixel mode", "unsupported", "not supported", "not implemented", "cannot find loader")


def count_gif(data: bytes) -> int | None:
    """Return the number of frames in a GIF (at least 1); None if it has too many blocks.

    Source: GIF89a specification, sections 18 to 27.
    """
    at = 13 + _colour_table(data, 10)
    n_frames, in_blocks = 0, False
    for _ in range(MOST_STEPS):
        if at >= len(data):
            return max(1, n_frames)
        kind = data[at]
        if in_blocks:  # a sub-block: its length, then so many bytes; length 0 ends them
            in_blocks = kind != 0
            at += 1 + kind
        elif kind == 0x2C:  # image descriptor, perhaps a colour table, the code size
            n_frames, in_blocks = n_frames + 1, True
            at += 11 + _colour_table(data, at + 9)
        elif kind == 0x21:  # extension
            in_blocks = True
            at += 2
        elif kind == 0x3B:  # trailer
            return max(1, n_frames)
        else:
            at += 1
    return None


def count_tiff(data: bytes) -> int | None:
    """Return the number of directories in a TIFF or BigTIFF (at least 1); None if there are too many.

    Counting ends at a directory that was already visited.
    """
    order: Literal["big", "little"] = "big" if data[:2] == b"MM" else "little"
    is_big = b"+" in data[2:4]
    n_count, n_entry, n_offset = (8, 20, 8) if is_big else (2, 12, 4)

    def number(at: int, n_bytes: int) -> int:
        return int.from_bytes(data[at : at + n_bytes], order)

    at = number(8 if is_big else 4, n_offset)
    seen: set[int] = set()
    while 0 < at < len(data) and at not in seen:
        if len(seen) >= MOST_STEPS:
            return None
        seen.add(at)
        at = number(at + n_count + n_entry * number(at, n_count), n_offset)
    return max(1, len(seen))


def _colour_table(data: bytes, at: int) -> int:
    flags = data[at] if at < len(data) else 0
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Check the size in a header before memory is allocated.

    Raises:
        DecodeError: with the size; zero pixels (``corrupt``), or more than ``max_pixels`` or a side over 65,535
            (``too_large``).
    """
    if width < 1 or height < 1:
        raise DecodeError("corrupt", f"the header says {width} x {height} pixels")
    if width * height <= max_pixels and max(width, height) <= MAX_SIDE:
        return
    error = DecodeError(
        "too_large", f"{width} x {height} pixels; expected at most {max_pixels} in all and {MAX_SIDE} a side"
    )
    error.width, error.height = width, height
    raise error


@dataclass(frozen=True)
class ReadPicture:
    """An image decoded to RGB.

    Attributes:
        pixels: uint8 RGB, shape (H, W, 3), as stored.
        warning: a warning, or None.
        highest: largest value of an image with 16 bits per channel, or an upper bound; else None.
    """

    pixels: Pixels
    warning: str | None
    highest: int | None = None


class PillowFile:
    """A file whose header is read by the plugin of its format.

    Args:
        data: the encoded image.
        name: its format.
        max_pixels: bound on its pixels, and on the pixels of a TIFF's tiles.

    Attributes:
        image: the opened image, at the current frame.
        name: as given.

    Raises:
        DecodeError: the header is broken, too large, or its format needs a package that is not installed.
    """

    def __init__(self, data: bytes, name: str, max_pixels: int) -> None:
        self._data, self.name, self._max_pixels = data, name, max_pixels
        if name == "webp" and (canvas := webp_canvas(data)):
            check_size(*canvas, max_pixels)
        if name == "tiff":
            silence_libtiff()
        with named_failures(data, name):
            if name == "ico":
                check_size(*icon_size(data), min(max_pixels, MOST_ICON_PIXELS))
            self.image = _OPENERS[name](io.BytesIO(data))
        check_size(*self.image.size, max_pixels)
        if name == "bmp" and self.image.info.get("compression") in (1, 2):
            check_size(*self.image.size, min(max_pixels, MOST_RLE_PIXELS))
        self._check_tiles()
        if isinstance(self.image, NetpbmFile):
            if self.image.is_looped:
                check_size(*self.image.size, min(max_pixels, MOST_LOOPED_PIXELS))
            check_values(self.image, len(data))

    def _check_tiles(self) -> None:
        """Refuse a TIFF of large tiles; raises as ``check_size``."""
        if self.name == "tiff" and (width := _tag(self.image, 322)) > 0 and (height := _tag(self.image, 323)) > 0:
            check_size(width, height, self._max_pixels)

    def orientation(self) -> tuple[int, str | None]:
        """Return the EXIF orientation still to be applied, 1 to 8, and a warning if the EXIF is damaged.

        Pillow's TIFF reader and pillow-heif orient the pixels themselves; AVIF's rotation is reported as EXIF. A PNG
        may have its EXIF after the pixels, so it is read again when they are loaded.
        """
        if self.name in ("tiff", "heif"):
            return 1, None
        if self.name == "png" and self.image.tile and "exif" not in self.image.info:
            return 1, None  # Pillow would decode the whole image to find out
        try:
            with named_failures(self._data, self.name):
                value = self.image.getexif().get(ExifTags.Base.Orientation)
        except DecodeError as failure:
            return 1, f"damaged EXIF is ignored: {failure}"
        return (value if isinstance(value, int) and 1 <= value <= 8 else 1), None

    def count_frames(self) -> int | None:
        """Return the number of frames in the file; None if counting them is expensive."""
        if self.name == "gif":
            return count_gif(self._data)
        if self.name == "tiff":
            return count_tiff(self._data)
        if self.name == "ico":
            return count_icons(self.image)
        return max(1, int(getattr(self.image, "n_frames", 1)))

    def draft(self, size: tuple[int, int]) -> None:
        """Let Pillow reduce a JPEG to about this size, (width, height), while decoding."""
        with named_failures(self._data, self.name):
            self.image.draft(None, size)

    def read(self, *, allow_truncated: bool, white: int = deep.WHITE) -> ReadPicture:
        """Decode the current frame; ``white`` is the 16-bit white level.

        Raises DecodeError as ``load``, and for an image that cannot be converted to RGB.
        """
        bits = self.bits()
        if bits == 16 and white != deep.WHITE and not deep.is_deep_grey(self.image) and self.image.mode in _COLOURS:
            return self._read_deep_colour(allow_truncated=allow_truncated, white=white)
        format_white, is_inverted = self.grey_scale()
        warning = self.load(allow_truncated=allow_truncated)
        highest = None
        with named_failures(self._data, self.name):
            if bits == 16 and deep.is_deep_grey(self.image):
                highest = deep.highest_grey(self.image)
            elif bits == 16 and self.image.mode in _COLOURS:
                highest = deep.highest_colour(self.image)
            white = white if format_white == deep.WHITE and bits == 16 else format_white
            return ReadPicture(to_rgb(self.image, white=white, is_inverted=is_inverted), warning, highest)

    def _read_deep_colour(self, *, allow_truncated: bool, white: int) -> ReadPicture:
        """Decode 16-bit colour twice, since Pillow returns one byte per channel at a time."""
        low = PillowFile(self._data, self.name, self._max_pixels)
        with named_failures(self._data, self.name):
            low.image.seek(self.image.tell())
            grey_alpha = deep.is_grey_with_alpha(low.image)
            deep.low_bytes(low.image)
        warning = self.load(allow_truncated=allow_truncated)
        low.load(allow_truncated=allow_truncated)
        with named_failures(self._data, self.name):
            scaled, highest = deep.scaled_colour(self.image, low.image, white, grey_alpha=grey_alpha)
            return ReadPicture(to_rgb(scaled), warning, highest)

    def read_shown(self, *, n_frames: int | None, allow_truncated: bool, white: int) -> ReadPicture:
        """Decode the frame that represents the file: the first, or if that is flat, the frame with most contrast.

        Only the first 64 frames of the same size are considered, up to 64 million pixels together.

        Args:
            n_frames: images in the file; None for many.
            allow_truncated: as in ``load``.
            white: as in ``read``.

        Raises:
            DecodeError: as ``read``, for the first frame; a later frame that cannot be decoded ends the search.
        """
        size = self.image.size
        first = self.read(allow_truncated=allow_truncated, white=white)
        if not is_looked_through(self.name, n_frames) or contrast(first.pixels) >= FLAT:
            return first
        best, number, most = first, 0, FLAT
        for at in range(1, n_looked_at(*size)):
            try:
                with named_failures(self._data, self.name):
                    if not seek_same_size(self.image, at, size):
                        break
                self._check_tiles()
                other = self.read(allow_truncated=False, white=white)
            except DecodeError:
                break
            if (level := contrast(other.pixels)) > most:
                best, number, most = other, at, level
        if not number:
            return first
        count = "many" if n_frames is None else f"{n_frames:,}"
        return replace(
            best, warning=first.warning or f"the first of {count} images is flat: image {number + 1} is shown"
        )

    def load(self, *, allow_truncated: bool) -> str | None:
        """Decode the current frame in its mode; return a warning or None.

        Raises DecodeError if it cannot be decoded, or is truncated and that is not allowed.
        """
        image, warning, size = self.image, None, self.image.size
        try:
            with named_failures(self._data, self.name):
                image.load()
        except DecodeError as failure:
            if self.name == "tiff" and failure.status == "corrupt" and _strips_end_late(image, len(self._data)):
                raise DecodeError("truncated", str(failure)) from None
            if not (allow_truncated and failure.status == "truncated" and self.name in _PARTIAL):
                raise
            warning = f"truncated, the missing part is empty: {failure}"
            with named_failures(self._data, self.name):
                image.tile = []
                image.load()
        if image.size[0] * image.size[1] > size[0] * size[1]:
            raise DecodeError("corrupt", f"the header says {size}, the image is {image.size}")
        return warning

    def grey_scale(self) -> tuple[int, bool]:
        """Return the white level of deep grey stated by the file, and whether 0 is white; call it before ``load``."""
        if self.name != "tiff":
            return deep.WHITE, False
        bits = self.bits()
        white = (1 << bits) - 1 if 9 <= bits <= 16 else deep.WHITE
        return white, _tag(self.image, 262) == 0  # PhotometricInterpretation: white is zero

    def bits(self) -> int:
        """Return the bits per channel that a PNG, PGM or TIFF states; 8 if Pillow returns no more, or scales them."""
        if self.name == "tiff":
            return _tag(self.image, 258)  # BitsPerSample
        if isinstance(self.image, NetpbmFile):
            return self.image.bits
        # of the header chunk, which comes first
        return self._data[24] if self.name == "png" and len(self._data) > 24 else 8


@contextmanager
def named_failures(data: bytes, name: str) -> Iterator[None]:
    """Turn exceptions of Pillow on hostile bytes into a DecodeError, and suppress its warnings."""
    try:
        with quiet():
            yield
    except DecodeError:
        raise
    except Exception as error:  # Pillow's plugins raise nearly every type on broken files
        raise DecodeError(_status_of(error, data, name), f"{name}: {error or type(error).__name__}") from None


def _status_of(error: Exception, data: bytes, name: str) -> str:
    if isinstance(error, (Image.DecompressionBombError, MemoryError)):
        return "too_large"
    text = str(error).lower()
    if isinstance(error, EOFError) or isinstance(error.__cause__, EOFError):
        return "truncated"
    if any(word in text for word in _TRUNCATED) or ends_early(data, name):
        return "truncated"
    if isinstance(error, NotImplementedError) or any(word in text for word in _UNSUPPORTED):
        return "unsupported"
    return "corrupt"


def _open_heif(stream: io.BytesIO) -> ImageFile.ImageFile:
    from pillow_heif import HeifImageFile

    return cast(ImageFile.ImageFile, HeifImageFile(stream, ""))


def _tag(image: ImageFile.ImageFile, number: int) -> int:
    value = cast(TiffImagePlugin.TiffImageFile, image).tag_v2.get(number)
    while isinstance(value, tuple) and value:
        value = value[0]
    return value if isinstance(value, int) else 0


def _strips_end_late(image: ImageFile.ImageFile, n_bytes: int) -> bool:
    tags = cast(TiffImagePlugin.TiffImageFile, image).tag_v2
    for starts, lengths in ((273, 279), (324, 325)):  # strips, tiles
        spans = zip(tags.get(starts) or (), tags.get(lengths) or (), strict=False)
        if any(int(start) + int(length) > n_bytes for start, length in spans):
            return True
    return False
