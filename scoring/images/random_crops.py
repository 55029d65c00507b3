"""Random resized crops of one image, cut from its full resolution, as in the papers' training."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scoring.images.budget import BUDGET
from scoring.images.decoding import model_square
from scoring.images.geometry import Pixels, Raster, orient, resize
from scoring.images.outcome import DecodeError
from scoring.images.preprocessing import Preprocessing
from scoring.images.raster import DecodeOptions
from scoring.images.reading import opened

ATTEMPTS = 10  # boxes that are drawn before the middle of the image is taken
RATIO = 4 / 3  # width / height of a box lies between 3/4 and this


@dataclass(frozen=True)
class Crops:
    """The crops of one image.

    Attributes:
        sides: of each crop in pixels.
        scales: bounds of the share of the area that each crop shows.
        seed: whole numbers, at least 0, that decide all boxes together with the size of the image.
        plain: whether the square that a model scores comes first.
    """

    sides: tuple[int, ...]
    scales: tuple[tuple[float, float], ...]
    seed: tuple[int, ...]
    plain: bool = False

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Crops":
        """Return the crops from ``dataclasses.asdict`` passed through JSON."""
        scales = tuple((low, high) for low, high in record["scales"])
        return cls(tuple(record["sides"]), scales, tuple(record["seed"]), record["plain"])

    def boxes(self, width: int, height: int) -> "list[Box]":
        """Return the boxes of crops in an image."""
        drawn = np.random.default_rng(self.seed).random((len(self.sides), 2 * ATTEMPTS + 3))
        return [_box(numbers, *scale, width, height) for numbers, scale in zip(drawn, self.scales, strict=True)]


@dataclass(frozen=True)
class Box:
    """A region of an image in pixels, and whether it is flipped."""

    left: int
    top: int
    width: int
    height: int
    mirrored: bool


@dataclass(frozen=True)
class DecodedCrops:
    """The outcome of one image: its crops, each uint8 of shape (side, side, 3), or the reason for none."""

    status: str
    pixels: list[Pixels]


def decode_crops(
    data: bytes,
    preprocessing: Preprocessing,
    crops: Crops,
    options: DecodeOptions = DecodeOptions(),  # noqa: B008 (it is frozen)
    *,
    supervised: bool = False,
) -> DecodedCrops:
    """Return the crops of one image; any bytes give an outcome, as in ``decode``.

    A box is drawn as the reference code of the papers does, among whole pixels, and resized with an antialiased
    bilinear filter. A large JPEG is shrunk while it is decoded where every crop has four pixels left for one.

    Args:
        data: the encoded image.
        preprocessing: of the model, for the plain square.
        crops: what to cut.
        options: as in ``decode``.
        supervised: as in ``decode``.

    Source: torchvision, RandomResizedCrop.get_params.
    """
    try:
        with opened(data, options, supervised=supervised) as image, BUDGET.hold(image.header.n_pixels):
            width, height = image.header.width, image.header.height
            boxes = crops.boxes(width, height)
            # the short side of the whole image where a box of it is as large as its crop
            least = [
                math.ceil(min(width, height) * side / min(box.width, box.height))
                for box, side in zip(boxes, crops.sides, strict=True)
            ]
            target = max([*least, *([preprocessing.resize] if crops.plain else [])], default=1)
            raster, _ = image.raster(target)
            plain = [model_square(raster, preprocessing)] if crops.plain else []
            cut = [_cut(raster, box, side) for box, side in zip(boxes, crops.sides, strict=True)]
    except DecodeError as failure:
        return DecodedCrops(failure.status, [])
    return DecodedCrops("ok", plain + cut)


def _box(drawn: np.ndarray, low: float, high: float, width: int, height: int) -> Box:
    """Return the first box that fits into the image, else the centre."""
    x, y, mirrored = (float(number) for number in drawn[-3:])
    for share, ratio in drawn[:-3].reshape(ATTEMPTS, 2).tolist():
        area, aspect = (low + (high - low) * share) * width * height, RATIO ** (2 * ratio - 1)
        wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < wide <= width and 0 < tall <= height:
            return Box(int(x * (width - wide + 1)), int(y * (height - tall + 1)), wide, tall, mirrored < 0.5)
    wide, tall = min(width, max(1, round(height * RATIO))), min(height, max(1, round(width * RATIO)))
    return Box((width - wide) // 2, (height - tall) // 2, wide, tall, mirrored < 0.5)


def _cut(raster: Raster, box: Box, side: int) -> Pixels:
    """Return a box of an image at ``side`` x ``side`` pixels, in stored coordinates.

    Boxes are as likely in a turned image as in one that is not, so orienting the small square is enough.
    """
    height, width = raster.pixels.shape[:2]
    left, right = (round(at * width / raster.width) for at in (box.left, box.left + box.width))
    top, bottom = (round(at * height / raster.height) for at in (box.top, box.top + box.height))
    part = raster.pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
    square = orient(resize(part, side, side, "bilinear"), raster.orientation)
    return square[:, ::-1] if box.mirrored else square
