"""Central squares of the images of table rows, read again."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from curate.tables.images import Images
from curate.tables.provenance import WHITE
from curate.tables.table import Table
from scoring.images import DecodeError, decode_rgb


def squares(
    table: Table, rows: Sequence[int], *, most: int, source: str | None = None
) -> Iterator[tuple[int, NDArray[np.uint8]]]:
    """Yield row number and central square, uint8 (S, S, 3), of each row whose image is unchanged, in source order.

    Args:
        table: with ``key``, and with ``uri`` unless a source is given.
        rows: row numbers, ascending.
        most: largest S in pixels; larger images are resized to it.
        source: location of the images; rows are found by key.

    Raises:
        InputError: if a row has neither a path nor a source, or the source lacks its key.
    """
    for image in Images.of(table, rows, source=source).read(rows):
        pixels = central_square(image.data, most, white=image.white) if image.data is not None else None
        if pixels is not None:
            yield image.row, pixels


def central_square(data: bytes, most: int, *, white: int = WHITE) -> NDArray[np.uint8] | None:
    """Return the central square of an encoded image, uint8 of shape (S, S, 3), S <= most; None if it cannot be decoded.

    ``white`` is the value of white in 16-bit images.
    """
    try:
        pixels = decode_rgb(data, white=white)
        if min(pixels.shape[:2]) > most:
            pixels = decode_rgb(data, short_side=most, white=white)
    except DecodeError:
        return None
    side = min(pixels.shape[:2])
    top, left = ((length - side) // 2 for length in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + side, left : left + side])
