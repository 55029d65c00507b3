"""Images in groups of one size, and whether what runs them gives the features of the plain layers."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from scoring.errors import InputError
from scoring.folded import ALIKE, NEAR, relative_error


def in_groups(images: Tensor, size: int) -> Iterator[tuple[Tensor, int]]:
    """Yield groups of ``size`` images, the last filled up with zeros, each with how many of it are images.

    So an image's features are the same whatever else is in its batch.

    Args:
        images: shape (N, ...).
        size: of a group, at least 1.
    """
    for some in images.split(size):
        n = len(some)
        yield some if n == size else torch.cat([some, some.new_zeros(size - n, *some.shape[1:])]), n


def require_alike(way: str, backbone: nn.Module, run: nn.Module, side: int, precision: str) -> None:
    """Raise ``InputError`` unless a backbone run in another way gives its features, on an image of noise.

    Args:
        way: what runs it, for the message.
        backbone: the plain layers, in evaluation mode, on the device where ``run`` reads its images.
        run: images (N, 3, S, S), float32 -> pooled features (N, D), float32.
        side: S.
        precision: ``fp32``, for a relative error of .001 at most, or ``bf16``, for .1.
    """
    image = noise(backbone, side)
    with torch.inference_mode():
        error = relative_error(run(image), backbone(image))
    if not error <= (NEAR if precision == "bf16" else ALIKE):
        raise InputError(
            f"{way} gives other features of {type(backbone).__name__} (by {error:.2g}); leave out --backend"
        )


def noise(backbone: nn.Module, side: int) -> Tensor:
    """Return an image of noise, (1, 3, S, S), on the device of a backbone."""
    image = torch.randn(1, 3, side, side, generator=torch.Generator().manual_seed(0))
    return image.to(next((value.device for value in backbone.parameters()), image.device))
