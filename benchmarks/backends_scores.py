"""What a way to run a network does to its scores: embeddings, columns and what is done with them, next to float32."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import spearmanr
from torch import Tensor

from curate.engines.settings import MAX_PIXELS
from curate.manifest.sources import open_manifest
from scoring.images import decode
from scoring.images.raster import DecodeOptions
from scoring.model import Outputs, ScoringModel

BATCH = 64
ALIKE = 0.95  # cosine of a pair to look at
Features = Callable[[Tensor], Tensor]  # pixels (N, 3, S, S), uint8, channels last -> features (N, D)


@dataclass(frozen=True)
class Images:
    """Decoded images, (N, 3, S, S), uint8, channels last, and the folder that each is in."""

    pixels: Tensor
    folders: np.ndarray


def read(source: str, model: ScoringModel, limit: int) -> Images:
    """Return images of a source, evenly spread over it."""
    manifest = open_manifest(source)
    keys, readers = manifest.rows(0, manifest.n_rows).column("key").to_pylist(), manifest.readers(0, manifest.n_rows)
    every, pixels, folders = max(1, manifest.n_rows // limit), [], []
    for at, (key, read_bytes) in enumerate(zip(keys, readers, strict=True)):
        if at % every == 0:
            image = decode(read_bytes(), model.spec.preprocessing, DecodeOptions(MAX_PIXELS), with_quality=False)
            if image.pixels is not None:
                pixels.append(image.pixels)
                folders.append(key.rpartition("/")[0])
    return Images(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2), np.array(folders))


def scored(model: ScoringModel, way: Features, images: Tensor) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    outputs: list[Outputs] = []
    with torch.inference_mode():
        for part in images.split(BATCH):
            outputs.append(model.read(way(part).clone(), part))
    columns = {name: torch.cat([batch.columns[name] for batch in outputs]).numpy() for name in outputs[0].columns}
    return torch.cat([batch.embedding for batch in outputs]).numpy(), columns


def scores(model: ScoringModel, exactly: Features, ways: dict[str, Features], images: Images) -> None:
    """Print how far embeddings and columns lie from eager float32's, and what is done with them."""
    exact, columns = scored(model, exactly, images.pixels)
    n = len(exact)
    print(
        f"{n:,} images, next to eager fp32: cosine of the two embeddings; the nearest other image the same; 5 nearest"
    )
    print("vote for the right folder; pairs with a cosine of .95, and the share of either's that both have; Spearman's")
    print("rho of each column, and what is common to its worst 5 %")
    for name, way in {"eager fp32": exactly, **ways}.items():
        embedding, others = scored(model, way, images.pixels)
        cosine = (exact * embedding).sum(1)
        low = f"mean {cosine.mean():.4f}, 1st percentile {np.quantile(cosine, 0.01):.4f}, least {cosine.min():.4f}"
        (near, alike), (near_exact, alike_exact) = searched(embedding), searched(exact)
        same, votes = (near[:, 0] == near_exact[:, 0]).mean(), voted(near, images.folders)
        pairs = f"{alike.sum():,} pairs, {(alike & alike_exact).sum() / max(1, (alike | alike_exact).sum()):.3f}"
        print(f"  {name}: cosine {low}; nearest {same:.3f}; votes {votes:.3f}; {pairs}")
        for column, values in columns.items():
            sign, worst = (1 if column.startswith("unc_") else -1), max(1, n // 20)
            tops = [set(np.argsort(-sign * v, kind="stable")[:worst]) for v in (values, others[column])]
            rho, common = spearmanr(values, others[column])[0], len(tops[0] & tops[1]) / worst
            print(f"    {column:<18} rho {rho:.4f}   worst 5 % {common:.2f}", flush=True)


def searched(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 5 nearest others of each row, (N, 5), and which pairs have a cosine of ``ALIKE``, (N, N)."""
    alike = vectors @ vectors.T
    np.fill_diagonal(alike, -2)
    return np.argsort(-alike, axis=1, kind="stable")[:, :5], np.triu(alike >= ALIKE, 1)


def voted(near: np.ndarray, labels: np.ndarray) -> float:
    """Return the share of rows whose label most of their neighbours have; of two labels level, the nearer one's."""
    names, numbers = np.unique(labels, return_inverse=True)
    votes = np.zeros((len(near), len(names)))
    for at in range(near.shape[1]):
        np.add.at(votes, (np.arange(len(near)), numbers[near[:, at]]), 1 - 1e-3 * at)
    return float((votes.argmax(1) == numbers).mean())
