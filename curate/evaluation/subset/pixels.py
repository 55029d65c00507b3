"""The images of a pool, and the small network trained on them."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from curate.evaluation.options import EvaluateOptions
from curate.evaluation.squares import squares
from curate.evaluation.subset.pool import SubsetPool
from curate.evaluation.subset.trained import Train
from curate.probes.network import SIDE, predicted, thumbnail, train_network
from curate.tables.images import holds_paths, require_images
from scoring.errors import InputError
from scoring.runner import select_device

MOST = 4 * SIDE  # side in pixels before the final resize


@dataclass(frozen=True)
class PixelSquares:
    """Central squares, uint8 (M, 3, 32, 32), of the M readable rows ``at`` of a pool, ascending."""

    at: NDArray[np.int64]
    pixels: torch.Tensor


def read_pictures(pool: SubsetPool, *, source: str | None) -> PixelSquares:
    """Read the images of a pool again, from each of its tables; uses 3 kB of memory per row.

    Raises:
        InputError: if there are no image paths, or no image can be read.
    """
    pixels = np.zeros((len(pool.row), 3, SIDE, SIDE), np.uint8)
    is_read = np.zeros(len(pool.row), bool)
    for number, table in enumerate(pool.tables):
        paths_of = source if number == 0 or not holds_paths(table) else None  # a test table may have other paths
        require_images(table, paths_of)
        places = np.flatnonzero(pool.source == number)
        place = dict(zip(pool.row[places].tolist(), places.tolist(), strict=True))
        rows = np.sort(pool.row[places]).tolist()
        for row, square in squares(table, rows, most=MOST, source=paths_of):
            pixels[place[row]] = thumbnail(square)
            is_read[place[row]] = True
    if not is_read.any():
        raise InputError("--network: expected images that can be read, got none; pass what was scored as --source")
    at = np.flatnonzero(is_read)
    return PixelSquares(at, torch.from_numpy(pixels[at]))


def trainer(pool: SubsetPool, images: PixelSquares, options: EvaluateOptions) -> Train:
    """Return a function that trains a network on rows with a seed, and returns which test rows it gets right.

    Args:
        pool: rows with readable images, labels and test rows.
        images: of the same rows, in the same order.
        options: steps, seed and device.
    """
    device = str(select_device(options.device))
    tests = pool.tests
    options.announce(f"a small network of {options.network:,} steps for each side and seed, on {device}")

    def train(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        model = train_network(
            images.pixels[rows],
            pool.label[rows],
            len(pool.classes),
            seed=options.seed + number,
            steps=options.network,
            device=device,
        )
        return np.asarray(predicted(model, images.pixels[tests], device) == pool.label[tests])

    return train
