"""What a model with a decoder draws: pictures again, pictures between them, and new ones.

    curate train simvae photos.parquet -o simvae.safetensors --size 32 --epochs 40 --lr 1e-3 --set views=2
    python examples/decoded.py simvae.safetensors photos.parquet -o decoded.png

Row by row: pictures; what the decoder makes of their mu; six steps from one mu to another, in pairs; and draws of z
from the Gaussian of full covariance that is fitted to the mu of the pictures, as in Bizeul et al. 2024, appendix A.7.6,
but of all classes at once.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.heads import PosteriorHeadSpec
from scoring.model import ScoringModel
from trainers.data import load_training_set

COLUMNS, STEPS, FITTED = 12, 6, 1000  # tiles a row, tiles of a walk, and pictures that the Gaussian is fitted to
ENLARGED, GAP = 64, 2  # pixels


def head_of(model: ScoringModel) -> Any:
    """Return the head of a model that decodes.

    Raises:
        InputError: if it has none.
    """
    for name, spec in model.spec.heads.items():
        if isinstance(spec, PosteriorHeadSpec):
            return model.heads[name]
    raise InputError(f"expected a model that decodes, such as one of simvae, and its heads are {list(model.heads)}")


@torch.inference_mode()
def means(model: ScoringModel, pixels: Tensor) -> Tensor:
    """Return mu of each picture, shape (N, M)."""
    head = head_of(model)
    return torch.cat([head.project(model.features(block)) for block in pixels.split(250)])


def walks(mu: Tensor, steps: int) -> Tensor:
    """Return points on the line from each even row to the row after it, ends included: (N // 2 * steps, M)."""
    share = torch.linspace(0, 1, steps).view(1, steps, 1)
    start, end = mu[0::2].unsqueeze(1), mu[1::2].unsqueeze(1)
    return (start + share * (end - start)).flatten(0, 1)


def draws(mu: Tensor, n: int, seed: int) -> Tensor:
    """Return n draws from the Gaussian with the mean and covariance of mu, shape (n, M)."""
    drawn = np.random.default_rng(seed).multivariate_normal(mu.mean(0).numpy(), np.cov(mu.numpy().T), n)
    return torch.from_numpy(drawn).float()


@torch.inference_mode()
def sheet(model: ScoringModel, pixels: Tensor, seed: int) -> NDArray[np.uint8]:
    """Return the picture of all rows, shape (H, W, 3)."""
    decode, mu = head_of(model).decoder, means(model, pixels)
    shown = pixels[:COLUMNS].float() / 255
    between = walks(mu[: 4 * COLUMNS // STEPS], STEPS)
    rows = [
        shown,
        decode(mu[:COLUMNS]),
        *decode(between).split(COLUMNS),
        *decode(draws(mu, 2 * COLUMNS, seed)).split(COLUMNS),
    ]
    return tiled(rows)


def tiled(rows: Sequence[Tensor]) -> NDArray[np.uint8]:
    """Return rows of pictures, each (N, 3, S, S) in [0, 1], side by side and enlarged, on white."""
    across = ENLARGED + GAP
    out = np.full((len(rows) * across - GAP, COLUMNS * across - GAP, 3), 255, np.uint8)
    for top, row in enumerate(rows):
        for left, tile in enumerate((255 * row).round().byte().permute(0, 2, 3, 1).numpy()):
            large = Image.fromarray(tile).resize((ENLARGED, ENLARGED), Image.Resampling.NEAREST)
            out[top * across :, left * across :][:ENLARGED, :ENLARGED] = np.asarray(large)
    return out


def main(typed: Sequence[str] | None = None) -> None:
    """Draw a model's pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a checkpoint of simvae, vae, betavae or crvae")
    parser.add_argument("data", type=Path, help="a Parquet file with a column of encoded images")
    parser.add_argument("-o", "--out", type=Path, default=Path("decoded.png"))
    parser.add_argument("--column", default="image")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(typed)
    try:
        model, _ = load_model(given.model)
        head_of(model)
        stored = pq.read_table(given.data, columns=[given.column]).column(given.column).slice(0, FITTED).to_pylist()
        readers = [lambda image=image: image for image in stored]
        images = load_training_set(readers, None, n=len(readers), preprocessing=model.spec.preprocessing, workers=1)
    except InputError as error:
        raise SystemExit(f"error: {error}") from None
    Image.fromarray(sheet(model, images.pixels, given.seed)).save(given.out)


if __name__ == "__main__":
    main()
