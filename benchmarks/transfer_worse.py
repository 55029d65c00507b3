"""Does a score see that a copy is worse: the same square, changed at its original size, then scored like any image."""

from pathlib import Path

import numpy as np
import torch
from transfer_datasets import DEVELOPMENT, Dataset, Images, Scored, development, images_of, png, square, stamp
from transfer_numbers import Measured, share
from transfer_scores import centred

from curate.statistics.degradations import WORSE

ROWS = 200  # of each set
CLEAN = "clean"
LARGE = "caltech_subset"  # photographs at the size in which they were published


def copies(images: Images) -> Images:
    """Return the central squares of images as they are, then changed in each way; all without loss."""
    squares = [square(data) for data in images.data]
    files, kinds = [png(each.permute(1, 2, 0).numpy()) for each in squares], [CLEAN] * len(squares)
    for kind, change in WORSE.items():
        generator = torch.Generator().manual_seed(0)
        files += [png(change(each[None], generator)[0].permute(1, 2, 0).numpy()) for each in squares]
        kinds += [kind] * len(squares)
    return Images(files, np.tile(images.label, 1 + len(WORSE)), kinds)


def scored_copies(data: Path, name: str, scored: Scored) -> Dataset:
    """Return the copies of the first images of a set, spread over it; ``LARGE`` is a set, too."""
    path = data / f"{LARGE}.parquet"
    recipe, make = development(data, name) if name in DEVELOPMENT else (stamp(path), lambda: images_of(path))

    def made() -> Images:
        images = make()
        return copies(images.take(chosen(len(images.data))))

    return scored.dataset(f"{name} worse", f"{recipe} worse {ROWS}", made, keep_images=False)


def chosen(n: int) -> np.ndarray:
    """Return the rows of a set that copies are made of, ascending."""
    return np.sort(np.random.default_rng(0).permutation(n)[:ROWS])


def near_originals(dataset: Dataset, worse: Dataset) -> dict[str, np.ndarray]:
    """Return the distance of each copy to the nearest row of the dataset other than its own original, (M,) each."""
    rows = chosen(len(dataset.label))
    originals = torch.from_numpy(np.tile(rows, len(worse.label) // len(rows)))
    distances = {}
    mean = dataset.embedding.mean(0)
    pairs = {
        "nearest, raw": (worse.embedding, dataset.embedding),
        "nearest, centred": (centred(worse.embedding, mean), centred(dataset.embedding)),
    }
    for name, (copy, original) in pairs.items():
        cosine = copy @ original.T
        cosine[torch.arange(len(originals)), originals] = -torch.inf
        distances[name] = 1 - cosine.amax(1).double().numpy()
    return distances


def seen(worse: Dataset, scores: dict[str, np.ndarray]) -> dict[str, dict[str, Measured]]:
    """Return kind -> score -> the share of copies with a strictly higher uncertainty than the clean one."""
    scores = {**worse.scores, **scores, "lower Laplacian": worse.baselines["lower Laplacian"]}
    clean = worse.kind == CLEAN
    return {
        kind: {name: share(score[worse.kind == kind] > score[clean]) for name, score in scores.items()}
        for kind in WORSE
    }
