"""Analyses of a certainty by the images behind a table: by answer, augmentation, crop, and pairs of views."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from curate.probes.linear import LinearProbe, fit_linear_probe
from curate.statistics.calibrators import logistic_regression
from curate.statistics.degradations import AUGMENTATIONS, WORSE, Change, resize
from scoring.metrics.proportions import wilson
from scoring.metrics.resampling import permutation_test_linear
from scoring.model import ScoringModel
from trainers.augment import Draw, view
from trainers.methods.settings import Augmentation

BINS = 20
DRAWS = 5  # of each augmentation
BLOCK = 256  # images that the network reads at a time
VIEWS: dict[str, Change] = {
    "plain": lambda images, generator: images,
    "blur": WORSE["blur"],
    "colour jitter": AUGMENTATIONS["colour jitter"],
    "greyscale": AUGMENTATIONS["greyscale"],
    "random crop": AUGMENTATIONS["random crop"],
}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Pictures:
    """N labelled images.

    Attributes:
        pixels: uint8, shape (N, 3, S, S); S is twice the model's side, so that a crop has its own pixels.
        label: shape (N,), int64, from 0.
        n_classes: of the labels.
    """

    pixels: Tensor
    label: NDArray[np.int64]
    n_classes: int

    def __len__(self) -> int:
        return len(self.label)

    def take(self, rows: NDArray[np.int64]) -> "Pictures":
        """Return some of them."""
        return Pictures(self.pixels[torch.from_numpy(rows)], self.label[rows], self.n_classes)


@dataclass(frozen=True)
class Eye:
    """A model, and the column of it that is studied."""

    model: ScoringModel
    column: str

    @torch.inference_mode()
    def look(self, pixels: Tensor, change: Callable[[Tensor], Tensor] = lambda images: images) -> tuple[Tensor, Floats]:
        """Return embeddings, shape (N, E), and the column, shape (N,), of images that were changed first."""
        side = self.model.spec.preprocessing.size
        embeddings, values = [], []
        for block in pixels.split(BLOCK):
            said = self.model(resize(change(block.float()), side).round())
            embeddings.append(said.embedding)
            values.append(said.columns[self.column].double())
        return torch.cat(embeddings), torch.cat(values).numpy()


def probe_of(eye: Eye, pictures: Pictures) -> LinearProbe:
    """Return a linear classifier of the embeddings of images as they are."""
    rows, _ = eye.look(pictures.pixels)
    return fit_linear_probe(rows.numpy(), pictures.label, pictures.n_classes, calibrate=False)


def is_right(probe: LinearProbe, rows: Tensor, label: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether the classifier is right, shape (N,)."""
    return probe.predict(rows.numpy()).argmax(1) == label


@dataclass(frozen=True)
class Histogram:
    """A certainty next to being right.

    Attributes:
        edges: of the bins, shape (B + 1,).
        right: rows that are right in each, shape (B,).
        wrong: rows that are wrong.
        accuracy: share that is right with its 95 % Wilson interval, shape (B, 3); NaN where a bin is empty.
        coefficient: of the logistic regression, per unit of the column.
        intercept: of the same.
        p: share of 1,000 shuffles that relate as much, against no or the other relation; one-sided.
    """

    edges: Floats
    right: NDArray[np.int64]
    wrong: NDArray[np.int64]
    accuracy: Floats
    coefficient: float
    intercept: float
    p: float

    def curve(self, x: Floats) -> Floats:
        """Return the probability of being right by the regression."""
        return 1 / (1 + np.exp(-(self.coefficient * x + self.intercept)))


def histogram(certainty: Floats, right: NDArray[np.bool_], *, bins: int = BINS, seed: int = 0) -> Histogram:
    """Return how a certainty and being right go together.

    Args:
        certainty: higher is more certain, finite, shape (N,).
        right: shape (N,).
        bins: of equal width.
        seed: of the shuffles.

    Source: Nakamura et al. 2023, arXiv:2203.11437, figure 9, appendices C and J.
    """
    edges = np.histogram_bin_edges(certainty, bins)
    hits, misses = (np.histogram(certainty[of], edges)[0] for of in (right, ~right))
    shares = np.array([wilson(a, a + b) for a, b in zip(hits, misses, strict=True)])
    fit = logistic_regression(certainty, right)
    p = permutation_test_linear(certainty[None], right, repeats=1000, seed=seed)[0]
    return Histogram(edges, hits, misses, shares, fit.coefficient, fit.intercept, float(p))


def by_view(eye: Eye, pictures: Pictures, right: NDArray[np.bool_], *, seed: int = 0) -> dict[str, dict[str, Floats]]:
    """Return view -> rows that count -> the column of each row and draw, shape (draws, N of these).

    Source: tables 3 and 4 of Nakamura et al. 2023, which draw each augmentation five times.
    """
    generator = torch.Generator().manual_seed(seed)
    columns = {}
    for name, change in VIEWS.items():
        draws = 1 if name in ("plain", "blur", "greyscale") else DRAWS  # these three draw nothing
        values = np.stack(
            [
                eye.look(pictures.pixels, lambda images, change=change: change(images, generator))[1]
                for _ in range(draws)
            ]
        )
        columns[name] = {"all": values, "right": values[:, right], "wrong": values[:, ~right]}
    return columns


class Drawn:
    """Draws one random view of every image that passes, block after block; the same seed draws the same views."""

    def __init__(self, size: int, scale: tuple[float, float], recipe: Augmentation, seed: int) -> None:
        self.size, self.scale, self.recipe, self.seed, self.seen = size, scale, recipe, seed, 0

    def __call__(self, images: Tensor) -> Tensor:
        """Return views, shape (B, 3, size, size), of the next B images."""
        draw = Draw(len(images), images.device, self.seed * 1_000_003 + self.seen)
        self.seen += len(images)
        return view(images, self.size, self.scale, self.recipe, draw)


def shown_views(
    eye: Eye, pictures: Pictures, *, sign: float, crops: int = 30, seed: int = 0
) -> dict[str, tuple[Tensor, Floats]]:
    """Return views by name, float32 of shape (N, 3, S, S), and the column of each: of images and random crops of them.

    Args:
        eye: the model.
        pictures: the images that are viewed.
        sign: 1 where a higher column is more certain, -1 where it is less.
        crops: to choose the most and the least certain of, for each image.
        seed: of the views.

    Source: Nakamura et al. 2023, figures 7 and 8.
    """
    generator = torch.Generator().manual_seed(seed)

    def looked(name: str) -> tuple[Tensor, Floats]:
        changed = VIEWS[name](pictures.pixels.float(), generator)
        return changed, eye.look(changed)[1]

    drawn = [looked("random crop") for _ in range(crops)]
    pixels, values = torch.stack([each for each, _ in drawn]), np.stack([each for _, each in drawn])  # (crops, N, ...)
    chosen = {"plain": looked("plain")}
    for name, best in (
        ("most certain crop", (sign * values).argmax(0)),
        ("least certain crop", (sign * values).argmin(0)),
    ):
        rows = np.arange(len(pictures))
        chosen[name] = pixels[best, rows], values[best, rows]
    return chosen | {name: looked(name) for name in VIEWS if name not in ("plain", "random crop")}


@dataclass(frozen=True)
class Crops:
    """Accuracy and the mean of the column: of images as they are, of one random crop, and of the most certain crop."""

    plain: tuple[float, float]
    random: tuple[float, float]
    best: tuple[float, float]


def best_crop(
    eye: Eye, probe: LinearProbe, pictures: Pictures, *, sign: float, n: int = 30, least: float = 0.2, seed: int = 0
) -> Crops:
    """Return what taking the most certain of n random crops of each image does to a classifier's accuracy.

    Args:
        eye: the model.
        probe: fitted on other images as they are.
        pictures: to classify.
        sign: 1 where a higher column is more certain, -1 where it is less.
        n: crops an image.
        least: the smallest share of the area that a crop shows.
        seed: of the crops.

    Source: table 5 of Nakamura et al. 2023.
    """
    side = eye.model.spec.preprocessing.size
    recipe = Augmentation(jitter=0, gray=0, blur=0)
    rows, values = eye.look(pictures.pixels)
    plain = float(is_right(probe, rows, pictures.label).mean()), float(values.mean())
    surest, kept, random = np.full(len(pictures), -np.inf), torch.zeros_like(rows), plain
    for number in range(n):
        rows, values = eye.look(pictures.pixels, Drawn(side, (least, 1.0), recipe, seed * n + number))
        if not number:
            random = float(is_right(probe, rows, pictures.label).mean()), float(values.mean())
        better = sign * values > surest
        surest[better] = sign * values[better]
        kept[torch.from_numpy(better)] = rows[torch.from_numpy(better)]
    return Crops(plain, random, (float(is_right(probe, kept, pictures.label).mean()), float((sign * surest).mean())))


def cosines(eye: Eye, pictures: Pictures, *, n: int = 4, seed: int = 0) -> Floats:
    """Return the mean cosine of the embeddings of n random views of each image, in pairs, shape (N,).

    It is what SimSiam itself could say of an image: views that agree.

    Source: Nakamura et al. 2023, appendix K; views as appendix B draws them.
    """
    side, recipe = eye.model.spec.preprocessing.size, Augmentation()
    drawn = [Drawn(side, recipe.scale, recipe, seed * n + number) for number in range(n)]
    embeddings = [eye.look(pictures.pixels, each)[0] for each in drawn]
    together = F.normalize(torch.stack(embeddings), dim=2).sum(0)
    return ((together.square().sum(1) - n) / (n * (n - 1))).double().numpy()


def few_labels(
    rows: Mapping[str, NDArray],
    label: NDArray[np.int64],
    shares: tuple[float, ...],
    *,
    draws: int = 3,
    test: float = 0.5,
) -> dict[str, dict[float, Floats]]:
    """Return name -> share of the labels -> accuracy of a linear probe on the other half of the rows, shape (draws,).

    Every draw takes the same share of each class, one at least; all names see the same draws.

    Args:
        rows: name -> embeddings, shape (N, E).
        label: shape (N,).
        shares: of the labels of the half that is learned from.
        draws: how many times.
        test: share of the rows that is requested.
    """
    accuracies: dict[str, dict[float, list[float]]] = {name: {share: [] for share in shares} for name in rows}
    n_classes = int(label.max()) + 1
    for draw in range(draws):
        order = np.random.default_rng(draw).permutation(len(label))
        tested, pool = order[: round(test * len(order))], order[round(test * len(order)) :]
        for share in shares:
            known = np.concatenate(
                [
                    of[: max(1, round(share * len(of)))]
                    for each in range(n_classes)
                    if len(of := pool[label[pool] == each])
                ]
            )
            for name, vectors in rows.items():
                probe = fit_linear_probe(vectors[known], label[known], n_classes, calibrate=False)
                right = probe.predict(vectors[tested]).argmax(1) == label[tested]
                accuracies[name][share].append(float(right.mean()))
    return {name: {share: np.array(values) for share, values in by.items()} for name, by in accuracies.items()}
