"""Ten crops of an image, and the disagreement of the model's outputs on them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from scoring.column import Column
from scoring.scorers import CROPS

if TYPE_CHECKING:
    from torch import Tensor

SHARE = 0.75  # share of the side in a crop


def ten_crops(pixels: "Tensor") -> "Tensor":
    """Return the corner and centre crops of images (N, 3, S, S), and their mirror images: (10, N, 3, S, S) float32."""
    import torch
    import torch.nn.functional as F

    size = pixels.shape[-1]
    side = max(1, round(SHARE * size))
    far, middle = size - side, (size - side) // 2
    full, seen = pixels.float(), []
    for top, left in ((0, 0), (0, far), (far, 0), (far, far), (middle, middle)):
        crop = full[..., top : top + side, left : left + side]
        seen.append(F.interpolate(crop, size=(size, size), mode="bilinear", align_corners=False))
    return torch.stack([*seen, *(crop.flip(-1) for crop in seen)])


@dataclass(frozen=True)
class CropsScorer:
    """The distance between embeddings of ten crops; runs the network ten more times."""

    needs: ClassVar[str] = CROPS
    passes: ClassVar[int] = 0
    columns: ClassVar[Mapping[str, Column]] = {
        "unc_crops": Column("spread of the embeddings of ten crops: 1 - length of their mean", "1", "less certain")
    }

    def score(self, embeddings: "Tensor") -> "Mapping[str, Tensor]":
        """Return the column for embeddings of the crops, shape (10, N, E), rows of unit length; in [0, 1]."""
        return {"unc_crops": 1 - embeddings.mean(0).norm(dim=1).clamp(max=1)}
