"""Corrupted copies of an image, as input of a model and of quality measures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from scoring.images.geometry import Pixels, Raster, centre_crop, resize, resized_size
from scoring.images.phash import SIDE as THUMBNAIL
from scoring.images.preprocessing import Preprocessing
from scoring.images.quality import SIDE, Quality, measure
from scoring.junk.corruptions import corrupt


@dataclass(frozen=True)
class Copy:
    """A corrupted copy.

    Attributes:
        kind: of corruption.
        pixels: what the model reads, uint8, shape (S, S, 3).
        quality: measures; None where they were not wanted. Blocking and JPEG quality say nothing of a copy that was
            never a file, and are None.
    """

    kind: str
    pixels: Pixels
    quality: Quality | None


def corrupted_copies(
    image: Pixels, digest: str, kinds: Sequence[str], preprocessing: Preprocessing, *, with_quality: bool
) -> list[Copy]:
    """Return a corrupted copy of an image for each kind.

    The corruption is applied at the size at which quality is measured, and again at the size that the model reads
    where that is larger, with the same parameters: so its cost does not depend on the size of the image.

    Args:
        image: from ``decode_small`` with ``side_needed``, uint8, shape (H, W, 3).
        digest: of the encoded image.
        kinds: keys of ``CORRUPTIONS``.
        preprocessing: of the model.
        with_quality: measure the copies.
    """
    small = _reduced(image, SIDE)
    large = image if min(image.shape[:2]) > SIDE and preprocessing.resize > SIDE else None
    copies = []
    for kind in kinds:
        copy = corrupt(small, kind, digest)
        seen = copy if large is None else corrupt(_reduced(large, preprocessing.resize), kind, digest)
        copies.append(Copy(kind, _square(seen, preprocessing), _measured(copy) if with_quality else None))
    return copies


def side_needed(preprocessing: Preprocessing) -> int:
    """Return the short side, in pixels, from which copies for a model are made."""
    return max(SIDE, preprocessing.resize)


def _reduced(image: Pixels, side: int) -> Pixels:
    height, width = image.shape[:2]
    return resize(image, *resized_size(width, height, min(side, width, height)), "bicubic")


def _square(image: Pixels, preprocessing: Preprocessing) -> Pixels:
    height, width = image.shape[:2]
    resized = resize(image, *resized_size(width, height, preprocessing.resize), preprocessing.interpolation)
    return np.ascontiguousarray(centre_crop(resized, preprocessing.size))


def _measured(copy: Pixels) -> Quality:
    raster = Raster(copy, copy.shape[1], copy.shape[0])
    return measure(raster, resize(copy, THUMBNAIL, THUMBNAIL, "bilinear"), reduced=copy)
