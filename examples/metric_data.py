"""Labelled images as features, for the study of metric learning: half the classes to learn from, half held out."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import StudyData, open_data
from named_data import add_data as add_data

from curate.statistics.degradations import center_crops
from scoring.changes import gaussian_blur
from scoring.images import decode
from scoring.images.quality import MEASURES
from scoring.model import ScoringModel
from trainers.cache import PLAIN, CachedFeatures, open_cache

EPOCHS = 3  # of a cache: the images, and two views of each
MOST_BLUR = 0.06  # sigma, as a share of the side
LEAST_CROP = 0.1  # of the side
BLOCK = 64


@dataclass(frozen=True)
class Source:
    """Files with columns ``image`` and ``label``, how many images of a class to take, and how to train on them.

    Rates and epochs were chosen with ProxyNCA++ and EL-nivMF on classes drawn by the seeds 100 and 101.
    """

    files: tuple[str, ...]
    lr: float
    epochs: int
    per_class: int = 1 << 30


DATASETS = {  # to add one, add a line
    "tiny": Source(tuple(f"tinyimagenet_train_{part}.parquet" for part in "abc"), 1e-4, 6, 60),
    "caltech": Source(("caltech_subset.parquet",), 1e-4, 10, 100),
    "grocery": Source(("grocery_160.parquet",), 3e-4, 30),
}


def use_data(folders: Sequence[str] | None) -> StudyData:
    """Return the data that ``--data`` names; sets of yours join ``DATASETS``."""
    data = open_data(folders, dict.fromkeys(file for name in DATASETS for file in files_of(name)), sets=True)
    DATASETS.update({name: Source((f"{name}.parquet",), 1e-4, 10, 100) for name in data.added})
    return data


def files_of(name: str) -> list[str]:
    """Return the names of the files of a data set."""
    return [Path(file).stem for file in DATASETS[name].files]


@dataclass(frozen=True)
class SomeRows(CachedFeatures):
    """Some rows of a cache, which training takes for its own cache."""

    complete: CachedFeatures | None = None
    rows: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.long))

    def epoch(self, number: int) -> Tensor:
        """Read the rows of one epoch."""
        if self.complete is None:
            raise ValueError("rows are a cache's")
        return self.complete.epoch(number)[self.rows]


@dataclass(frozen=True)
class Worse:
    """Copies of some images that are worse, each by its own amount, and what is measured of the images.

    Attributes:
        rows: which images, shape (W,).
        features: kind of copy -> shape (W, D).
        strength: kind of copy -> how much worse, higher is worse, shape (W,).
        quality: measure -> of the images themselves, NaN where it does not exist, shape (W,).
    """

    rows: Tensor
    features: dict[str, Tensor]
    strength: dict[str, NDArray[np.float64]]
    quality: dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class Dataset:
    """A data set as features.

    Attributes:
        cache: of all images.
        labels: int64, shape (N,).
        plain: features of the images as they are, float32, shape (N, D).
        worse: copies of some of them.
    """

    cache: CachedFeatures
    labels: Tensor
    plain: Tensor
    worse: Worse

    def split(self, seed: int) -> tuple[SomeRows, Tensor]:
        """Return what to learn from, and the rows held out: half of the classes each, drawn by the seed.

        Raises:
            SystemExit: for fewer than four classes, in one line.
        """
        if len(self.cache.classes) < 4:
            raise SystemExit(f"error: expected 4 classes or more, half to learn from, got {len(self.cache.classes)}")
        classes = torch.from_numpy(np.random.default_rng([seed, 5]).permutation(len(self.cache.classes)))
        known = classes[: len(classes) // 2].sort().values
        is_known = torch.isin(self.labels, known)
        rows = is_known.nonzero().flatten()
        cache = self.cache
        values_of = {name: getattr(cache, name) for name in cache.__dataclass_fields__}
        values_of |= {"n": len(rows), "labels": torch.searchsorted(known, self.labels[rows])}
        values_of |= {"classes": [cache.classes[at] for at in known.tolist()]}
        return SomeRows(**values_of, complete=cache, rows=rows), (~is_known).nonzero().flatten()


def load_dataset(folder: Path, name: str, work: Path, model: ScoringModel, *, worse: int) -> Dataset:
    """Return a data set as features; what is there already is not made again.

    Args:
        folder: holds the files of the data set.
        name: one of ``DATASETS``.
        work: where tables and caches go.
        model: the one that ships by the name ``world``.
        worse: how many images to make corrupted copies of.
    """
    source = write_source(folder, DATASETS[name], work / f"{name}.parquet")
    cache = work / f"{name}-features"
    if not cache.exists() or len(list(cache.glob("epoch-*.parquet"))) < EPOCHS:
        words = ["cache", source, "-o", cache, "--model", "world", "--epochs", EPOCHS,
                 "--set", "scale=0.25", "--set", "jitter=0", "--set", "gray=0", "--set", "blur=0",
                 "--quiet"]  # fmt: skip
        print("$ curate " + " ".join(map(str, words)), flush=True)
        subprocess.run([sys.executable, "-m", "curate", *map(str, words)], check=True)
    opened = open_cache(cache)
    table = pq.read_table(source)
    if opened.labels is None or opened.n != table.num_rows:
        raise SystemExit(f"{cache} holds {opened.n} of {table.num_rows} images of {source}; some could not be read")
    kept = work / f"{name}-worse.npz"
    if not kept.exists():
        np.savez(kept, **made_worse(table, model, worse))  # type: ignore[arg-type]
    with np.load(kept) as arrays:
        copies = Worse(
            torch.from_numpy(arrays["rows"]),
            {kind: torch.from_numpy(arrays[f"{kind} features"]).float() for kind in ("blur", "crop")},
            {kind: arrays[f"{kind} strength"] for kind in ("blur", "crop")},
            {measure: arrays[f"quality {measure}"] for measure in MEASURES},
        )
    return Dataset(opened, opened.labels, opened.epoch(PLAIN).float(), copies)


def write_source(folder: Path, source: Source, out: Path) -> Path:
    """Write the images of a data set, of each class as many as are wanted; text for labels, whose order they keep."""
    if not out.exists():
        tables = [pq.read_table(folder / file, columns=["image", "label"]) for file in source.files]
        table = pa.concat_tables(tables)
        _, labels = np.unique(table.column("label").to_numpy(zero_copy_only=False), return_inverse=True)
        order = np.random.default_rng(0).permutation(len(labels))
        order = order[np.argsort(labels[order], kind="stable")]
        first = np.searchsorted(labels[order], labels[order])  # where the class of each begins
        rows = np.sort(order[np.arange(len(order)) - first < source.per_class])
        names = pa.array([f"{label:04d}" for label in labels[rows]])
        part = out.with_suffix(".part")
        pq.write_table(pa.table({"image": table.column("image").take(pa.array(rows)), "label": names}), part)
        part.replace(out)
    return out


@torch.inference_mode()
def made_worse(table: pa.Table, model: ScoringModel, count: int) -> dict[str, NDArray]:
    """Return the arrays of ``Worse`` by name: blurred by any amount, and cropped to the middle by any amount."""
    draw = np.random.default_rng(1)
    rows = np.sort(draw.permutation(table.num_rows)[:count])
    side = model.spec.preprocessing.size
    decoded = [decode(table.column("image")[row].as_py(), model.spec.preprocessing, with_quality=True) for row in rows]
    pixels = torch.from_numpy(np.stack([image.pixels for image in decoded])).permute(0, 3, 1, 2).float()
    blurs, crops = draw.uniform(0.002, MOST_BLUR, len(rows)), draw.uniform(LEAST_CROP, 1, len(rows))
    changed = {
        "blur": gaussian_blur(pixels, torch.from_numpy(blurs * side).float()),
        "crop": center_crops(pixels, torch.from_numpy(crops)),
    }
    arrays: dict[str, NDArray] = {"rows": rows, "blur strength": blurs, "crop strength": 1 - crops}
    for kind, images in changed.items():
        arrays[f"{kind} features"] = torch.cat([model.features(block) for block in images.split(BLOCK)]).numpy()
    for measure in MEASURES:
        values = [getattr(image.quality, measure) for image in decoded]
        arrays[f"quality {measure}"] = np.array([np.nan if value is None else value for value in values], np.float64)
    return arrays
