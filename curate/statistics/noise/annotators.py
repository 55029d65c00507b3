"""Consensus labels and annotator accuracies, from votes and class probabilities predicted from other rows."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.statistics.noise.quality import BLOCK, LEAST, ClassProbabilities
from scoring.arrays import Array
from scoring.metrics.proportions import wilson
from scoring.metrics.resampling import Interval

Codes = NDArray[np.integer]
CELLS = 8_000_000  # rows x votes x votes per block
PASSES = 3  # alternating estimates of consensus and accuracy
SMOOTH = 1.0  # prior: one right and one wrong vote per annotator


@dataclass(frozen=True)
class Annotators:
    """Consensus labels of N rows, and accuracies of A annotators.

    Attributes:
        quality: probability that the majority class is correct, shape (N,) float32; NaN without a vote.
        suggested: the most likely class, shape (N,) int32.
        agreement: share of the votes for the majority class, shape (N,) float32; NaN without a vote.
        accuracy: share of each annotator's votes for the most likely class, on rows with other votes, shape (A,).
            Optimistic with few other votes, since the annotator's vote contributes to that class.
        pairs: share of the pairs of votes on the same row that agree.
    """

    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    agreement: NDArray[np.float32]
    accuracy: list[Interval]
    pairs: float


def majority(votes: Codes, tie: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the class with most votes, shape (N,); ties are broken by ``tie``; -1 for a row without a vote.

    Args:
        votes: classes, shape (N, A), A >= 1; -1 for none.
        tie: a hash of each row, shape (N,).

    >>> majority(np.array([[0, 1, 1], [-1, -1, -1]]), np.zeros(2, np.uint64)).tolist()
    [1, -1]
    """
    width = votes.shape[1]
    winners = np.empty(len(votes), np.int64)
    for at in _blocks(len(votes), width):
        cast = votes[at]
        agreeing = (cast[:, :, None] == cast[:, None, :]).sum(2) * (cast >= 0)
        turned = (np.arange(width) + (tie[at] % np.uint64(width)).astype(np.int64)[:, None]) % width
        first = np.take_along_axis(agreeing, turned, 1).argmax(1)  # the count is 0 without a vote
        winners[at] = cast[np.arange(len(cast)), turned[np.arange(len(cast)), first]]
    return winners


def _blocks(n: int, width: int) -> Iterator[slice]:
    """Yield slices of n rows whose size is bounded by memory."""
    size = int(np.clip(CELLS // width**2, 1, BLOCK))
    for start in range(0, n, size):
        yield slice(start, start + size)


def weigh(
    probabilities: ClassProbabilities, votes: Codes, labels: NDArray[np.int64], n_classes: int, who: Codes | None = None
) -> Annotators:
    """Return consensus labels from votes and predictions, weighted by the accuracies of the annotators.

    The probability of class k is the predicted one times, for each vote, its annotator's accuracy if the vote is k,
    else an equal share of the annotator's error rate. Accuracies and most likely classes are estimated in turn, three
    times.

    Args:
        probabilities: of N rows, from models fitted to ``labels``.
        votes: classes, shape (N, A); -1 for none.
        labels: the majority class, shape (N,); -1 without a vote.
        n_classes: C.
        who: index of the annotator of each vote, shape (N, A); None if each column is an annotator.

    Source: Dawid and Skene 1979, with one accuracy per annotator, and the models' probabilities as the prior, as in Goh
    et al. 2022 (CROWDLAB), arXiv:2210.06812.
    """
    n = len(votes)
    who = np.broadcast_to(np.arange(votes.shape[1]), votes.shape) if who is None else who
    n_annotators = int(who.max(initial=-1)) + 1
    accuracy = np.full(n_annotators, 0.8)
    suggested, quality = labels.astype(np.int32), np.full(n, np.nan, np.float32)
    several = (votes >= 0).sum(1) > 1
    right, seen = np.zeros(n_annotators, np.int64), np.zeros(n_annotators, np.int64)
    for _ in range(PASSES):
        for at in _blocks(n, votes.shape[1] + probabilities.index.shape[1]):
            suggested[at], quality[at] = _most_likely(probabilities, votes, labels, accuracy[who[at]], n_classes, at)
        counted = (votes >= 0) & several[:, None]
        right = np.bincount(who[counted & (votes == suggested[:, None])], minlength=n_annotators)
        seen = np.bincount(who[counted], minlength=n_annotators)
        accuracy = (right + SMOOTH) / (seen + 2 * SMOOTH)
    n_votes = (votes >= 0).sum(1)
    agree = ((votes == labels[:, None]) & (votes >= 0)).sum(1)
    agreement = np.where(n_votes > 0, agree / np.maximum(n_votes, 1), np.nan).astype(np.float32)
    intervals = [wilson(float(yes), float(all_)) for yes, all_ in zip(right, seen, strict=True)]
    return Annotators(quality, suggested, agreement, intervals, _agreement(votes))


def _most_likely(
    probabilities: ClassProbabilities,
    votes: Codes,
    labels: NDArray[np.int64],
    accuracy: Array,
    n_classes: int,
    at: slice,
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the most likely class of rows ``at``, and the probability of the label relative to all others."""
    index, cast, label = probabilities.index[at], votes[at], labels[at]
    candidates = np.concatenate([index, cast], 1)  # a voted class may not be among the most likely ones
    logs = np.log(np.maximum(probabilities.probability[at], LEAST))
    logs = np.concatenate([logs, np.broadcast_to(logs[:, -1:], cast.shape)], 1)
    twice = (candidates[:, :, None] == candidates[:, None, :]) & (
        np.arange(candidates.shape[1])[:, None] > np.arange(candidates.shape[1])
    )
    logs[twice.any(2) | (candidates < 0)] = -np.inf
    hit = np.log(accuracy) - np.log((1 - accuracy) / max(n_classes - 1, 1))
    logs += ((candidates[:, :, None] == cast[:, None, :]) * hit[:, None, :]).sum(2)
    raised = np.exp(logs - logs.max(1, keepdims=True))
    share = raised / raised.sum(1, keepdims=True)
    likeliest = candidates[np.arange(len(candidates)), share.argmax(1)].astype(np.int32)
    quality = (share * (candidates == label[:, None])).sum(1)
    return np.where(label >= 0, likeliest, index[:, 0]), np.where(label >= 0, quality, np.nan).astype(np.float32)


def _agreement(votes: Codes) -> float:
    alike = pairs = 0
    for at in _blocks(len(votes), votes.shape[1]):
        cast = votes[at]
        n_votes = (cast >= 0).sum(1)
        same = (cast[:, :, None] == cast[:, None, :]) & (cast >= 0)[:, :, None]
        pairs += int((n_votes * (n_votes - 1)).sum())
        alike += int(same.sum() - n_votes.sum())
    return alike / pairs if pairs else float("nan")
