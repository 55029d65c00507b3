"""ICO: its largest image, with its own header read before Pillow decodes it."""

import io

from PIL import BmpImagePlugin, IcoImagePlugin, ImageFile, PngImagePlugin

MOST_PIXELS = 4_000_000  # Pillow decodes an icon when it opens it; the directory of one states 256 x 256 at most
_PNG = b"\x89PNG\r\n\x1a\n"


def icon_size(data: bytes) -> tuple[int, int]:
    """Return (width, height) of the largest image in the directory, the one that Pillow would decode.

    Raises what Pillow raises on broken headers, and IndexError if there is no image.
    """
    stream = io.BytesIO(data)
    largest = IcoImagePlugin.IcoFile(stream).entry[0]
    stream.seek(largest.offset)
    is_png = stream.read(len(_PNG)) == _PNG
    stream.seek(largest.offset)
    if is_png:
        return PngImagePlugin.PngImageFile(stream, "").size
    width, height = BmpImagePlugin.DibImageFile(stream, "").size
    return width, height // 2  # the mask is below the image


def count_icons(picture: ImageFile.ImageFile) -> int:
    """Return the number of images in an opened icon."""
    return len(picture.ico.entry) if isinstance(picture, IcoImagePlugin.IcoImageFile) else 1
