"""Edited copies of an image, as users and platforms make them, at stated strengths.

Every edit but a change of format is saved as a JPEG of quality 90, as an editor would.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from math import cos, pi, sin
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageFont, ImageOps

from scoring.lookup import lookup

SAVED_QUALITY = 90  # JPEG quality, unless the edit states another
MOST_PIXELS = 2_000_000  # larger images are reduced before editing
MOST_SIDE = 8192  # pixels; a border must not take it past what JPEG and WebP can hold
_WORDS = ("SAMPLE", "SALE 50%", "HELLO WORLD", "2019-07-14", "PREVIEW")
_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.322], [0.211, -0.523, 0.312]])

Picture = Image.Image
Change = Callable[[Picture, np.random.Generator], Picture]
Format = Literal["JPEG", "PNG", "WEBP"]


@dataclass(frozen=True)
class Edit:
    """One way of editing an image.

    Attributes:
        kind: crop, size, compression, format, turn, tilt, blur, colour, overlay, border or noise.
        strength: a description of the change.
        change: RGB image and random numbers -> RGB image.
        format: of the saved file.
        quality: of JPEG or WebP, 1 to 100; PNG loses nothing.
    """

    kind: str
    strength: str
    change: Change
    format: Format = "JPEG"
    quality: int = SAVED_QUALITY


def edited(name: str, image: Picture, seed: int) -> bytes:
    """Return the encoded bytes of an edited copy of an RGB image.

    Args:
        name: an edit in ``EDITS``.
        image: RGB, of any size; see ``shrunk``.
        seed: the same seed gives the same bytes.

    Raises:
        InputError: for an unknown name.
        ValueError: if the image is not RGB or has no pixel.
    """
    edit = lookup(EDITS, name, kind="edit")
    if image.mode != "RGB" or not all(image.size):
        raise ValueError(f"expected an RGB image with pixels, got {image.mode} of {image.size}")
    # edits of an image need different random numbers, or every crop would take the same corner
    generator = np.random.default_rng([seed, *name.encode()])
    out = edit.change(image, generator).copy()  # saving modifies the image, which other threads may be saving
    buffer = io.BytesIO()
    options = {} if edit.format == "PNG" else {"quality": edit.quality}
    out.save(buffer, edit.format, **options)
    return buffer.getvalue()


def shrunk(pixels: NDArray[np.uint8]) -> tuple[Picture, bool]:
    """Return RGB pixels (H, W, 3) resized to at most 2 megapixels and 8192 a side, and whether they were resized."""
    image = Image.fromarray(pixels)
    width, height = image.size
    scale = min(1.0, (MOST_PIXELS / (width * height)) ** 0.5, MOST_SIDE / max(width, height))
    if scale == 1.0:
        return image, False
    size = (max(1, int(width * scale)), max(1, int(height * scale)))
    return image.resize(size, Image.Resampling.LANCZOS, reducing_gap=3.0), True


def _unchanged(image: Picture, generator: np.random.Generator) -> Picture:
    return image


def _crop(share: float) -> Change:
    """Cut a window of ``share`` of each side at a random place."""

    def change(image: Picture, generator: np.random.Generator) -> Picture:
        width, height = (max(1, round(share * side)) for side in image.size)
        left, top = (
            int(generator.integers(0, side - kept + 1)) for side, kept in zip(image.size, (width, height), strict=True)
        )
        return image.crop((left, top, left + width, top + height))

    return change


def _scale(factor: float) -> Change:
    def change(image: Picture, generator: np.random.Generator) -> Picture:
        width, height = (max(1, round(factor * side)) for side in image.size)
        return image.resize((width, height), Image.Resampling.BICUBIC)

    return change


def _rotate(method: Image.Transpose) -> Change:
    return lambda image, generator: image.transpose(method)


def _tilt(degrees: float) -> Change:
    """Rotate in either direction at the same size, with black corners."""

    def change(image: Picture, generator: np.random.Generator) -> Picture:
        sign = 1 if generator.integers(2) else -1
        return image.rotate(sign * degrees, Image.Resampling.BICUBIC)

    return change


def _blur(percent: float) -> Change:
    return lambda image, generator: image.filter(ImageFilter.GaussianBlur(percent / 100 * image.width))


def _enhance(kind: "type[ImageEnhance.Brightness | ImageEnhance.Contrast | ImageEnhance.Color]", by: float) -> Change:
    return lambda image, generator: kind(image).enhance(by)


def _hue(degrees: float) -> Change:
    """Rotate the chroma plane; luma is unchanged."""
    at = degrees * pi / 180
    turn = np.array([[1, 0, 0], [0, cos(at), -sin(at)], [0, sin(at), cos(at)]])
    matrix = np.linalg.inv(_YIQ) @ turn @ _YIQ
    flat = tuple(float(value) for row in matrix for value in (*row, 0.0))
    return lambda image, generator: image.convert("RGB", flat)


def _grey(image: Picture, generator: np.random.Generator) -> Picture:
    return image.convert("L").convert("RGB")


def _text(image: Picture, generator: np.random.Generator) -> Picture:
    """Write white words with a black outline in the lower two thirds, 8 % of the height per line."""
    out = image.copy()
    size = max(6, round(0.08 * out.height))
    font = ImageFont.load_default(size)
    words = "  ".join(_WORDS[int(generator.integers(len(_WORDS)))] for _ in range(8))
    y = int(generator.integers(out.height // 3, max(out.height // 3 + 1, out.height - size)))
    outline = max(1, size // 12)
    ImageDraw.Draw(out).text((0, y), words, "white", font, stroke_width=outline, stroke_fill="black")
    return out


def _watermark(image: Picture, generator: np.random.Generator) -> Picture:
    """Draw a half-transparent white box of 30 % of the width and 15 % of the height in a corner."""
    width, height = max(1, round(0.30 * image.width)), max(1, round(0.15 * image.height))
    left = (image.width - width) * int(generator.integers(2))
    top = (image.height - height) * int(generator.integers(2))
    out = image.copy()
    box = (left, top, left + width, top + height)
    out.paste(Image.blend(image.crop(box), Image.new("RGB", (width, height), "white"), 0.5), box)
    return out


def _border(share: float) -> Change:
    """Add a white frame, ``share`` of the shorter side wide."""
    return lambda image, generator: ImageOps.expand(image, max(1, round(share * min(image.size))), "white")


def _letterbox(image: Picture, generator: np.random.Generator) -> Picture:
    """Add black bars above and below, each 15 % of the height."""
    bar = max(1, round(0.15 * image.height))
    return ImageOps.expand(image, (0, bar, 0, bar), "black")


def _noise(sigma: float) -> Change:
    def change(image: Picture, generator: np.random.Generator) -> Picture:
        pixels = np.asarray(image, np.float32)
        noisy = pixels + sigma * generator.standard_normal(pixels.shape, np.float32)
        return Image.fromarray(np.clip(np.rint(noisy), 0, 255).astype(np.uint8))

    return change


EDITS: dict[str, Edit] = {  # to add an edit, add a line
    "crop-90": Edit("crop", "90 % of each side, anywhere", _crop(0.90)),
    "crop-80": Edit("crop", "80 % of each side, anywhere", _crop(0.80)),
    "crop-60": Edit("crop", "60 % of each side, anywhere", _crop(0.60)),
    "half-size": Edit("size", "1/2 of each side, bicubic", _scale(1 / 2)),
    "quarter-size": Edit("size", "1/4 of each side, bicubic", _scale(1 / 4)),
    "jpeg-50": Edit("compression", "JPEG of quality 50", _unchanged, quality=50),
    "jpeg-20": Edit("compression", "JPEG of quality 20", _unchanged, quality=20),
    "png": Edit("format", "PNG, which loses nothing", _unchanged, "PNG"),
    "webp": Edit("format", "WebP of quality 80", _unchanged, "WEBP", 80),
    "mirror": Edit("turn", "left and right exchanged", _rotate(Image.Transpose.FLIP_LEFT_RIGHT)),
    "rotate-180": Edit("turn", "by 180 degrees", _rotate(Image.Transpose.ROTATE_180)),
    "rotate-90": Edit("turn", "by 90 degrees", _rotate(Image.Transpose.ROTATE_90)),
    "rotate-5": Edit("tilt", "by 5 degrees either way, same size, black corners", _tilt(5)),
    "rotate-15": Edit("tilt", "by 15 degrees either way, same size, black corners", _tilt(15)),
    "blur": Edit("blur", "Gaussian, sigma 1 % of the width", _blur(1.0)),
    "brighter": Edit("colour", "brightness x 1.3", _enhance(ImageEnhance.Brightness, 1.3)),
    "darker": Edit("colour", "brightness x 0.7", _enhance(ImageEnhance.Brightness, 0.7)),
    "more-contrast": Edit("colour", "contrast x 1.4", _enhance(ImageEnhance.Contrast, 1.4)),
    "less-contrast": Edit("colour", "contrast x 0.6", _enhance(ImageEnhance.Contrast, 0.6)),
    "saturation": Edit("colour", "saturation x 1.6", _enhance(ImageEnhance.Color, 1.6)),
    "hue": Edit("colour", "hue turned by 20 degrees", _hue(20)),
    "grey": Edit("colour", "no colour", _grey),
    "text": Edit("overlay", "a line of text across, 8 % of the height", _text),
    "watermark": Edit("overlay", "a half-transparent box, 30 % x 15 %, in a corner", _watermark),
    "border-5": Edit("border", "white, 5 % of the shorter side", _border(0.05)),
    "border-15": Edit("border", "white, 15 % of the shorter side", _border(0.15)),
    "letterbox": Edit("border", "black bars above and below, 15 % of the height each", _letterbox),
    "noise": Edit("noise", "Gaussian, sigma 10 of 255", _noise(10)),
}
