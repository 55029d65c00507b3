"""Whether certainty decreases as images get worse: crops, blur, noise and grey boxes of known strength."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.columns import is_less_certain
from curate.evaluation.measures import Measure, Shape, measured, widened_share
from curate.statistics.degradations import AUGMENTATIONS, WORSE, Change, center_crops, laplacian_variance, resize
from curate.statistics.weighted import RankOrder, weighted_spearman
from scoring.arrays import Floats
from scoring.errors import InputError
from scoring.runner import Runner

LAPLACIAN = "Laplacian"
ORIGINAL, CENTER_CROP, ZOOM = "as it is", "centre crop", "zoom"
LARGER = 4  # images are kept at up to this multiple of the model's side, so that crops are not upscaled
CROP_FRACTIONS = (0.1, 0.75)
BATCH = 32
CROP_SIZE = Shape(
    "Spearman, crop size",
    "higher",
    "rank correlation of certainty with how much of the image a centre crop shows (10 to 75 % of the side)",
)


@dataclass
class Degraded:
    """Scores of images and of their corrupted versions.

    Attributes:
        rows: row numbers of the table, shape (N,).
        scores: model outputs by corruption and column, shape (N,), float64.
        fractions: side of each image's centre crop, as a share of the image's side, shape (N,).
        sharpness: variance of the Laplacian of the original image, shape (N,).
    """

    rows: NDArray[np.int64]
    scores: dict[str, dict[str, Floats]]
    fractions: Floats
    sharpness: Floats

    def limited_to(self, chosen: Sequence[str]) -> "Degraded":
        """Return the scores of chosen columns (or of 1/kappa) and of the baseline; all if none is chosen."""
        kept = {LAPLACIAN, *chosen, *(f"kappa_{name.removeprefix('unc_')}" for name in chosen)}
        if not chosen:
            return self
        scores = {kind: {name: by[name] for name in by if name in kept} for kind, by in self.scores.items()}
        return replace(self, scores=scores)


def degrade(squares: Iterable[tuple[int, NDArray[np.uint8]]], runner: Runner, *, seed: int) -> Degraded:
    """Score images and their corrupted versions in batches.

    Crops are cut from the image at up to four times the model's input side; other corruptions are applied at the input
    side, or at the image's side if that is smaller. All go through the same resize to the model.

    Args:
        squares: row number and central square, uint8 of shape (S, S, 3).
        runner: the model.
        seed: of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    side = runner.model.spec.preprocessing.size
    changes: dict[str, Change] = {**WORSE, **AUGMENTATIONS}
    batch_scores: dict[str, list[dict[str, Floats]]] = {kind: [] for kind in (ORIGINAL, CENTER_CROP, *changes)}
    rows, fractions = [], []
    for numbers, images in batches(squares):
        small = resize(images, min(images.shape[-1], side))
        fraction = CROP_FRACTIONS[0] + (CROP_FRACTIONS[1] - CROP_FRACTIONS[0]) * torch.rand(
            len(images), generator=generator
        )
        crops = center_crops(images, fraction)
        changed = (change(images if "crop" in kind else small, generator) for kind, change in changes.items())
        for kind, (_, _, scores_by_column) in zip(
            batch_scores, embedded(runner, chain([small, crops], changed), side), strict=True
        ):
            batch_scores[kind].append(scores_by_column)
        rows += numbers
        fractions.append(fraction.numpy())
    order = np.argsort(rows, kind="stable")
    sorted_scores = {
        kind: {name: np.concatenate([part[name] for part in parts])[order] for name in parts[0]} if parts else {}
        for kind, parts in batch_scores.items()
    }
    fraction_all = np.concatenate(fractions)[order].astype(np.float64) if fractions else np.zeros(0)
    sharpness = sorted_scores[ORIGINAL].get(LAPLACIAN, np.zeros(0))
    return Degraded(np.array(rows, np.int64)[order], sorted_scores, fraction_all, sharpness)


def batches(squares: Iterable[tuple[int, NDArray[np.uint8]]]) -> Iterator[tuple[list[int], Tensor]]:
    """Yield batches of images of one size, shape (B, 3, S, S), with few sizes in memory at a time."""
    waiting: dict[int, list[tuple[int, NDArray[np.uint8]]]] = {}
    for row, pixels in squares:
        group = waiting.setdefault(len(pixels), [])
        group.append((row, pixels))
        if len(group) == BATCH:
            yield _stacked(waiting.pop(len(pixels)))
        elif sum(map(len, waiting.values())) >= 8 * BATCH:
            yield _stacked(waiting.pop(max(waiting, key=lambda size: len(waiting[size]))))
    for group in waiting.values():
        yield _stacked(group)


def _stacked(group: list[tuple[int, NDArray[np.uint8]]]) -> tuple[list[int], Tensor]:
    images = torch.from_numpy(np.stack([pixels for _, pixels in group])).permute(0, 3, 1, 2).float()
    return [row for row, _ in group], images


def require_scores(runner: Runner, chosen: Sequence[str]) -> None:
    """Raise ``InputError`` if columns are chosen of which the model computes none."""
    if chosen and not set(chosen) & set(runner.columns):
        raise InputError(
            f"--degrade: the model gives {', '.join(runner.columns) or 'no score'}, got --column {', '.join(chosen)}; "
            "choose one of those, or leave --column out"
        )


def embedded(
    runner: Runner, versions: Iterable[Tensor], side: int
) -> Iterator[tuple[Tensor, NDArray[np.float32], dict[str, Floats]]]:
    """Yield each batch of images with embeddings, shape (B, D), scores by column, and sharpness.

    Small batches of different image sizes go through the model together, since few photographs share a size.
    """
    waiting: list[Tensor] = []
    for images in versions:
        waiting.append(images)
        if sum(map(len, waiting)) >= BATCH:
            yield from _scored(runner, waiting, side)
            waiting = []
    if waiting:
        yield from _scored(runner, waiting, side)


def _scored(
    runner: Runner, versions: Sequence[Tensor], side: int
) -> Iterator[tuple[Tensor, NDArray[np.float32], dict[str, Floats]]]:
    pixels = [
        resize(images, side).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous().numpy()
        for images in versions
    ]
    scores = runner.submit(np.concatenate(pixels)).result()
    start = 0
    for images in versions:
        rows = slice(start, start := start + len(images))
        yield images, scores.embedding[rows], _columns({n: v[rows] for n, v in scores.columns.items()}, images, side)


def _columns(scores: Mapping[str, NDArray[np.float32]], images: Tensor, side: int) -> dict[str, Floats]:
    kappas = [name for name in scores if name.startswith("kappa_")]
    doubles = [f"unc_{name.removeprefix('kappa_')}" for name in kappas]  # 1/kappa, in the same order
    names = kappas + [name for name in scores if name not in (*kappas, *doubles)]
    columns = {name: scores[name].astype(np.float64) for name in names}
    columns[LAPLACIAN] = laplacian_variance(resize(images, side)).double().numpy()
    return columns


def degraded_measures(degraded: Degraded, *, repeats: int, seed: int) -> list[Measure]:
    """Return the share of corrupted versions with less certainty, the crop correlation, and means by corruption.

    Only strictly higher uncertainty counts for a share. The sharpness baseline is an additional column.

    Source: crop size by Kirchhof et al. 2023 ("URL"); means by Table 3 of Nakamura et al. 2023, arXiv:2203.11437.
    """
    columns = list(degraded.scores[ORIGINAL])
    sign = np.array([-1.0 if is_less_certain(name) else 1.0 for name in columns])
    values = {kind: np.stack([by[name] for name in columns], 1) for kind, by in degraded.scores.items()}  # (N, C)
    base = values[ORIGINAL]
    kinds = [CENTER_CROP, *WORSE]
    lower = np.concatenate([(sign * values[kind] < sign * base) for kind in kinds], 1).astype(np.float64)
    orders = [RankOrder(sign[c] * values[CENTER_CROP][:, c]) for c in range(len(columns))]
    size = RankOrder(degraded.fractions)
    stacked = np.concatenate(list(values.values()), 1)
    finite = np.isfinite(stacked).all(0)
    everything = np.where(finite, stacked, 0.0)
    of_share = "share of images whose {} has a higher uncertainty"
    shapes = [Shape(f"less certain: {kind}", "higher", of_share.format(kind)) for kind in kinds]
    shapes += [CROP_SIZE, *(Shape(f"mean, {kind}", "", "mean of the column as the model gives it") for kind in values)]

    def statistic(counts: NDArray[np.int64]) -> Floats:
        n = counts.sum()
        shares = (counts @ lower / n).reshape(len(kinds), -1)
        crops = np.array([[weighted_spearman(order, size, counts) for order in orders]])
        mean = np.where(finite, counts @ everything / n, np.nan).reshape(len(values), -1)
        return np.concatenate([shares, crops, mean]).T

    measures = measured(shapes, columns, statistic, len(base), repeats=repeats, seed=seed)
    for measure in measures[: len(kinds)]:
        measure.values = {name: widened_share(each, len(base)) for name, each in measure.values.items()}
    return measures
