"""What needs no training: chance level, the image alone, the length of its features, and how it is in its dataset."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
import torch.nn.functional as F
from torch import Tensor
from url_estimators import BLOCK
from url_measures import Floats, Measured, Rows, crops_of

from curate.statistics.degradations import laplacian_variance
from scoring.images import Preprocessing, decode, decode_rgb
from scoring.metrics.neighbours import nearest
from scoring.model import ScoringModel
from scoring.relative.fit import fit_dataset

SHARP_SIZE = 128  # side at which sharpness is measured, of whole images and of crops alike
FITTED = "unc_fitted"


@dataclass(frozen=True)
class Plain:
    """What the images themselves say.

    Attributes:
        bytes_per_pixel: of the files, shape (N,).
        sharpness: variance of the Laplacian of whole images at one size, shape (N,).
        sharpness_of_crops: the same of crops, shape (K,).
    """

    bytes_per_pixel: Floats
    sharpness: Floats
    sharpness_of_crops: Floats

    @classmethod
    def of(cls, full: Path, crops: Path) -> "Plain":
        """Read two tables of images."""
        images = [pq.read_table(path, columns=["image"])["image"].to_pylist() for path in (full, crops)]
        sizes = np.array([len(image) / np.prod(decode_rgb(image).shape[:2]) for image in images[0]])
        return cls(sizes, *(np.array([sharpness(image) for image in some]) for some in images))


def sharpness(image: bytes) -> float:
    """Return the variance of the Laplacian of an image at ``SHARP_SIZE`` pixels."""
    pixels = decode(image, Preprocessing(size=SHARP_SIZE, resize=SHARP_SIZE)).pixels
    if pixels is None:
        raise SystemExit("an image of the benchmark cannot be read; expected none")
    return float(laplacian_variance(torch.from_numpy(pixels).permute(2, 0, 1)[None]))


@dataclass(frozen=True)
class Known:
    """What baselines may use: the model with the heads that it came with, features, and the images themselves."""

    model: ScoringModel
    measured: Measured
    plain: Plain

    @cached_property
    def embedding_of_crops(self) -> Tensor:
        """Unit vectors, shape (K, E)."""
        return embedded(self.model, self.measured.crops)


@torch.inference_mode()
def embedded(model: ScoringModel, features: Tensor) -> Tensor:
    """Return unit vectors, shape (N, E)."""
    return torch.cat([model.embed(rows).float() for rows in features.split(BLOCK)])


Said = tuple[Floats, Floats | None]  # of the rows of a dataset, and of crops; None where it says nothing of them
Baseline = Callable[[Known, Rows, Rows, int], Said]


def chance_level(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return numbers drawn by seed."""
    generator = np.random.default_rng([seed, len(rows), int(rows[0])])
    return generator.random(len(rows)), generator.random(len(crops))


def fewer_bytes(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return how few bytes a pixel the file has; of crops, which were stored again, nothing."""
    return -known.plain.bytes_per_pixel[rows], None


def less_sharp(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return how small the variance of the Laplacian is."""
    return -known.plain.sharpness[rows], -known.plain.sharpness_of_crops[crops]


def shorter(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return one over the length of the backbone's features."""
    full, parts = known.measured.features[rows], known.measured.crops[crops]
    return (1 / full.double().norm(dim=1)).numpy(), (1 / parts.double().norm(dim=1)).numpy()


def alone(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return the distance to the nearest other row after centring; of a crop, to one of another image."""
    embedding = known.measured.embedding[rows]
    mean = embedding.mean(0)
    middle = F.normalize(embedding - mean, dim=1)
    full = 1 - nearest(middle, middle, 1, same=True)[0][:, 0].double().numpy()
    if not len(crops):
        return full, None
    cosine, index = nearest(F.normalize(known.embedding_of_crops[crops] - mean, dim=1), middle, 2)
    originals = torch.from_numpy(np.searchsorted(rows, known.measured.crop_rows[crops]))
    other = torch.where(index[:, 0] == originals, cosine[:, 1], cosine[:, 0])
    return full, 1 - other.double().numpy()


def fitted(known: Known, rows: Rows, crops: Rows, seed: int) -> Said:
    """Return what `curate fit` without labels says of the dataset that it is fitted to, and of crops as new rows."""
    fit, said = fit_dataset(known.measured.embedding[rows].numpy())
    full = said.columns[FITTED].astype(np.float64)
    if not len(crops):
        return full, None
    new = fit.score(known.embedding_of_crops[crops].numpy())
    return full, new.columns[FITTED].astype(np.float64)


BASELINES: dict[str, Baseline] = {  # to add one, add a line
    "chance level": chance_level,
    "fewer bytes a pixel": fewer_bytes,
    "less sharp": less_sharp,
    "shorter features": shorter,
    "nearest other, centred": alone,
    FITTED: fitted,
}
OF_PICTURES = ("fewer bytes a pixel", "less sharp")


def baseline_answers(name: str, known: Known, seed: int) -> dict[str, Floats]:
    """Return what a baseline says of every dataset, each requested on its own."""
    measured, answers = known.measured, {}
    for dataset, rows in measured.datasets.items():
        crops = measured.crops_in(dataset) if dataset in measured.sets else np.zeros(0, np.int64)
        full, parts = BASELINES[name](known, rows, crops, seed)
        answers[dataset] = full
        if parts is not None and len(parts):
            answers[crops_of(dataset)] = parts
    return answers
