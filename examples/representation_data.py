"""Labelled pictures for the study of methods: what is trained on, and what is held out."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from scoring.images import Preprocessing
from trainers.data import TrainingSet, load_training_set


@dataclass(frozen=True)
class Source:
    """Where the pictures of a data set are: files with columns ``image`` and ``label``, and their side in pixels."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    size: int


DATASETS = {  # to add one, add a line
    "cifar10": Source(("cifar10_train.parquet",), ("cifar10_test.parquet",), 32),
    "tiny": Source(("tinyimagenet_train_a.parquet", "tinyimagenet_train_b.parquet"), ("tinyimagenet_val.parquet",), 64),
}


@dataclass(frozen=True)
class Pictures:
    """What a study trains on, and what it tests on; both with labels, which count by the same classes."""

    train: TrainingSet
    test: TrainingSet

    def drawn(self, n: int, seed: int) -> "Pictures":
        """Return the pictures of a seed: n of those to train on, and all of those to test on."""
        rows = np.random.default_rng([seed, 7]).permutation(self.train.n)[:n]
        labels = self.train.labels
        some = replace(self.train, pixels=self.train.pixels[rows], labels=None if labels is None else labels[rows])
        return replace(self, train=some)


def load_pictures(folder: Path, name: str, *, pool: int, test: int, size: int | None = None) -> Pictures:
    """Return pictures of a data set, decoded.

    Args:
        folder: holds its files.
        name: one of ``DATASETS``.
        pool: how many, from the first on, the seeds draw from.
        test: how many are held out, from the first on.
        size: side in pixels; by default that of the pictures.
    """
    source = DATASETS[name]
    reading = Preprocessing(size=size or source.size, resize=size or source.size)
    return Pictures(_read(folder, source.train, pool, reading), _read(folder, source.test, test, reading))


def _read(folder: Path, files: tuple[str, ...], n: int, reading: Preprocessing) -> TrainingSet:
    tables = [pq.read_table(folder / file, columns=["image", "label"]) for file in files]
    table = pa.concat_tables(tables)
    if len(files) > 1:  # of each file as many, whatever their order
        table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    table = table.slice(0, n)
    readers = [lambda image=image: image for image in table.column("image").to_pylist()]
    # labels are numbers already; as text of equal width they keep their order
    labels = [f"{label:04d}" for label in table.column("label").to_pylist()]
    return load_training_set(readers, labels, n=len(readers), preprocessing=reading, workers=1)
