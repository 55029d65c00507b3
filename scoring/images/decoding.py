"""Bytes to pixels: which road each format takes, and one outcome for any bytes whatever."""

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from PIL import ImageFile

from scoring.images.budget import BUDGET
from scoring.images.geometry import (
    Pixels,
    Raster,
    centre_crop,
    cut_middle,
    dct_scale,
    displayed_size,
    orient,
    resize,
    resized_size,
)
from scoring.images.jpeg import check_scans, decode_strictly, read_jpeg_header
from scoring.images.outcome import DecodedImage, DecodeError, one_line
from scoring.images.phash import SIDE, perceptual_hash
from scoring.images.pillow import (
    MAX_SIDE,
    check_size,
    count_frames,
    named_failures,
    open_picture,
    orientation_of,
    read_pixels,
)
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import SIDE as QUALITY_SIDE
from scoring.images.quality import Quality, measure
from scoring.images.signature import signature
from scoring.images.sniff import DECODED, sniff

__all__ = ["DEFAULT_MAX_PIXELS", "MAX_SIDE", "decode", "decode_rgb"]

DEFAULT_MAX_PIXELS = 100_000_000


@dataclass(frozen=True)
class _Header:
    """What is known before any pixel is decoded; width and height as stored."""

    format: str
    width: int
    height: int
    orientation: int
    n_frames: int | None
    picture: ImageFile.ImageFile | None  # opened by Pillow, or None on JPEG's fast road
    jpeg_quality: int | None = None


def decode(
    data: bytes,
    preprocessing: Preprocessing,
    *,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_truncated: bool = False,
    sha256: str | None = None,
    with_quality: bool = False,
) -> DecodedImage:
    """Decode, orient, resize and crop one image; any bytes give an outcome, none an exception.

    May be called from many threads at once. Pictures over 4 megapixels share a budget of 100 megapixels in flight.

    Args:
        data: the encoded image.
        preprocessing: size, resize and interpolation; mean and std are left to the device.
        max_pixels: a picture of more (width x height, from its header) is ``too_large`` and not decoded.
        allow_truncated: a JPEG, PNG, GIF or BMP that ends early is ``ok`` with a warning; what is missing is empty.
        sha256: of the bytes, where the caller knows it already.
        with_quality: measure ``quality`` too.

    Returns:
        the outcome; ``pixels`` has shape (size, size, 3).

    Raises:
        ValueError: ``max_pixels`` is below 1.
    """
    _check_cap(max_pixels)
    name = sniff(data)
    digest = sha256 or hashlib.sha256(data).hexdigest()
    header: _Header | None = None
    try:
        header = _read_header(data, name, max_pixels)
        with BUDGET.hold(header.width * header.height):
            raster, warning = _read_raster(data, header, preprocessing.resize, max_pixels, allow_truncated)
            header = replace(header, orientation=raster.orientation)
            picture = _resized(raster, preprocessing.resize, preprocessing.interpolation)
            small = _small_picture(raster)
            measures = _measures(raster, picture, small, preprocessing, header) if with_quality else None
        pixels = np.ascontiguousarray(centre_crop(orient(picture, raster.orientation), preprocessing.size))
    except DecodeError as failure:
        return _outcome(data, name, header, digest, failure=failure)
    except MemoryError:
        return _outcome(data, name, header, digest, failure=DecodeError("too_large", "it does not fit in memory"))
    return _outcome(data, name, header, digest, pixels=pixels, small=small, quality=measures, warning=warning)


def decode_rgb(
    data: bytes,
    *,
    short_side: int | None = None,
    interpolation: str = "bicubic",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    allow_truncated: bool = False,
) -> Pixels:
    """Return the whole picture as 8-bit RGB, oriented, at full size or with its short side resized.

    The same road as ``decode``, for callers that crop for themselves.

    Args:
        data: the encoded image.
        short_side: in pixels, at least 1; None keeps the full size. With it, a picture more than 8 times as long as
            wide is cut to its middle.
        interpolation: ``bicubic`` or ``bilinear``, antialiased.
        max_pixels: as in ``decode``.
        allow_truncated: as in ``decode``.

    Returns:
        uint8, shape (H, W, 3), contiguous.

    Raises:
        DecodeError: the image cannot be decoded; ``status`` says of which kind the failure is.
        ValueError: ``short_side`` or ``max_pixels`` is below 1.
    """
    _check_cap(max_pixels)
    if short_side is not None and short_side < 1:
        raise ValueError(f"short_side must be at least 1, got {short_side}")
    header = _read_header(data, sniff(data), max_pixels)
    with BUDGET.hold(header.width * header.height):
        raster, _ = _read_raster(data, header, short_side, max_pixels, allow_truncated)
        picture = raster.pixels if short_side is None else _resized(raster, short_side, interpolation)
        return np.ascontiguousarray(orient(picture, raster.orientation))


def _check_cap(max_pixels: int) -> None:
    if max_pixels < 1:
        raise ValueError(f"max_pixels must be at least 1, got {max_pixels}")


def _read_header(data: bytes, name: str | None, max_pixels: int) -> _Header:
    if not data:
        raise DecodeError("empty", "expected an image, got zero bytes")
    if name is None:
        raise DecodeError("not_an_image", f"expected an image, got bytes that begin {data[:8]!r}")
    if name not in DECODED:
        raise DecodeError("unsupported", f"expected {', '.join(DECODED)}, got {name}; convert it first")
    setting = None
    if name == "jpeg":
        jpeg = read_jpeg_header(data)
        setting = jpeg.quality if jpeg else None
        if jpeg is not None:
            check_size(jpeg.width, jpeg.height, max_pixels)
            if jpeg.is_progressive:
                check_scans(data, jpeg.width, jpeg.height)
            if not jpeg.has_metadata:
                return _Header(name, jpeg.width, jpeg.height, 1, 1, None, jpeg.quality)
    picture = open_picture(data, name, max_pixels)
    width, height = picture.size
    if name == "jpeg":
        check_scans(data, width, height)
    orientation = orientation_of(picture, data, name)
    return _Header(name, width, height, orientation, count_frames(picture, data, name), picture, setting)


def _read_raster(
    data: bytes, header: _Header, short_side: int | None, max_pixels: int, allow_truncated: bool
) -> tuple[Raster, str | None]:
    """Decode by the fast road where there is one, else by Pillow; return the picture and a warning or None."""
    reason = None
    if header.format == "jpeg":
        try:
            raster = decode_strictly(data, short_side, max_pixels)
            return replace(raster, orientation=header.orientation), None
        except (ValueError, MemoryError) as error:
            reason = str(error)
    picture = header.picture or open_picture(data, header.format, max_pixels)
    if header.format == "jpeg" and short_side is not None:
        scale = dct_scale(header.width, header.height, short_side)
        with named_failures(data, header.format):
            picture.draft(None, (header.width // scale, header.height // scale))
    pixels, warning = read_pixels(picture, data, header.format, allow_truncated=allow_truncated)
    if reason is not None and not reason.startswith("colours are"):
        warning = warning or f"Pillow decoded it, but libjpeg-turbo says: {reason}"
    orientation = orientation_of(picture, data, "png") if header.format == "png" else header.orientation
    return Raster(pixels, header.width, header.height, orientation), warning


def _resized(raster: Raster, short_side: int, interpolation: str) -> Pixels:
    middle = cut_middle(raster)
    width, height = resized_size(middle.width, middle.height, short_side)
    return resize(middle.pixels, width, height, interpolation)


def _small_picture(raster: Raster) -> Pixels:
    return orient(resize(raster.pixels, SIDE, SIDE, "bilinear"), raster.orientation)


def _measures(raster: Raster, resized: Pixels, small: Pixels, preprocessing: Preprocessing, header: _Header) -> Quality:
    """Measure a picture; where the model's own resize is the one that quality is defined by, it is not made twice."""
    is_reduced = (
        (preprocessing.resize, preprocessing.interpolation) == (QUALITY_SIDE, "bicubic")
        and min(raster.width, raster.height) >= QUALITY_SIDE
    )  # fmt: skip
    return measure(raster, small, reduced=resized if is_reduced else None, jpeg=header.jpeg_quality)


def _outcome(
    data: bytes,
    name: str | None,
    header: _Header | None,
    sha256: str,
    *,
    failure: DecodeError | None = None,
    pixels: Pixels | None = None,
    small: Pixels | None = None,
    quality: Quality | None = None,
    warning: str | None = None,
) -> DecodedImage:
    width, height = (failure.width, failure.height) if failure else (None, None)
    if header is not None:
        width, height = displayed_size(header.width, header.height, header.orientation)
    if max(width or 0, height or 0) >= 2**31:  # no such picture can exist: the header lies
        width = height = None
    error = str(failure) if failure else one_line(warning) if warning else None
    return DecodedImage(
        pixels=pixels,
        width=width,
        height=height,
        n_bytes=len(data),
        format=name,
        sha256=sha256,
        phash=None if small is None else perceptual_hash(small),
        signature=None if small is None else signature(small),
        quality=quality,
        n_frames=header.n_frames if header else None,
        status=failure.status if failure else "ok",
        error=error,
    )
