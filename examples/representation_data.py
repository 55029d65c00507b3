"""Labelled images for the study of methods: what is trained on, and what is held out."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch
from torch import Tensor

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import StudyData, open_data
from named_data import add_data as add_data

from scoring.images import Preprocessing
from trainers.data import TrainingSet, load_training_set, number_labels


@dataclass(frozen=True)
class Source:
    """Where the images of a data set are.

    Attributes:
        train: files with columns ``image`` and ``label``.
        test: the same; empty where the test images are some of the others, drawn once, and held out for all seeds.
        size: side in pixels.
        style: the column of how an image is drawn, whatever is on it; empty if unknown.
        split: the column that is "test" for the test images, where they are in one file with the others.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    size: int
    style: str = ""
    split: str = ""


DATASETS = {  # to add one, add a line
    "cifar10": Source(("cifar10_train.parquet",), ("cifar10_test.parquet",), 32),
    "tiny": Source(("tinyimagenet_train_a.parquet", "tinyimagenet_train_b.parquet"), ("tinyimagenet_val.parquet",), 64),
    "pacs": Source(("pacs_160.parquet",), (), 64, "domain"),
    "caltech": Source(("caltech_subset.parquet",), (), 64),
    "rsscn7": Source(("rsscn7_160.parquet",), (), 64),
    "grocery": Source(("grocery_160.parquet",), (), 64, split="split"),  # a crate may have been photographed twice
}


def use_data(folders: Sequence[str] | None) -> StudyData:
    """Return the data that ``--data`` names; sets of yours join ``DATASETS``."""
    data = open_data(folders, dict.fromkeys(file for name in DATASETS for file in files_of(name)), sets=True)
    DATASETS.update({name: Source((f"{name}.parquet",), (), 64) for name in data.added})
    return data


def files_of(name: str) -> list[str]:
    """Return the names of the files of a data set."""
    return [Path(file).stem for file in (*DATASETS[name].train, *DATASETS[name].test)]


@dataclass(frozen=True)
class Pictures:
    """What a study trains on, and what it tests on; both with labels, which count by the same classes.

    ``styles`` are numbers of how each is drawn, int64, of both in turn, or None.
    """

    train: TrainingSet
    test: TrainingSet
    styles: tuple[Tensor, Tensor] | None = None

    def drawn(self, n: int, seed: int) -> "Pictures":
        """Return the images of a seed: n of those to train on, and all of those to test on."""
        rows = np.random.default_rng([seed, 7]).permutation(self.train.n)[:n]
        labels = self.train.labels
        some = replace(self.train, pixels=self.train.pixels[rows], labels=None if labels is None else labels[rows])
        styles = None if self.styles is None else (self.styles[0][rows], self.styles[1])
        return replace(self, train=some, styles=styles)


def load_pictures(folder: Path, name: str, *, pool: int, test: int, size: int | None = None) -> Pictures:
    """Return images of a data set, decoded.

    Args:
        folder: holds its files.
        name: one of ``DATASETS``.
        pool: how many, from the first on, the seeds draw from.
        test: how many are held out, from the first on; of a set that holds its test images in the same file, and does
            not say which, a third at most.
        size: side in pixels; by default the images'.
    """
    source = DATASETS[name]
    reading = Preprocessing(size=size or source.size, resize=size or source.size)
    known = _table(folder, source.train, source)
    if source.test:
        held = _table(folder, source.test, source).slice(0, test)
    elif source.split:
        is_test = pc.equal(known.column(source.split), "test")
        known, held = known.filter(pc.invert(is_test)), known.filter(is_test).slice(0, test)
    else:
        test = min(test, known.num_rows // 3)
        known, held = known.slice(test), known.slice(0, test)
    known = known.slice(0, pool)
    pictures = Pictures(*_by_the_same_classes(_read(known, reading), _read(held, reading)))
    if not source.style:
        return pictures
    styles, _ = number_labels([*known.column(source.style).to_pylist(), *held.column(source.style).to_pylist()])
    return replace(pictures, styles=(styles[: known.num_rows], styles[known.num_rows :]))


def _table(folder: Path, files: tuple[str, ...], source: Source) -> pa.Table:
    columns = ["image", "label", *(name for name in (source.style, source.split) if name)]
    table = pa.concat_tables([pq.read_table(folder / file, columns=columns) for file in files])
    if len(files) > 1 or not source.test:  # of each file, class and style as many, whatever their order
        table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    return table


def _by_the_same_classes(*parts: TrainingSet) -> tuple[TrainingSet, ...]:
    """Return sets whose labels count by the classes of all of them: one of few images may lack some."""
    classes = sorted({name for part in parts for name in part.classes})
    sets_of = []
    for part in parts:
        number = torch.tensor([classes.index(name) for name in part.classes])
        sets_of.append(replace(part, classes=classes, labels=None if part.labels is None else number[part.labels]))
    return tuple(sets_of)


def _read(table: pa.Table, reading: Preprocessing) -> TrainingSet:
    readers = [lambda image=image: image for image in table.column("image").to_pylist()]
    # labels are numbers already; as text of equal width they keep their order
    labels = [f"{label:04d}" for label in table.column("label").to_pylist()]
    return load_training_set(readers, labels, n=len(readers), preprocessing=reading, workers=1)
