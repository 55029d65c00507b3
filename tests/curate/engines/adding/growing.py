"""A folder of images that grows."""

import numpy as np
from PIL import Image
from runs import SMALL

PLAIN = SMALL | {"fit": False}
FIRST = (0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 20)  # of the images, that are there at first


def draw(path, number):
    pixels = np.random.default_rng(number).integers(0, 256, (6, 8, 3), np.uint8)
    Image.fromarray(pixels).resize((40, 30), Image.Resampling.NEAREST).save(path)


def grow(photos, *numbers):
    for number in numbers:
        draw(photos / f"{number:02}.png", number)
