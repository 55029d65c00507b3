"""The pairs of a batch for contrastive losses: positives and weighted negatives."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

Rows = Tensor | slice


@dataclass(frozen=True)
class Contrast:
    """Pairs of an anchor and its positive among B items (one view of one image each), and the weights of negatives.

    In each row, the weights of the anchor and of its positive are 0.

    Attributes:
        anchors: item numbers of the P anchors: int64 of shape (P,), or a slice if consecutive.
        positives: item numbers of their positives, in the same format.
        weights: shape (P, N), float, >= 0; each row has a sum above 0, by which the losses divide. 1 is a negative, 0
            is none; a value between is the probability that the item is drawn as a negative.
        among: numbers of the N items that have a weight; by default all B.
    """

    anchors: Rows
    positives: Rows
    weights: Tensor
    among: slice = field(default_factory=lambda: slice(None))

    def __post_init__(self) -> None:
        if self.weights.ndim != 2:
            raise ValueError(f"weights must have shape (P, N), got {tuple(self.weights.shape)}")
        for name in ("anchors", "positives"):
            rows = getattr(self, name)
            count = rows.stop - rows.start if isinstance(rows, slice) else len(rows)
            if count != len(self.weights):
                raise ValueError(f"{name} must name one item for each of {len(self.weights)} rows, got {count}")

    def __len__(self) -> int:
        return len(self.weights)


def of_views(
    n_views: int,
    n_images: int,
    *,
    negatives: int | None = None,
    device: torch.device | None = None,
    generator: torch.Generator | None = None,
) -> Contrast:
    """Return pairs whose positives are views of the same image, and negatives are views of all other images.

    Args:
        n_views: views per image, >= 2; every ordered pair of two views is a pair.
        n_images: number of images, >= 2; item ``v * n_images + i`` is view v of image i.
        negatives: number of negatives drawn for each anchor; None for all.
        device: of the result.
        generator: for the draw.

    Raises:
        ValueError: if there are fewer than two views or images, or fewer negatives than requested.
    """
    if n_views < 2 or n_images < 2:
        raise ValueError(f"expected at least 2 views of 2 images, got {n_views} views of {n_images}")
    image = torch.arange(n_images, device=device).repeat(n_views)
    other_image = (image[:, None] != image).float()  # (B, B)
    n_items = n_views * n_images
    if n_views == 2:
        positives = torch.arange(n_items, device=device).roll(n_images)
        return Contrast(slice(0, n_items), positives, _sample_negatives(other_image, negatives, generator))
    rows = [(v, w) for v in range(n_views) for w in range(n_views) if v != w]
    each = torch.arange(n_images, device=device)
    anchors = torch.cat([v * n_images + each for v, _ in rows])
    positives = torch.cat([w * n_images + each for _, w in rows])
    return Contrast(anchors, positives, _sample_negatives(other_image[anchors], negatives, generator))


def of_labels(
    labels: Tensor, *, negatives: int | None = None, generator: torch.Generator | None = None
) -> Contrast | None:
    """Return pairs whose positive is a random other item of the class, and negatives all items of other classes.

    Args:
        labels: one per item, shape (B,), int64; views of one image share it.
        negatives: number of negatives drawn for each anchor; None for all, also if there are fewer.
        generator: for the draws.

    Returns:
        One anchor for each item with a positive and a negative; None if there is none.
    """
    same = labels[:, None] == labels
    candidates = same.float().fill_diagonal_(0)
    usable = ((candidates.sum(1) > 0) & ((~same).sum(1) > 0)).nonzero().squeeze(1)
    if len(usable) == 0:
        return None
    positives = torch.multinomial(candidates[usable], 1, generator=generator).squeeze(1)
    return Contrast(usable, positives, _sample_at_most((~same)[usable].float(), negatives, generator))


def of_votes(votes: Tensor, *, generator: torch.Generator | None = None) -> Contrast | None:
    """Return pairs whose positive is drawn with the probability that the votes of two items agree.

    A class c is drawn from the anchor's votes, then the positive from all other items in proportion to their vote share
    of c. Every other item is a negative with its probability of not being c.

    Args:
        votes: counts or shares, shape (B, C), >= 0, each row with a sum above 0.
        generator: for the draws.

    Returns:
        One anchor for each item whose drawn class has votes on another item; None if there is none.

    Source: Kirchhof et al. 2023 (MCInfoNCE), appendix C.1; negatives are weighted by their probability instead of
    drawn, which has the same expectation.
    """
    shares = votes.float() / votes.float().sum(1, keepdim=True)
    chosen = torch.multinomial(shares, 1, generator=generator).squeeze(1)  # (B,)
    agree = shares[:, chosen].T.clone()  # (B, B): probability that item j is of the class drawn for anchor i
    weights = (1 - agree).clamp(min=0).fill_diagonal_(0)
    agree.fill_diagonal_(0)
    usable = ((agree.sum(1) > 0) & (weights.sum(1) > 0)).nonzero().squeeze(1)
    if len(usable) == 0:
        return None
    positives = torch.multinomial(agree[usable], 1, generator=generator).squeeze(1)
    weights = weights[usable]
    weights[torch.arange(len(usable), device=weights.device), positives] = 0
    left = weights.sum(1) > 0
    return Contrast(usable[left], positives[left], weights[left]) if left.any() else None


def _sample_negatives(weights: Tensor, count: int | None, generator: torch.Generator | None) -> Tensor:
    """Keep ``count`` random negatives per row; every row must have at least as many."""
    if count is None:
        return weights
    fewest = int((weights > 0).sum(1).min())
    if not 1 <= count <= fewest:
        raise ValueError(f"negatives must be between 1 and {fewest} (the poorest anchor's), got {count}")
    return _sample_at_most(weights, count, generator)


def _sample_at_most(weights: Tensor, count: int | None, generator: torch.Generator | None) -> Tensor:
    """Keep ``count`` distinct random negatives per row, or all if there are fewer."""
    if count is None:
        return weights
    order = torch.rand(weights.shape, device=weights.device, generator=generator).masked_fill_(weights <= 0, -1)
    chosen = order.topk(min(count, weights.shape[1]), dim=1).indices
    return torch.zeros_like(weights).scatter_(1, chosen, 1.0) * (weights > 0)
