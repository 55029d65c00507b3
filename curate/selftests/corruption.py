"""The checks that corruptions make a score less certain the stronger they are, and that copies make it less unique."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.columns import QUALITY_COLUMNS, is_less_certain
from curate.evaluation.degraded import LAPLACIAN, LARGER, ZOOM, batches, embedded
from curate.evaluation.rows import central_square
from curate.selftests.contract import BROKEN, COPIES, HOLDS, UNSURE, UNTRIED, WORSE, Check
from curate.statistics.calibrators import Rise, rise
from curate.statistics.degradations import LADDERS, recompress, resize
from curate.tables.arrays import quality_values
from scoring.arrays import Array, Floats
from scoring.images.geometry import Raster
from scoring.images.geometry import resize as resize_square
from scoring.images.quality import measure
from scoring.images.signature import SIDE
from scoring.metrics.proportions import wilson
from scoring.relative.junk.features import JunkInputs
from scoring.relative.model import DatasetFit
from scoring.relative.space import COPY, unit
from scoring.runner import Runner

TURN = 0.02  # largest tolerated decrease with strength, as a mean share of images
NOTICED = 0.1  # smallest effect that counts, as a mean share
UNIQUENESS = "uniqueness"  # 1 - cosine to the nearest other image: what deduplication and coverage use
ROUNDING = 1e-3  # of a cosine of embeddings of the same pixels
LEAST_SHARE = 0.95  # minimal share of images that become less unique
JPEG_QUALITY = 50


@dataclass(frozen=True)
class Climbed:
    """Scores of N images and of their corrupted versions.

    Attributes:
        embedding: of the original images, shape (N, D), rows of unit length.
        base: column -> values of the original images, shape (N,).
        steps: kind -> for each strength, column -> values, shape (N,).
    """

    embedding: NDArray[np.float32]
    base: Mapping[str, Floats]
    steps: Mapping[str, Sequence[Mapping[str, Floats]]]

    def shares(self, kind: str, column: str) -> Floats:
        """Return each image's contribution to the mean share of original images that are more certain, by strength.

        Shape (S + 1, N); the first row, of the original images, is one half.
        """
        values = [self.base[column], *(step[column] for step in self.steps[kind])]
        return np.stack([shares_among(self.base[column], each, column) for each in values])


def rank_among(base: Floats, values: Floats, name: str) -> Floats:
    """Return the share of the original images that are more certain, ties counting half, shape (N,).

    Args:
        base: values of the original images, shape (M,).
        values: of images, shape (N,).
        name: of the column, for its direction.
    """
    sign = 1.0 if is_less_certain(name) else -1.0
    ordered = np.sort(sign * base)
    both = np.searchsorted(ordered, sign * values, "left") + np.searchsorted(ordered, sign * values, "right")
    return both / (2 * len(ordered))


def shares_among(base: Floats, values: Floats, name: str) -> Floats:
    """Return each image's contribution to the mean share of original images that are more certain, shape (N,).

    Its mean equals the mean of ``rank_among``. An image contributes by its corrupted version, and as an original image;
    so the variance of these values, and of their differences between strengths, includes both sampling errors. All
    values are one half for unchanged versions.

    Args:
        base: values of the original images, shape (N,).
        values: of a version of each, shape (N,).
        name: of the column, for its direction.

    Source: DeLong, DeLong and Clarke-Pearson 1988, the structural components of the area under a curve; for paired
    samples.
    """
    above = rank_among(base, values, name)
    below = 1 - rank_among(values, base, name)
    return np.asarray(above + below - above.mean())


class BatchScorer:
    """Scores batches with a model and a dataset fit; ``white`` is the white level of 16-bit images."""

    def __init__(self, runner: Runner, fit: DatasetFit | None, columns: Sequence[str], white: int) -> None:
        self.runner, self.fit, self.columns, self.white = runner, fit, columns, white
        self.side = runner.model.spec.preprocessing.size

    def scored(self, versions: Iterable[Tensor]) -> Iterator[tuple[NDArray[np.float32], dict[str, Floats]]]:
        """Yield embeddings, shape (B, D), and columns, including the fit's, for each batch (B, 3, S, S)."""
        for images, embedding, columns in embedded(self.runner, versions, self.side):
            if self.fit is not None:
                names = () if self.fit.junk is None else self.fit.junk.names
                quality = quality_of(images) if any(name in QUALITY_COLUMNS for name in names) else {}
                fitted = self.fit.score_images(JunkInputs({**columns, **quality}, embedding)).columns
                columns |= {name: values.astype(np.float64) for name, values in fitted.items()}
            yield embedding, {name: columns[name] for name in (*self.columns, LAPLACIAN)}


def square_batches(encoded: Iterable[bytes], scorer: BatchScorer) -> Iterator[tuple[list[int], Tensor]]:
    """Yield indices and central squares of encoded images, shape (B, 3, S, S), one size at a time."""
    side = LARGER * scorer.side
    decoded = ((number, central_square(data, side, white=scorer.white)) for number, data in enumerate(encoded))
    return batches((number, square) for number, square in decoded if square is not None)


def quality_of(images: Tensor) -> dict[str, Floats]:
    """Return the quality columns of a batch, shape (B, 3, S, S), in [0, 255]; NaN for no value."""
    pixels = images.round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
    return quality_values(
        measure(Raster(each, *each.shape[1::-1]), resize_square(each, SIDE, SIDE, "bilinear")) for each in pixels
    )


def climb(encoded: Iterable[bytes], scorer: BatchScorer, *, kinds: Sequence[str], seed: int) -> Climbed:
    """Score images and their corrupted versions in batches.

    Args:
        encoded: decodable images; their central squares are scored.
        scorer: computes the columns.
        kinds: names in ``LADDERS``.
        seed: of noise and of the positions of boxes.
    """
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[dict[str, Floats]]] = [[] for _ in range(1 + sum(len(LADDERS[kind].strengths) for kind in kinds))]
    embeddings, numbers = [], []
    for rows, images in square_batches(encoded, scorer):
        small = resize(images, min(images.shape[-1], scorer.side))
        worse = (
            LADDERS[kind].change(images if kind == ZOOM else small, generator, strength)
            for kind in kinds
            for strength in LADDERS[kind].strengths
        )
        for place, (embedding, columns) in enumerate(scorer.scored(chain([small], worse))):
            parts[place].append(columns)
            if place == 0:
                embeddings.append(embedding)
        numbers += rows
    order = np.argsort(numbers, kind="stable")
    joined = [{name: np.concatenate([batch[name] for batch in each])[order] for name in each[0]} for each in parts]
    steps, place = {}, 1
    for kind in kinds:
        steps[kind] = joined[place : (place := place + len(LADDERS[kind].strengths))]
    return Climbed(np.concatenate(embeddings)[order], joined[0], steps)


def less_certain(climbed: Climbed) -> list[Check]:
    """Return a check for each column and kind: whether it gets less certain with strength.

    The sharpness of the image is included as a baseline, without a verdict.
    """
    return [_check(climbed, kind, name) for kind in climbed.steps for name in climbed.base]


def _check(climbed: Climbed, kind: str, column: str) -> Check:
    shares = climbed.shares(kind, column)
    trend = rise(shares)
    state, words = (UNTRIED, "a baseline") if column == LAPLACIAN else _judged(trend, kind)
    return Check(WORSE, kind, column, state, words, trend.end, shares.shape[1])


def _judged(trend: Rise, kind: str) -> tuple[str, str]:
    ladder = LADDERS[kind]
    end = "{:+.2f} [{:+.2f}, {:+.2f}]".format(*trend.end)
    if trend.end.high < 0:
        return BROKEN, f"more certain the worse the image: {end}"
    if trend.end.low <= 0:
        if trend.end.high >= NOTICED:
            return UNSURE, f"cannot be separated from so few images: {end}"
        return BROKEN, f"does not notice: {end}"
    if trend.fall.high < -TURN:
        early, late = ((0.0, *ladder.strengths)[at] for at in trend.between)
        turn = f"turns back between {early:g} and {late:g} ({ladder.unit}), by {trend.fall.value:+.2f}"
        return BROKEN, f"{turn}; in all {end}"
    return HOLDS, end


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


def less_unique(encoded: Iterable[bytes], scorer: BatchScorer, dataset: Array) -> list[Check]:
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
    return [_copied(kind, np.concatenate(each), KINDS[kind][1]) for kind, each in nearer.items()]


def _copied(kind: str, lower: NDArray[np.bool_], least: float) -> Check:
    share = wilson(int(lower.sum()), len(lower))
    state = HOLDS if share.value >= least else BROKEN
    words = f"lower for {int(lower.sum()):,} of {len(lower):,} images (at least {least:.0%})"
    return Check(COPIES, kind, UNIQUENESS, state, words, share, len(lower))
