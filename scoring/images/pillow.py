"""The road of every format but plain JPEG: Pillow, one plugin by name, never by guessing."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import cast

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

from scoring.images.animation import LEAST_CONTRAST as FLAT
from scoring.images.animation import contrast, is_looked_through, n_looked_at, seek_same_size
from scoring.images.colour import to_rgb
from scoring.images.deep import (
    WHITE,
    highest_colour,
    highest_grey,
    is_deep_grey,
    is_grey_with_alpha,
    low_bytes,
    scaled_colour,
)
from scoring.images.frames import count_gif, count_tiff
from scoring.images.geometry import Pixels
from scoring.images.icon import MOST_PIXELS as MOST_ICON_PIXELS
from scoring.images.icon import count_icons, icon_size
from scoring.images.netpbm import MOST_LOOPED_PIXELS, NetpbmFile, check_values, open_netpbm
from scoring.images.outcome import DecodeError
from scoring.images.quiet import quiet, silence_libtiff
from scoring.images.sniff import ends_early, webp_canvas

MAX_SIDE = 65_535  # pixels; what a JPEG can hold
MOST_RLE_PIXELS = 16_000_000  # Pillow unpacks run-length BMP in a Python loop
_COLOURS = ("RGB", "RGBA", "RGBX", "CMYK")  # modes of which Pillow keeps the high byte of 16 bits
_PARTIAL = ("jpeg", "png", "gif", "bmp")  # formats whose decoder leaves what it had when the bytes ended

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


def check_size(width: int, height: int, max_pixels: int) -> None:
    """Refuse an image by its header, before anything is allocated for it.

    Raises:
        DecodeError: zero pixels (``corrupt``), or more than ``max_pixels`` or a side over 65,535 (``too_large``);
            it carries the size.
    """
    if width < 1 or height < 1:
        raise DecodeError("corrupt", f"the header says {width} x {height} pixels")
    if width * height <= max_pixels and max(width, height) <= MAX_SIDE:
        return
    error = DecodeError(
        "too_large",
        f"{width} x {height} pixels; expected at most {max_pixels} in all and {MAX_SIDE} a side",
    )
    error.width, error.height = width, height
    raise error


def open_image(data: bytes, name: str, max_pixels: int) -> ImageFile.ImageFile:
    """Read the header with the one plugin of this format.

    Raises:
        DecodeError: the header is broken, too large, or its format needs a package that is not installed.
    """
    if name == "webp" and (canvas := webp_canvas(data)):
        check_size(*canvas, max_pixels)
    if name == "tiff":
        silence_libtiff()
    with named_failures(data, name):
        if name == "ico":
            check_size(*icon_size(data), min(max_pixels, MOST_ICON_PIXELS))
        image = _OPENERS[name](io.BytesIO(data))
    check_size(*image.size, max_pixels)
    if name == "bmp" and image.info.get("compression") in (1, 2):
        check_size(*image.size, min(max_pixels, MOST_RLE_PIXELS))
    if name == "tiff":
        _check_tiles(image, max_pixels)
    if isinstance(image, NetpbmFile):
        if image.is_looped:
            check_size(*image.size, min(max_pixels, MOST_LOOPED_PIXELS))
        check_values(image, len(data))
    return image


def _check_tiles(image: ImageFile.ImageFile, max_pixels: int) -> None:
    """Refuse a TIFF of large tiles; raises as ``check_size``."""
    tile_width, tile_height = _tag(image, 322), _tag(image, 323)
    if tile_width > 0 and tile_height > 0:
        check_size(tile_width, tile_height, max_pixels)


def orientation_of(image: ImageFile.ImageFile, data: bytes, name: str) -> tuple[int, str | None]:
    """Return the EXIF orientation that is still to be applied, 1 to 8, and a warning where the EXIF is damaged.

    Pillow's TIFF reader and pillow-heif turn the pixels themselves; AVIF's own rotation comes as EXIF. A PNG may
    state it behind the pixels, so it is read again when they are loaded.
    """
    if name in ("tiff", "heif"):
        return 1, None
    if name == "png" and image.tile and "exif" not in image.info:
        return 1, None  # Pillow would decode the whole image to find out
    try:
        with named_failures(data, name):
            value = image.getexif().get(ExifTags.Base.Orientation)
    except DecodeError as failure:
        return 1, f"damaged EXIF is ignored: {failure}"
    return (value if isinstance(value, int) and 1 <= value <= 8 else 1), None


def count_frames(image: ImageFile.ImageFile, data: bytes, name: str) -> int | None:
    """Return how many images the file holds, or None where counting them is not cheap."""
    if name == "gif":
        return count_gif(data)
    if name == "tiff":
        return count_tiff(data)
    if name == "ico":
        return count_icons(image)
    return max(1, int(getattr(image, "n_frames", 1)))


@dataclass(frozen=True)
class ReadPicture:
    """An image that was decoded to RGB.

    Attributes:
        pixels: uint8 RGB, shape (H, W, 3), as stored.
        warning: what was wrong with it, or None.
        highest: of an image of 16 bits a channel, its largest value, or a bound on it; else None.
    """

    pixels: Pixels
    warning: str | None
    highest: int | None = None


def read_pixels(
    image: ImageFile.ImageFile, data: bytes, name: str, *, allow_truncated: bool, white: int = WHITE
) -> ReadPicture:
    """Decode the image at which an opened file stands.

    Args:
        image: opened, not loaded.
        data: the encoded image.
        name: its format.
        allow_truncated: as in ``load``.
        white: the value of 16 bits that is white.

    Raises:
        DecodeError: as ``load``; also for an image that cannot be had as RGB.
    """
    bits = bits_of(image, data, name)
    if bits == 16 and white != WHITE and not is_deep_grey(image) and image.mode in _COLOURS:
        return _read_deep_colour(image, data, name, allow_truncated=allow_truncated, white=white)
    format_white, is_inverted = grey_scale(image, name)
    warning = load(image, data, name, allow_truncated=allow_truncated)
    highest = None
    with named_failures(data, name):
        if bits == 16 and is_deep_grey(image):
            highest = highest_grey(image)
        elif bits == 16 and image.mode in _COLOURS:
            highest = highest_colour(image)
        white = white if format_white == WHITE and bits == 16 else format_white
        return ReadPicture(to_rgb(image, white=white, is_inverted=is_inverted), warning, highest)


def _read_deep_colour(
    image: ImageFile.ImageFile, data: bytes, name: str, *, allow_truncated: bool, white: int
) -> ReadPicture:
    """Decode 16-bit colour twice, for Pillow gives one of the two bytes of a channel at a time."""
    number = image.tell()
    with named_failures(data, name):
        low = _OPENERS[name](io.BytesIO(data))
        low.seek(number)
        grey_alpha = is_grey_with_alpha(low)
        low_bytes(low)
    warning = load(image, data, name, allow_truncated=allow_truncated)
    load(low, data, name, allow_truncated=allow_truncated)
    with named_failures(data, name):
        scaled, highest = scaled_colour(image, low, white, grey_alpha=grey_alpha)
        return ReadPicture(to_rgb(scaled), warning, highest)


def read_shown(
    image: ImageFile.ImageFile,
    data: bytes,
    name: str,
    *,
    n_frames: int | None,
    max_pixels: int,
    allow_truncated: bool,
    white: int = WHITE,
) -> ReadPicture:
    """Decode the image that represents an opened file: the first, or where that is flat, the one of most contrast.

    Of the first 64 images of that size, as far as they have 64 million pixels together.

    Args:
        image: opened, not loaded.
        data: the encoded image.
        name: its format.
        n_frames: images in the file; None where they are many.
        max_pixels: bound on the tiles of a TIFF's page.
        allow_truncated: as in ``load``.
        white: the value of 16 bits that is white.

    Raises:
        DecodeError: as ``read_pixels``, of the first image; one that cannot be decoded ends the look at the rest.
    """
    size = image.size
    first = read_pixels(image, data, name, allow_truncated=allow_truncated, white=white)
    if not is_looked_through(name, n_frames) or contrast(first.pixels) >= FLAT:
        return first
    best, number, most = first, 0, FLAT
    for at in range(1, n_looked_at(*size)):
        try:
            with named_failures(data, name):
                if not seek_same_size(image, at, size):
                    break
            if name == "tiff":
                _check_tiles(image, max_pixels)
            other = read_pixels(image, data, name, allow_truncated=False, white=white)
        except DecodeError:
            break
        if (level := contrast(other.pixels)) > most:
            best, number, most = other, at, level
    if not number:
        return first
    count = "many" if n_frames is None else f"{n_frames:,}"
    return replace(best, warning=first.warning or f"the first of {count} images is flat: image {number + 1} is shown")


def load(image: ImageFile.ImageFile, data: bytes, name: str, *, allow_truncated: bool) -> str | None:
    """Decode the image at which an opened file stands, in its own mode; return a warning or None.

    Raises:
        DecodeError: it cannot be decoded, or is truncated and that is not allowed.
    """
    warning = None
    size = image.size
    try:
        with named_failures(data, name):
            image.load()
    except DecodeError as failure:
        if name == "tiff" and failure.status == "corrupt" and _strips_end_late(image, len(data)):
            raise DecodeError("truncated", str(failure)) from None
        if not (allow_truncated and failure.status == "truncated" and name in _PARTIAL):
            raise
        warning = f"truncated, the missing part is empty: {failure}"
        with named_failures(data, name):
            image.tile = []
            image.load()
    if image.size[0] * image.size[1] > size[0] * size[1]:
        raise DecodeError("corrupt", f"the header says {size}, the image is {image.size}")
    return warning


def grey_scale(image: ImageFile.ImageFile, name: str) -> tuple[int, bool]:
    """Return which value of deep grey is white by the file, and whether 0 is; to be read before ``load``."""
    if name != "tiff":
        return WHITE, False
    bits = bits_of(image, b"", name)
    white = (1 << bits) - 1 if 9 <= bits <= 16 else WHITE
    return white, _tag(image, 262) == 0  # PhotometricInterpretation: white is zero


def bits_of(image: ImageFile.ImageFile, data: bytes, name: str) -> int:
    """Return the bits a channel that a PNG, PGM or TIFF states; 8 where Pillow gives no more, or scales them itself."""
    if name == "tiff":
        return _tag(image, 258)  # BitsPerSample
    if isinstance(image, NetpbmFile):
        return image.bits
    return data[24] if name == "png" and len(data) > 24 else 8  # of the header chunk, which comes first


@contextmanager
def named_failures(data: bytes, name: str) -> Iterator[None]:
    """Turn whatever Pillow raises on hostile bytes into a DecodeError, and keep its warnings quiet."""
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
