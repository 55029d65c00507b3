"""Where an image is read: in this process if its structure is plain, else in a separate one."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from scoring.images.geometry import Raster
from scoring.images.jpeg import read_jpeg_header
from scoring.images.outcome import DecodeError
from scoring.images.raster import DecodeOptions, Header, LocalImage, format_of
from scoring.images.structure import is_plain
from scoring.images.supervised import opened_in_child


class OpenedImage(Protocol):
    """An image with a known header; see ``LocalImage`` for results and exceptions."""

    header: Header

    def raster(self, short_side: int | None) -> tuple[Raster, str | None]:
        """Decode it."""
        ...


class _OpenedPlain(LocalImage):
    """An image of plain structure, read in this process unless libjpeg-turbo finds an error."""

    def raster(self, short_side: int | None) -> tuple[Raster, str | None]:
        """Decode it."""
        if self.header.format != "jpeg":
            return super().raster(short_side)
        with suppress(ValueError, MemoryError):  # what decodes it again below meets the same, and says so
            return self.strict_raster(short_side), None
        with opened_in_child(self.data, self.header.format, self.options) as image:
            return image.raster(short_side)


@contextmanager
def opened(data: bytes, options: DecodeOptions, *, supervised: bool = False) -> Iterator[OpenedImage]:
    """Read the header of an image; its pixels can be read inside the block.

    Args:
        data: the encoded image.
        options: what it may take, and how it is read.
        supervised: read it in its own process, however it is built.

    Raises:
        DecodeError: from the block, too: memory that runs out there is ``too_large``.
    """
    name = format_of(data)
    try:
        jpeg = read_jpeg_header(data) if name == "jpeg" else None
        if not supervised and (jpeg.is_plain if jpeg else is_plain(data, name)):
            yield _OpenedPlain(data, name, options, jpeg)
        else:
            with opened_in_child(data, name, options) as image:
                yield image
    except MemoryError:
        raise DecodeError("too_large", "it does not fit in memory") from None
