"""A digest of the decoded pixels of an image; ``exact.py`` defines the pixels of each kind of image."""

from scoring.images.budget import BUDGET
from scoring.images.exact import digest
from scoring.images.geometry import orient
from scoring.images.raster import DEFAULT_MAX_PIXELS, DecodeOptions
from scoring.images.reading import opened


def pixel_digest(data: bytes, *, max_pixels: int = DEFAULT_MAX_PIXELS) -> str:
    r"""Return the SHA-256 of an image's pixels at full size: equal where two files decode to the same image.

    The hash is of the line ``"RGB <width> <height>\n"`` and of the rows, as displayed, 3 bytes a pixel; see the
    table at the top of ``exact.py`` for all that is not 8-bit RGB. May be called from many threads at once, and shares
    their budget of pixels in flight.

    Args:
        data: the encoded image.
        max_pixels: an image of more (width x height, from its header) is refused before it is decoded.

    Returns:
        64 hexadecimal digits.

    Raises:
        DecodeError: the image cannot be decoded, or is truncated; ``status`` says of which kind the failure is.
        ValueError: ``max_pixels`` is below 1.
    """
    with opened(data, DecodeOptions(max_pixels)) as image, BUDGET.hold(image.header.n_pixels):
        if image.header.format != "jpeg":
            return image.digest()
        raster, _ = image.raster(None)
        return digest("RGB", orient(raster.pixels, raster.orientation))
