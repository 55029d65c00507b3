"""Joined backbones: several networks that read the same decoded square, and their joint embedding."""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from scoring.backbones import feature_width, stored_backbone
from scoring.cards import MOST_PARTS, PartSpec

WIDEST_EMBEDDING = 8192
PLAIN_MEAN, PLAIN_STD = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)  # of the decoded square: each part has its normalisation


def require_parts(parts: Sequence[PartSpec], size: int, projection: int) -> None:
    """Raise ``ValueError`` for parts, shares or a projection that do not fit squares of ``size`` pixels."""
    if not 2 <= len(parts) <= MOST_PARTS:
        raise ValueError(f"expected 2 to {MOST_PARTS} backbones side by side, got {len(parts)}")
    for part in parts:
        if part.size > size or size % part.size:
            raise ValueError(f"{part.name} reads {part.size} pixels, which do not divide the {size} that are decoded")
    if not math.isclose(sum(part.share for part in parts), 1, abs_tol=1e-6):
        raise ValueError(f"the shares of the backbones add up to {sum(part.share for part in parts):g}, expected 1")
    if type(projection) is not int or not 0 <= projection <= WIDEST_EMBEDDING:
        raise ValueError(f"a projection has 1 to {WIDEST_EMBEDDING} dimensions, or 0 for none, got {projection!r}")


class JoinedBackbone(nn.Module):
    """Several backbones as one: pixels in [0, 1], (N, 3, S, S) -> features (N, D), concatenated by part.

    Args:
        parts: in the order of the features.
        size: side of the decoded square, in pixels. Each part reads the square reduced by averaging ``size /
            part.size`` pixels per side.
        projection: width of the embedding; 0 for the width of the features.

    Attributes:
        widths: of each part's features.
        centre: shape (D,), subtracted from the backbones' pooled features; their mean over training images.
        scale: divisor of each part's centred features, shape (P,).
        projection: shape (E, D) or None.
    """

    centre: Tensor
    scale: Tensor
    projection: Tensor | None

    def __init__(self, parts: Sequence[PartSpec], size: int, projection: int = 0) -> None:
        super().__init__()
        require_parts(parts, size, projection)
        self.specs = tuple(parts)
        self.parts = nn.ModuleList(stored_backbone(part.name, part.options) for part in parts)
        self.widths = tuple(feature_width(part) for part in self.parts)
        self.pools = tuple(size // part.size for part in parts)
        self.num_features = self.head_hidden_size = sum(self.widths)
        for at, part in enumerate(parts):
            self.register_buffer(f"mean{at}", torch.tensor(part.mean).view(1, 3, 1, 1), persistent=False)
            self.register_buffer(f"std{at}", torch.tensor(part.std).view(1, 3, 1, 1), persistent=False)
        self.register_buffer("centre", torch.zeros(self.num_features))
        self.register_buffer("scale", torch.ones(len(parts)))
        self.register_buffer("projection", torch.zeros(projection, self.num_features) if projection else None)

    @property
    def embedding_width(self) -> int:
        """E, the width of an embedding."""
        return self.num_features if self.projection is None else len(self.projection)

    def read(self, at: int, pixels: Tensor) -> Tensor:
        """Return a part's input, (N, 3, S/k, S/k), for pixels in [0, 1], (N, 3, S, S)."""
        seen = F.avg_pool2d(pixels, self.pools[at]) if self.pools[at] > 1 else pixels
        return (seen - getattr(self, f"mean{at}")) / getattr(self, f"std{at}")

    def forward(self, pixels: Tensor) -> Tensor:
        """Return features, shape (N, D), float32, from pixels in [0, 1], shape (N, 3, S, S)."""
        features = [part(self.read(at, pixels)).float() for at, part in enumerate(self.parts)]
        return self.standardize(torch.cat(features, dim=1))

    def standardize(self, pooled: Tensor) -> Tensor:
        """Return pooled backbone outputs, shape (N, D), centred and scaled."""
        pieces = (pooled - self.centre).split(self.widths, dim=1)
        return torch.cat([piece / self.scale[at] for at, piece in enumerate(pieces)], dim=1)

    def weigh(self, features: Tensor) -> Tensor:
        """Return the parts' normalised outputs times the roots of their shares: (N, D), rows of unit length.

        The centre is added back, so that what images of a dataset have in common stays in the embedding, and outliers
        can be found. Callers that compare images within a dataset subtract its mean.
        """
        centres = self.centre.split(self.widths)
        pooled = [piece * self.scale[at] + centres[at] for at, piece in enumerate(features.split(self.widths, dim=1))]
        weighted = [
            math.sqrt(part.share) * F.normalize(features_of_part, dim=1)
            for part, features_of_part in zip(self.specs, pooled, strict=True)
        ]
        return torch.cat(weighted, dim=1)

    def embed(self, features: Tensor) -> Tensor:
        """Return embeddings, shape (N, E), rows of unit length, for features, shape (N, D).

        Without a projection, the cosine of two embeddings is the mean of the parts' cosines, weighted by their shares.
        """
        together = self.weigh(features)
        if self.projection is not None:
            together = together @ self.projection.T
        return F.normalize(together, dim=1)
