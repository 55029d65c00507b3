"""The two frozen backbones of the URL benchmark, and the features that they give, cached once by `curate cache`."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor
from url_data import upstream

from curate.cli import app
from scoring.model import ScoringModel
from trainers.cache import PLAIN, CachedFeatures, epoch_name, open_cache
from trainers.start import find_start

UPSTREAM = "upstream"  # the name of the backbone that has seen nothing but the upstream classes to train on
BACKBONE_BATCH = 256


@dataclass(frozen=True)
class HeldFeatures(CachedFeatures):
    """Some rows of a cache, in memory; ``held`` has their features by epoch, each of shape (N, D)."""

    held: dict[int, Tensor] = field(default_factory=dict)

    def epoch(self, number: int) -> Tensor:
        """Return one epoch."""
        return self.held[number]


def some_of(cache: CachedFeatures, rows: NDArray[np.int64]) -> HeldFeatures:
    """Return some labelled rows of a cache, with the classes that they have."""
    if cache.labels is None:
        raise ValueError(f"{cache.folder} has no labels")
    at = torch.from_numpy(rows)
    used, labels = cache.labels[at].unique(return_inverse=True)
    values = {name: getattr(cache, name) for name in CachedFeatures.__dataclass_fields__}
    values |= {"n": len(rows), "labels": labels, "classes": [cache.classes[label] for label in used], "losses": None}
    return HeldFeatures(**values, held={epoch: cache.epoch(epoch)[at] for epoch in [PLAIN, *cache.augmented]})


def keys_of(cache: CachedFeatures) -> list[str]:
    """Return the key of each row, in the order of the rows."""
    keys: list[str] = pq.read_table(cache.folder / epoch_name(PLAIN), columns=["key"])["key"].to_pylist()
    return keys


def curate(*words: str) -> None:
    """Run a command in this process; one that was cut off goes on."""
    print(f"$ curate {' '.join(words)}", flush=True)
    command: Any = typer.main.get_command(app)
    if command(words, standalone_mode=False):
        raise SystemExit(f"curate {words[0]} did not end well; see above")


@dataclass(frozen=True)
class Backbone:
    """A frozen network.

    Attributes:
        name: in results and tables.
        model: the name of a model that ships, or a checkpoint.
        folder: where its features are kept.
    """

    name: str
    model: str
    folder: Path

    @cached_property
    def loaded(self) -> ScoringModel:
        """The model with the heads that it came with."""
        model = find_start(self.model).model
        if model is None:
            raise SystemExit(f"expected a shipped model or a checkpoint for a backbone, got {self.model!r}")
        return model.eval()

    @property
    def bare(self) -> ScoringModel:
        """The model without heads, for others to be trained on."""
        return ScoringModel(replace(self.loaded.spec, heads={}), backbone=self.loaded.backbone)

    def cache(self, pictures: Path, *, epochs: int) -> CachedFeatures:
        """Return the features of a table of images: as they are, and of ``epochs`` - 1 random views."""
        out = self.folder / pictures.stem
        self.folder.mkdir(parents=True, exist_ok=True)
        if not out.is_dir() or len(list(out.glob("epoch-*.parquet"))) < epochs:
            curate("cache", str(pictures), "--model", self.model, "--epochs", str(epochs), "-o", str(out), "--quiet")
        cache = open_cache(out)
        if cache.n != pq.read_metadata(pictures).num_rows:
            raise SystemExit(f"{pictures} holds images that cannot be read: {cache.failures}; expected none")
        return cache


def backbone_of(name: str, data: Path, work: Path, *, backbone: str, size: int, epochs: int) -> Backbone:
    """Return a backbone; the upstream alone's is trained first, by `curate train supervised`.

    Args:
        name: ``upstream``, or a model that ships, or a checkpoint.
        data: folder of the files.
        work: where the backbone and features are kept.
        backbone: timm's name, of the backbone to train.
        size: side in pixels, of the same.
        epochs: of its training.
    """
    if name != UPSTREAM:
        return Backbone(Path(name).stem, name, work / f"features-{Path(name).stem}")
    out, pictures = work / f"{UPSTREAM}.safetensors", work / "trunk.parquet"
    if not pictures.exists():
        upstream(data, per_class=None).write(pictures)
    if not out.exists():
        batch = min(BACKBONE_BATCH, pq.read_metadata(pictures).num_rows)
        curate(
            *("train", "supervised", str(pictures), "-o", str(out), "--backbone", backbone, "--size", str(size)),
            *("--epochs", str(epochs), "--batch-size", str(batch), "--lr", "0.2", "--set", "schedule=cosine"),
            *("--set", "warmup=0.05", "--precision", "bf16", "--quiet"),
        )
    return Backbone(UPSTREAM, str(out), work / f"features-{UPSTREAM}")
