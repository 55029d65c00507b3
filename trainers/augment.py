"""Random views of a batch, computed on its device; every image is augmented independently."""

import torch
from torch import Tensor

from scoring.changes import gaussian_blur, to_gray
from trainers.damage import damaged
from trainers.draw import Draw, add_box, add_noise, color_jitter, random_resized_crop
from trainers.methods.augmentation import Augmentation


def view(images: Tensor, size: int, scale: tuple[float, float], recipe: Augmentation, draw: Draw) -> Tensor:
    """Return random views of each image.

    Args:
        images: shape (N, 3, H, W), uint8, or float in [0, 255].
        size: side of the view.
        scale: share of the area that it shows.
        recipe: probabilities and strengths.
        draw: random numbers for V views of N images.

    Returns:
        Shape (V * N, 3, size, size), float32 in [0, 255], the first view of all images first.

    Source: Chen & He 2021 (SimSiam), appendix A; Nakamura et al. 2023, appendix B.
    """
    return changed(random_resized_crop(images.float(), size, scale, draw), recipe, draw)


def changed(crops: Tensor, recipe: Augmentation, draw: Draw) -> Tensor:
    """Return augmented crops, float32, shape (V * N, 3, size, size): what ``view`` does after cropping."""
    out, size = crops, crops.shape[-1]

    def sometimes(p: float, change: Tensor, keep: Tensor) -> Tensor:
        return torch.where(draw.chance(p).view(-1, 1, 1, 1), change, keep)

    if recipe.jitter:
        much = recipe.jitter_strength
        out = sometimes(recipe.jitter, color_jitter(out, draw, (much, much, much, much / 4)), out)
    if recipe.gray:
        out = sometimes(recipe.gray, to_gray(out), out)
    if recipe.blur:
        low, high = recipe.blur_sigma
        out = sometimes(recipe.blur, gaussian_blur(out, draw.uniform(low, high) * size / 224), out)
    if recipe.solarize:
        out = sometimes(recipe.solarize, torch.where(out >= 128, 255 - out, out), out)
    if recipe.vertical_flip:
        out = sometimes(recipe.vertical_flip, out.flip(2), out)
    if recipe.corrupt:
        out = sometimes(recipe.corrupt, add_noise(out, draw), out)
        out = sometimes(recipe.corrupt, add_box(out, draw), out)
    if recipe.damage:
        hit = draw.chance(recipe.damage).nonzero().squeeze(1)
        out[hit] = damaged(out[hit], draw.of(len(hit)))
    return out
