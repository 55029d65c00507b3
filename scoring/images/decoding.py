"""From bytes to pixels: the decoder of each format, and one outcome for any bytes."""

import hashlib
from dataclasses import replace

import numpy as np

from scoring.images.budget import BUDGET
from scoring.images.deep import WHITE
from scoring.images.geometry import (
    Pixels,
    Raster,
    centre_crop,
    cut_middle,
    displayed_size,
    orient,
    resize,
    resized_size,
)
from scoring.images.outcome import DecodedImage, DecodeError, single_line
from scoring.images.phash import SIDE, perceptual_hash
from scoring.images.pillow import MAX_SIDE
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import SIDE as QUALITY_SIDE
from scoring.images.quality import Quality, measure
from scoring.images.raster import DEFAULT_MAX_PIXELS, DecodeOptions, Header
from scoring.images.reading import opened
from scoring.images.signature import chroma, signature
from scoring.images.sniff import sniff

__all__ = ["DEFAULT_MAX_PIXELS", "KIND", "MAX_SIDE", "decode", "decode_rgb", "decode_small"]
KIND = "background and image by contrast"  # of the rules that pixels follow; another kind gives other pixels


def decode(
    data: bytes,
    preprocessing: Preprocessing,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    *,
    sha256: str | None = None,
    with_quality: bool = False,
    supervised: bool = False,
) -> DecodedImage:
    """Decode, orient, resize and crop one image; any bytes give an outcome instead of an exception.

    May be called from many threads at once. Images over 4 megapixels share a budget of 100 megapixels in flight.
    What is no plainly built JPEG, PNG or WebP is read in its own process, so that it can crash, hang or grow
    without harm.

    Args:
        data: the encoded image.
        preprocessing: size, resize and interpolation; mean and std are left to the device.
        options: what it may take, and how it is read.
        sha256: of the bytes, where the caller knows it already.
        with_quality: measure ``quality`` too.
        supervised: read this one in such a process, however it is built; the outcome is the same.

    Returns:
        the outcome; ``pixels`` has shape (size, size, 3).
    """
    name = sniff(data)
    digest = sha256 or hashlib.sha256(data).hexdigest()
    header: Header | None = None
    try:
        with opened(data, options, supervised=supervised) as image, BUDGET.hold((header := image.header).n_pixels):
            raster, warning = image.raster(preprocessing.resize)
            header = replace(header, orientation=raster.orientation)
            picture = _resized(raster, preprocessing.resize, preprocessing.interpolation)
            small = _small_picture(raster)
            measures = _measures(raster, picture, small, preprocessing, header) if with_quality else None
        pixels = np.ascontiguousarray(centre_crop(orient(picture, raster.orientation), preprocessing.size))
    except DecodeError as failure:
        return outcome_of(data, name, header, digest, failure=failure)
    if raster.highest is not None and raster.highest > options.white:
        seen = f"values up to {raster.highest:,} are above the white of {options.white:,}, and shown as white"
        warning = warning or seen
    decoded = outcome_of(data, name, header, digest, pixels=pixels, small=small)
    error = single_line(warning) if warning else None
    return replace(decoded, quality=measures, error=error, highest=raster.highest)


def decode_rgb(
    data: bytes,
    *,
    short_side: int | None = None,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_truncated: bool = False,
    white: int = WHITE,
) -> Pixels:
    """Return the whole image as 8-bit RGB, oriented, at full size or with its short side resized.

    The same road as ``decode``, for callers that crop for themselves.

    Args:
        data: the encoded image.
        short_side: in pixels, at least 1; None keeps the full size. With it, an image more than 8 times as long as
            wide is cut to its middle.
        max_pixels: as in ``DecodeOptions``, as the next two.
        allow_truncated: take what there is of an image that ends early.
        white: the value of 16 bits that is white.

    Returns:
        uint8, shape (H, W, 3), contiguous.

    Raises:
        DecodeError: the image cannot be decoded; ``status`` says of which kind the failure is.
        ValueError: ``short_side`` or ``max_pixels`` is below 1, or ``white`` out of its range.
    """
    options = DecodeOptions(max_pixels, allow_truncated=allow_truncated, white=white)
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    with opened(data, options) as image, BUDGET.hold(image.header.n_pixels):
        raster, _ = image.raster(short_side)
        picture = raster.pixels if short_side is None else _resized(raster, short_side, "bicubic")
        return np.ascontiguousarray(orient(picture, raster.orientation))


def decode_small(data: bytes, short_side: int, options: DecodeOptions) -> Pixels:
    """Return the whole image as 8-bit RGB, oriented, reduced to a short side; a smaller image is unchanged.

    Args:
        data: the encoded image.
        short_side: in pixels, at least 1; no image is enlarged. One more than 8 times as long as wide is cut to its
            middle.
        options: as in ``decode``.

    Raises:
        DecodeError: as ``decode_rgb``.
        ValueError: ``short_side`` is below 1.
    """
    if short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    with opened(data, options) as image, BUDGET.hold(image.header.n_pixels):
        raster, _ = image.raster(short_side)
        least = min(short_side, raster.width, raster.height)
        return np.ascontiguousarray(orient(_resized(raster, least, "bicubic"), raster.orientation))


def model_square(raster: Raster, preprocessing: Preprocessing) -> Pixels:
    """Return the model's input square of a decoded image, uint8, shape (size, size, 3); a view."""
    resized = _resized(raster, preprocessing.resize, preprocessing.interpolation)
    return centre_crop(orient(resized, raster.orientation), preprocessing.size)


def _resized(raster: Raster, short_side: int, interpolation: str) -> Pixels:
    middle = cut_middle(raster)
    width, height = resized_size(middle.width, middle.height, short_side)
    return resize(middle.pixels, width, height, interpolation)


def _small_picture(raster: Raster) -> Pixels:
    return orient(resize(raster.pixels, SIDE, SIDE, "bilinear"), raster.orientation)


def _measures(raster: Raster, resized: Pixels, small: Pixels, preprocessing: Preprocessing, header: Header) -> Quality:
    """Measure an image; the model's resized image is reused if quality is defined on the same size."""
    is_reduced = (preprocessing.resize, preprocessing.interpolation) == (QUALITY_SIDE, "bicubic") and min(
        raster.width, raster.height
    ) >= QUALITY_SIDE
    return measure(raster, small, reduced=resized if is_reduced else None, jpeg=header.jpeg_quality)


def outcome_of(
    data: bytes,
    name: str | None,
    header: Header | None,
    sha256: str,
    *,
    failure: DecodeError | None = None,
    pixels: Pixels | None = None,
    small: Pixels | None = None,
) -> DecodedImage:
    """Return the record of an image, with the hash and signature of its 32 x 32 reduction.

    Args:
        data: the encoded image.
        name: its format, by ``sniff``.
        header: what was read of it before the pixels.
        sha256: of the bytes.
        failure: why there are no pixels.
        pixels: for the model, shape (size, size, 3).
        small: the whole image, oriented, shape (32, 32, 3).
    """
    width, height = (failure.width, failure.height) if failure else (None, None)
    if header is not None:
        width, height = displayed_size(header.width, header.height, header.orientation)
    if max(width or 0, height or 0) >= 2**31:  # no such image can exist: the header lies
        width = height = None
    return DecodedImage(
        pixels=pixels,
        width=width,
        height=height,
        n_bytes=len(data),
        format=name,
        sha256=sha256,
        phash=None if small is None else perceptual_hash(small),
        signature=None if small is None else np.concatenate([signature(small), chroma(small)]),
        quality=None,
        n_frames=header.n_frames if header else None,
        status=failure.status if failure else "ok",
        error=str(failure) if failure else None,
    )
