"""How far images that a model draws are from real ones, and whether they are of their class, as a network sees them."""

import io

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from scoring.metrics.neighbours import knn_predict
from scoring.model import ScoringModel
from trainers.data import load_training_set

NETWORK = "world"  # of the package: the weights of Inception, which FID is named after, do not ship with it
BLOCK = 100  # images that the network reads at a time
NEIGHBOURS = 20  # real images that say what class an image is of


def frechet_distance(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return |m_x - m_y|^2 + tr(C_x + C_y - 2 (C_x C_y)^(1/2)) of the means and covariances of two samples, >= 0.

    It is the squared 2-Wasserstein distance of the Gaussians that have these. The eigenvalues of C_x C_y are the
    squared singular values of X Y^T, where X and Y are the centred samples over sqrt(n - 1): no root of a
    matrix is taken, and covariances without full rank do no harm.

    Args:
        x: shape (N, D), N >= 2.
        y: shape (M, D), M >= 2.

    Raises:
        ValueError: if the shapes do not fit, or a sample has fewer than 2 rows.

    Source: Heusel et al. 2017, arXiv:1706.08500, eq. 6; Dowson & Landau 1982.
    """
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[1] or min(len(x), len(y)) < 2:
        raise ValueError(f"expected shapes (N, D) and (M, D) with 2 rows or more, got {x.shape} and {y.shape}")
    gap = x.mean(0) - y.mean(0)
    centred = [(rows - rows.mean(0)) / np.sqrt(len(rows) - 1) for rows in (x, y)]
    # only the triangle of QR counts, so that many rows cost no more than D
    tall, other = (np.linalg.qr(rows, mode="r") if len(rows) > rows.shape[1] else rows for rows in centred)
    roots = np.linalg.svd(tall @ other.T, compute_uv=False)
    spread = sum(float(np.square(rows).sum()) for rows in centred)
    return max(float(gap @ gap + spread - 2 * roots.sum()), 0.0)


@torch.inference_mode()
def embedded(pictures: Tensor, network: ScoringModel) -> NDArray[np.float64]:
    """Return the embeddings, shape (N, E), rows of unit length, of images in [0, 1], shape (N, 3, S, S).

    They are read as files are: as PNG, brought to the network's size by its own preprocessing.
    """
    stored = [_png(image) for image in pictures]
    readers = [lambda image=image: image for image in stored]
    read = load_training_set(readers, None, n=len(readers), preprocessing=network.spec.preprocessing, workers=1)
    said = [network.eval()(block).embedding for block in read.pixels.split(BLOCK)]
    return torch.cat(said).double().numpy()


def _png(picture: Tensor) -> bytes:
    stored = io.BytesIO()
    Image.fromarray((255 * picture.clamp(0, 1)).round().byte().permute(1, 2, 0).numpy()).save(stored, "PNG")
    return stored.getvalue()


def baselines(real: Tensor, other: Tensor, seed: int) -> dict[str, Tensor]:
    """Return images that say how to read a distance to ``real``, from the nearest on.

    Args:
        real: images in [0, 1], shape (N, 3, S, S).
        other: as many others.
        seed: of the noise.
    """
    mean, std = real.mean((0, 2, 3), keepdim=True), real.std((0, 2, 3), keepdim=True)
    noise = torch.randn(other.shape, generator=torch.Generator().manual_seed(seed))
    small = F.interpolate(other, size=max(other.shape[-1] // 4, 1), mode="area")
    return {
        "other real images": other,
        "the same at a quarter of the side": F.interpolate(small, size=other.shape[-1], mode="bilinear"),
        "the mean of all, each time": real.mean(0, keepdim=True).expand_as(other),
        "noise of their mean and spread": mean + std * noise,
    }


def named_right(images: NDArray[np.float64], classes: Tensor, real: NDArray[np.float64], real_classes: Tensor) -> float:
    """Return the share of images, embeddings (N, E), whose 20 nearest real ones vote for the class of each, (N,)."""
    rows, known = torch.from_numpy(images), torch.from_numpy(real)
    said = knn_predict(rows, known, real_classes, k=min(NEIGHBOURS, len(known)))
    return float((said == classes).float().mean())
