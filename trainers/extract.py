"""Features of images for a cache: decoded once if memory allows; one random view of each per epoch."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from scoring.images import Preprocessing
from scoring.images.deep import WHITE
from scoring.lookup import require_known
from scoring.marks import Marks
from scoring.model import ScoringModel
from scoring.settings import require_between, require_seed
from scoring.system import free_memory
from trainers.augment import Draw, view
from trainers.cache import DTYPES, PLAIN
from trainers.data import decode_all
from trainers.methods.settings import Augmentation

BLOCK = 1024  # images per block
HELD_SHARE = 0.5  # share of free memory for pixels; if they exceed it, images are decoded in every epoch

Readers = Callable[[], Iterable[Callable[[], bytes]]]


@dataclass(frozen=True)
class CacheRecipe:
    """How features are computed; augmentation applies to every epoch but the first."""

    augmentation: Augmentation
    seed: int = 0
    dtype: str = "float16"
    batch_size: int = 256  # part of the recipe, since low-precision results depend on it
    precision: str = "fp32"
    device: str = "cpu"

    def __post_init__(self) -> None:
        require_known(self.dtype, DTYPES, "unknown dtype")
        require_seed(self.seed)
        require_between("batch size", self.batch_size, 1, BLOCK)

    def to_json(self) -> dict[str, Any]:
        """Return the recipe as JSON values."""
        return json.loads(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Images:
    """The N images to cache, with labels and losses.

    Attributes:
        readers: called once per pass over the images; returns one reader per image, which returns its bytes or raises
            an error with a ``status``.
        keys: text, shape (N,).
        labels: Arrow array of N labels, or None.
        losses: N numbers, or None.
        white: the value of white in 16-bit images.
        check: called after each pass; raises if images failed because their source became unavailable.
    """

    readers: Readers
    keys: Sequence[str]
    labels: pa.Array | None = None
    losses: Sequence[float | None] | None = None
    white: int = WHITE
    check: Callable[[], None] = lambda: None


class Pixels:
    """Decoded images in blocks: held in memory after the first pass if they fit, else decoded in every pass.

    Iterating yields row numbers (B,) and pixels, uint8 (B, 3, S, S).
    """

    def __init__(
        self, images: Images, preprocessing: Preprocessing, workers: int, *, passes: int, marks: Marks | None = None
    ) -> None:
        self._images, self._preprocessing, self._workers, self._marks = images, preprocessing, workers, marks
        self.failures: dict[str, int] = {}
        size, n = preprocessing.size, len(images.keys)
        need, free = n * 3 * size * size, free_memory()
        self._hold = passes > 1 and (free is None or need < HELD_SHARE * free)
        self._held: list[tuple[np.ndarray, Tensor]] = []
        where = "held in memory after the first pass" if self._hold else "decoded again for each epoch"
        self.description = f"{n:,} images, {need / 1e9:.2g} GB of pixels, {where if passes > 1 else 'decoded once'}"

    def __iter__(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        if self._held:
            yield from self._held
            return
        blocks = []
        for block in self._decode():
            if self._hold:
                blocks.append(block)
            yield block
        self._held = blocks

    def _decode(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        failures = Counter[str]()
        rows: list[int] = []
        pixels: list[np.ndarray] = []
        readers = self._images.readers()
        n, white = len(self._images.keys), self._images.white
        images = decode_all(readers, self._preprocessing, self._workers, self._marks, n=n, white=white)
        for row, image in enumerate(images):
            if isinstance(image, str):
                failures[image] += 1
                continue
            rows.append(row)
            pixels.append(image)
            if len(rows) == BLOCK:
                yield np.array(rows), torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
                rows, pixels = [], []
        self._images.check()
        if rows:
            yield np.array(rows), torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2)
        self.failures = dict(failures)


@torch.inference_mode()
def features(model: ScoringModel, block: Tensor, recipe: CacheRecipe, epoch: int, first: int) -> Tensor:
    """Return the features of a block of images in an epoch, shape (B, D), float32, on the CPU.

    Args:
        model: on its device.
        block: pixels, uint8, shape (B, 3, S, S).
        recipe: augmentation, seed, batch size and precision.
        epoch: ``PLAIN`` for unaugmented images, any other for one random view of each.
        first: row number of the block's first image; with seed and epoch it determines the views.
    """
    device = model.mean.device
    size, blocks = model.spec.preprocessing.size, []
    for start in range(0, len(block), recipe.batch_size):
        images = block[start : start + recipe.batch_size].to(device)
        if epoch != PLAIN:
            seed = (recipe.seed * 1_000_003 + epoch) * 1_000_000_007 + first + start
            draw = Draw(len(images), device, seed & 0x7FFFFFFFFFFFFFFF)
            images = view(images, size, recipe.augmentation.scale, recipe.augmentation, draw)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            ready = images.contiguous(memory_format=torch.channels_last)
            blocks.append(model.features(ready).float().cpu())
    return torch.cat(blocks)
