"""The pairs of a batch for contrastive losses: positives and weighted negatives."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

Rows = Tensor | slice


@dataclass(frozen=True)
class Contrast:
    """Pairs of an anchor and its positive among B items, and the weight of every item as a negative.

    An item is one view of one image. No anchor is its own negative, nor is its positive: those weights are 0, so
    nothing leaks from a row to itself whatever the loss.

    Attributes:
        anchors: rows of the anchors, P of them: int64 of shape (P,), or a slice where they lie side by side.
        positives: rows of their positives, too.
        weights: shape (P, N), float, >= 0, with a sum above 0 in every row. 1 is a negative, 0 none; between them is
            the probability that the item would be drawn as one. The losses divide by the sum of the row, which is M.
        among: the N items that have a weight; all B by default.
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
    """Use views of one image as positives, and views of all other images as negatives.

    Args:
        n_views: views of an image, >= 2; every ordered pair of two views is a pair.
        n_images: images, >= 2; item ``v * n_images + i`` is view v of image i.
        negatives: how many of the negatives to keep, drawn again for every anchor; all of them where None.
        device: where the result lives.
        generator: for the draw.

    Raises:
        ValueError: if there is nothing to compare with, or fewer negatives than requested.
    """
    if n_views < 2 or n_images < 2:
        raise ValueError(f"expected at least 2 views of 2 images, got {n_views} views of {n_images}")
    image = torch.arange(n_images, device=device).repeat(n_views)
    apart = (image[:, None] != image).float()  # (B, B)
    n_items = n_views * n_images
    if n_views == 2:
        positives = torch.arange(n_items, device=device).roll(n_images)
        return Contrast(slice(0, n_items), positives, _keep(apart, negatives, generator))
    rows = [(v, w) for v in range(n_views) for w in range(n_views) if v != w]
    each = torch.arange(n_images, device=device)
    anchors = torch.cat([v * n_images + each for v, _ in rows])
    positives = torch.cat([w * n_images + each for _, w in rows])
    return Contrast(anchors, positives, _keep(apart[anchors], negatives, generator))


def of_labels(
    labels: Tensor, *, negatives: int | None = None, generator: torch.Generator | None = None
) -> Contrast | None:
    """Use a random other item of the class as the positive, and all items of other classes as negatives.

    Args:
        labels: one for every item, shape (B,), int64; views of one image share it.
        negatives: how many negatives to keep for an anchor, at random; all where None, or where it has no more.
        generator: for the draws.

    Returns:
        An anchor for each item that has a positive and a negative; None where no item has both.
    """
    same = labels[:, None] == labels
    candidates = same.float().fill_diagonal_(0)
    usable = ((candidates.sum(1) > 0) & ((~same).sum(1) > 0)).nonzero().squeeze(1)
    if len(usable) == 0:
        return None
    positives = torch.multinomial(candidates[usable], 1, generator=generator).squeeze(1)
    return Contrast(usable, positives, _at_most((~same)[usable].float(), negatives, generator))


def of_votes(votes: Tensor, *, generator: torch.Generator | None = None) -> Contrast | None:
    """Draw positives with the probability that two votes agree.

    A class c is drawn from the votes on the anchor, the positive from all other items in proportion to their share of
    votes for c. Every other item is a negative with its probability of not being c.

    Args:
        votes: counts or shares of votes, shape (B, C), >= 0, each row with a sum above 0.
        generator: for the draws.

    Returns:
        An anchor for each item whose class another one has votes for; None if absent.

    Source: Kirchhof et al. 2023 (MCInfoNCE), appendix C.1; the negatives are weighted by their probability, which is
    what drawing them would give on average.
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


def _keep(weights: Tensor, count: int | None, generator: torch.Generator | None) -> Tensor:
    """Keep ``count`` random negatives per row; each row must have as many."""
    if count is None:
        return weights
    fewest = int((weights > 0).sum(1).min())
    if not 1 <= count <= fewest:
        raise ValueError(f"negatives must be between 1 and {fewest} (the poorest anchor's), got {count}")
    return _at_most(weights, count, generator)


def _at_most(weights: Tensor, count: int | None, generator: torch.Generator | None) -> Tensor:
    """Keep ``count`` distinct random negatives per row, or all if there are fewer."""
    if count is None:
        return weights
    order = torch.rand(weights.shape, device=weights.device, generator=generator).masked_fill_(weights <= 0, -1)
    chosen = order.topk(min(count, weights.shape[1]), dim=1).indices
    return torch.zeros_like(weights).scatter_(1, chosen, 1.0) * (weights > 0)
