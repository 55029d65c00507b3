"""Whether every image format can be decoded here, tested on a small image of each."""

import io
from collections.abc import Iterator
from importlib.util import find_spec

import numpy as np
from PIL import Image, features

from curate.diagnosis.contract import PROBLEM, MachineFact
from scoring.images import Preprocessing, decode
from scoring.images.sniff import DECODED

SIDE = 64
_OF_PILLOW = {"pnm": "ppm"}  # names of formats that Pillow calls otherwise
GREY = 8  # the largest mean difference of a decoded image from what was encoded, of 255


def decoders() -> Iterator[MachineFact]:
    """Yield the decoder of every format; one that returns no image or a wrong one is a problem."""
    pillow = f"Pillow {Image.__version__}"
    jpeg = f"libjpeg-turbo through simplejpeg; the rest by {pillow}"
    by = {"jpeg": jpeg, "avif": f"{pillow}, libavif {features.version('avif') or 'unknown'}", "heif": "pillow-heif"}
    for name in DECODED:
        if name == "heif" and find_spec("pillow_heif") is None:
            yield MachineFact("decoders", name, "not installed", advice="pip install 'kappa-curate[heif]'")
            continue
        fault = fault_of(name)
        advice = "pip install --force-reinstall pillow simplejpeg" if fault else ""
        yield MachineFact("decoders", name, fault or by.get(name, pillow), PROBLEM if fault else "ok", advice)


def fault_of(name: str) -> str:
    """Return the fault of the decoder of a format; an empty text for none."""
    picture = ramp()
    try:
        data = encoded(picture, name)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        return f"this Pillow has no support for it ({type(error).__name__})"
    image = decode(data, Preprocessing(SIDE, resize=SIDE))
    if image.pixels is None:
        return f"{image.status}: {image.error}"
    difference = np.abs(image.pixels.astype(float) - picture.astype(float)).mean()
    return "" if difference <= GREY else f"decodes to another image (by {difference:.0f} of 255 on average)"


def ramp() -> np.ndarray:
    """Return an image with a smooth gradient, uint8, shape (64, 64, 3)."""
    y, x = np.mgrid[0:SIDE, 0:SIDE]
    return np.stack([x * 4, y * 4, (x + y) * 2], axis=2).astype(np.uint8)


def encoded(picture: np.ndarray, name: str) -> bytes:
    """Return an image encoded in a format."""
    stream = io.BytesIO()
    image = Image.fromarray(picture)
    if name == "heif":
        from pillow_heif import from_pillow

        from_pillow(image).save(stream, quality=90)
    else:
        image.save(
            stream, format=_OF_PILLOW.get(name, name), **({"quality": 90} if name in ("jpeg", "webp", "avif") else {})
        )
    return stream.getvalue()
