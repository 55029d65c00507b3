"""Labelled pictures for the study of methods: what is trained on, and what is held out."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from scoring.images import Preprocessing
from trainers.data import TrainingSet, load_training_set, number_labels


@dataclass(frozen=True)
class Source:
    """Where the pictures of a data set are.

    Attributes:
        train: files with columns ``image`` and ``label``.
        test: the same; empty where the test pictures are some of the others, drawn once, and held out for all seeds.
        size: side in pixels.
        style: the column of how a picture is drawn, whatever is on it; empty where nobody says.
    """

    train: tuple[str, ...]
    test: tuple[str, ...]
    size: int
    style: str = ""


DATASETS = {  # to add one, add a line
    "cifar10": Source(("cifar10_train.parquet",), ("cifar10_test.parquet",), 32),
    "tiny": Source(("tinyimagenet_train_a.parquet", "tinyimagenet_train_b.parquet"), ("tinyimagenet_val.parquet",), 64),
    "pacs": Source(("pacs_160.parquet",), (), 64, "domain"),
}


@dataclass(frozen=True)
class Pictures:
    """What a study trains on, and what it tests on; both with labels, which count by the same classes.

    ``styles`` are numbers of how each is drawn, int64, of both in turn, or None.
    """

    train: TrainingSet
    test: TrainingSet
    styles: tuple[Tensor, Tensor] | None = None

    def drawn(self, n: int, seed: int) -> "Pictures":
        """Return the pictures of a seed: n of those to train on, and all of those to test on."""
        rows = np.random.default_rng([seed, 7]).permutation(self.train.n)[:n]
        labels = self.train.labels
        some = replace(self.train, pixels=self.train.pixels[rows], labels=None if labels is None else labels[rows])
        styles = None if self.styles is None else (self.styles[0][rows], self.styles[1])
        return replace(self, train=some, styles=styles)


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
    known = _table(folder, source.train, source.style)
    held = _table(folder, source.test, source.style) if source.test else known
    known = known.slice(0 if source.test else test, pool)
    train, answers = _read(known, reading), _read(held.slice(0, test), reading)
    if not source.style:
        return Pictures(train, answers)
    styles, _ = number_labels([*known.column(source.style).to_pylist(), *held.column(source.style).to_pylist()[:test]])
    return Pictures(train, answers, (styles[: train.n], styles[train.n :]))


def _table(folder: Path, files: tuple[str, ...], style: str) -> pa.Table:
    columns = ["image", "label", *([style] if style else [])]
    table = pa.concat_tables([pq.read_table(folder / file, columns=columns) for file in files])
    if len(files) > 1 or style:  # of each file, or style, as many, whatever their order
        table = table.take(np.random.default_rng(0).permutation(table.num_rows))
    return table


def _read(table: pa.Table, reading: Preprocessing) -> TrainingSet:
    readers = [lambda image=image: image for image in table.column("image").to_pylist()]
    # labels are numbers already; as text of equal width they keep their order
    labels = [f"{label:04d}" for label in table.column("label").to_pylist()]
    return load_training_set(readers, labels, n=len(readers), preprocessing=reading, workers=1)
