"""The check that copies make an image less unique."""

from collections.abc import Callable, Iterable, Mapping
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.selftests.contract import BROKEN, COPIES, HOLDS, Check
from curate.selftests.corruption import BatchScorer, square_batches
from curate.statistics.degradations import recompress, resize
from scoring.metrics.proportions import wilson
from scoring.relative.space import COPY, unit

UNIQUENESS = "uniqueness"  # 1 - cosine to the nearest other image: what deduplication and coverage use
ROUNDING = 1e-3  # of a cosine of embeddings of the same pixels
LEAST_SHARE = 0.95  # minimal share of images that become less unique
JPEG_QUALITY = 50


def half_size(images: Tensor) -> Tensor:
    """Return the images reduced to half their side and enlarged again."""
    side = images.shape[-1]
    return resize(resize(images, max(1, side // 2)), side)


def saved_again(images: Tensor) -> Tensor:
    """Return the images after JPEG of quality 50."""
    return recompress(images, torch.Generator(), 100.0 - JPEG_QUALITY)


KINDS: Mapping[str, tuple[Callable[[Tensor], Tensor], float]] = {  # kind -> change, minimal share of images
    "an exact copy": (lambda images: images, 1.0),
    "a copy saved again": (saved_again, LEAST_SHARE),
    "a copy at half size": (half_size, LEAST_SHARE),
}


def less_unique(encoded: Iterable[bytes], scorer: BatchScorer, dataset: NDArray) -> list[Check]:
    """Return a check for each kind of copy: whether it is nearer to its image than every other image is.

    Args:
        encoded: N decodable images.
        scorer: computes the embeddings.
        dataset: embeddings of the dataset, shape (R, D), of any length above 0; rows with a cosine above 0.97 are
            copies and ignored.
    """
    others = torch.from_numpy(unit(dataset))
    nearer: dict[str, list[NDArray[np.bool_]]] = {kind: [] for kind in KINDS}
    for _, images in square_batches(encoded, scorer):
        copies = (change(images) for change, _ in KINDS.values())
        embedding, *of_copies = (torch.from_numpy(each) for each, _ in scorer.scored(chain([images], copies)))
        cosine = embedding @ others.T
        before = 1 - torch.where(cosine > COPY, -1.0, cosine).amax(1)
        for kind, copy in zip(KINDS, of_copies, strict=True):
            after = 1 - (embedding * copy).sum(1)
            same = after.abs() <= ROUNDING if kind == "an exact copy" else torch.ones(len(after), dtype=torch.bool)
            nearer[kind].append(((after < before) & same).numpy())
    return [_check(kind, np.concatenate(each), KINDS[kind][1]) for kind, each in nearer.items()]


def _check(kind: str, lower: NDArray[np.bool_], least: float) -> Check:
    share = wilson(int(lower.sum()), len(lower))
    state = HOLDS if share.value >= least else BROKEN
    words = f"lower for {int(lower.sum()):,} of {len(lower):,} images (at least {least:.0%})"
    return Check(COPIES, kind, UNIQUENESS, state, words, share, len(lower))
