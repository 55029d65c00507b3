"""Datasets with groups of planted junk: is it separated from the images, and does keep-top remove it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from transfer_datasets import Dataset, Images, Scored, development, jpeg
from transfer_numbers import Measured, aurocs, share

from scoring.changes import gaussian_blur
from scoring.images import decode_rgb

CLEAN = "clean"
OTHER = "other domain"
SOURCES = 160  # rows of a set that junk is made of; they are not among the clean ones
LABELLED = 0.10  # share of the rows that are given labels, where a score is fitted with some
PLANTED = (0.10, 0.30)  # of all rows
DOMAIN = {  # set -> where its images of another domain come from
    "grocery": "PACS sketch",
    "monkeys": "PACS cartoon",
    "rsscn7": "PACS sketch",
    "PACS photo": "PACS cartoon",
    "PACS cartoon": "PACS photo",
    "PACS sketch": "PACS photo",
    "PACS art": "PACS sketch",
}
Pixels = np.ndarray  # (H, W, 3), float in [0, 255]
Draw = np.random.Generator


def dark(pixels: Pixels, draw: Draw) -> Pixels:
    """Return the image at 2 to 8 % of its light."""
    return pixels * draw.uniform(0.02, 0.08)


def blurred(pixels: Pixels, draw: Draw) -> Pixels:
    """Return the image blurred by a Gaussian of 8 to 15 % of its short side."""
    sigma = draw.uniform(0.08, 0.15) * min(pixels.shape[:2])
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    return gaussian_blur(image, torch.tensor([sigma]))[0].permute(1, 2, 0).numpy()


def blank(pixels: Pixels, draw: Draw) -> Pixels:
    """Return a white, black or grey page with noise of 2 levels."""
    return np.full(pixels.shape, draw.choice([250.0, 5.0, 128.0])) + draw.normal(0, 2, pixels.shape)


def flat_colour(pixels: Pixels, draw: Draw) -> Pixels:
    """Return one colour."""
    return np.broadcast_to(draw.uniform(0, 255, 3), pixels.shape)


def noise(pixels: Pixels, draw: Draw) -> Pixels:
    """Return uniform noise."""
    return draw.uniform(0, 255, pixels.shape)


def enlarged(pixels: Pixels, draw: Draw) -> Pixels:
    """Return the image as one of 12 pixels would look, enlarged to its size."""
    height, width = pixels.shape[:2]
    scale = 12 / min(height, width)
    image = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
    small = F.interpolate(image, (max(1, round(height * scale)), max(1, round(width * scale))), mode="area").round()
    return F.interpolate(small, (height, width), mode="bicubic").clamp(0, 255)[0].permute(1, 2, 0).numpy()


MADE: dict[str, Callable[[Pixels, Draw], Pixels]] = {
    "dark": dark,
    "blur": blurred,
    "blank": blank,
    "flat colour": flat_colour,
    "noise": noise,
    "12 px enlarged": enlarged,
}
KINDS = (*MADE, OTHER)
HAVE_A_CLASS = ("dark", "blur", "12 px enlarged")  # the others are given one at random, as a crawl would


def planted(images: Images, others: Images, part: float, seed: int = 0) -> Images:
    """Return the images of a set with junk of every kind, in equal numbers, after them.

    Args:
        images: of the set; those that junk is made of are left out.
        others: of another domain.
        part: share of junk among all rows.
        seed: of every draw.
    """
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(images.data))
    sources, clean = order[: min(SOURCES, len(order) // 5)], np.sort(order[min(SOURCES, len(order) // 5) :])
    each = max(1, round(len(clean) * part / (1 - part) / len(KINDS)))
    data, label, kind = images.take(clean).data, list(images.label[clean]), [CLEAN] * len(clean)
    for name, change in MADE.items():
        for row in draw.choice(sources, each, replace=each > len(sources)):
            data.append(jpeg(change(decode_rgb(images.data[row]).astype(float), draw)))
            label.append(images.label[row] if name in HAVE_A_CLASS else draw.choice(images.label))
            kind.append(name)
    for row in draw.choice(len(others.data), each, replace=each > len(others.data)):
        data.append(others.data[row])
        label.append(draw.choice(images.label))
        kind.append(OTHER)
    return Images(data, np.array(label), kind)


def junk_dataset(data: Path, name: str, part: float, scored: Scored) -> Dataset:
    """Return a development set with junk planted in it, scored as one dataset."""
    recipe, images = development(data, name)
    other_recipe, others = development(data, DOMAIN[name])
    description = f"{recipe} {other_recipe} junk {part} {SOURCES} as JPEG"
    return scored.dataset(
        f"{name} {part:.0%} junk".replace("%", ""), description, lambda: planted(images(), others(), part)
    )


def some_clean(dataset: Dataset) -> np.ndarray:
    """Return clean rows that are given labels, a tenth as many as all rows, ascending."""
    clean = np.flatnonzero(dataset.kind == CLEAN)
    return np.sort(np.random.default_rng(0).permutation(clean)[: round(LABELLED * len(dataset.kind))])


def junk_aurocs(dataset: Dataset, scores: dict[str, np.ndarray]) -> dict[str, dict[str, Measured]]:
    """Return kind -> score -> AUROC of that kind of junk against the clean rows; ``all`` of every kind."""
    clean = dataset.kind == CLEAN
    measures = {"all": aurocs(scores, ~clean)}
    for kind in KINDS:
        measures[kind] = aurocs(scores, dataset.kind == kind, clean | (dataset.kind == kind))
    return measures


def removed(dataset: Dataset, scores: dict[str, np.ndarray]) -> dict[str, Measured]:
    """Return the share of the junk that goes when as many rows are dropped as are junk, the least certain first."""
    junk = dataset.kind != CLEAN
    shares = {}
    for name, score in scores.items():
        gone = np.zeros(len(junk), bool)
        gone[np.argsort(-score, kind="stable")[: int(junk.sum())]] = True
        shares[name] = share(gone[junk])
    return shares
