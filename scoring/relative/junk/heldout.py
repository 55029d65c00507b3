"""Accuracy of the junk classifier on this dataset, on held-out corrupted copies."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Floats
from scoring.metrics.proportions import wilson
from scoring.metrics.ranking import auroc
from scoring.metrics.resampling import Interval, percentiles
from scoring.relative.junk.threshold import UPPER

LEAST_AUROC = 0.98  # below either bound, p_junk does not apply
LEAST_DETECTED = 0.8
MOST_FLAGGED = 0.5  # largest plausible share of junk in a dataset
MOST_FALSE = 0.015  # by ``tail_share``: at most 0.006 on 10 datasets with 0 to 30 % of junk, 0.05 on sheet music
MOST_RATE, HALVINGS = 500.0, 50  # of the search for the rate of a tail
FEWEST_IN_TAIL, NORMAL_QUANTILE = 10, 1.645  # number of images in a tail, normal quantile of 95 %
DOUBTFUL, UNDECIDED = 0.8, 1.2  # see ``nearness``: above these, an image is hardly like the copies, and unlike them
LEAST_DOUBTFUL, FEWEST_DOUBTFUL, MOST_DOUBTFUL = 0.01, 3, 0.25  # share and number of images, share above the threshold
MOST_ALIKE = 0.05  # share of images; at most 0.041 on 10 datasets with 30 % of junk, 0.085 for a tenth of false alarms
NEIGHBOURS = 3  # number of nearest neighbours of the less numerous kind
FEWEST_COMPARED = 200  # images of a dataset: among fewer, even the nearest are far
BLOCK = 256  # images per block of distances
RESAMPLES = 200
NONE: Floats = np.zeros(0)


@dataclass(frozen=True)
class HeldOut:
    """Measures on the dataset and on corrupted copies, each judged by a fold without it.

    Attributes:
        images: number of images of the dataset.
        copies: number of corrupted copies.
        auroc: corrupted copies against the images that are not flagged, with its 95 % interval.
        detected: share of the corrupted copies above the threshold, with its 95 % interval.
        by_kind: the same by kind of corruption.
        flagged: share of the images above the threshold, which bounds the false alarms.
        false_alarms: share of images expected above the threshold by the tail below it, a lower bound.
        doubtful: share of the flagged images that are hardly nearer to corrupted copies than to unflagged images, by
            all inputs or by the features alone, whichever is more. Measured: at most a fifth for planted junk, two
            fifths or more for false alarms in drawn graphics.
        undecided: share of the flagged images set to the threshold, since they are nearer to unflagged images.
        alike: share of the images that are flagged with a ``nearness`` in (0.8, 1.2] by all inputs: hardly nearer to
            corrupted copies than to unflagged images.
    """

    images: int
    copies: int
    auroc: Interval
    detected: Interval
    by_kind: Mapping[str, float]
    flagged: float
    false_alarms: float
    doubtful: float = 0.0
    undecided: float = 0.0
    alike: float = 0.0

    @property
    def problem(self) -> str:
        """Why the score does not apply to this dataset; empty if it does."""
        if not self.auroc.value >= LEAST_AUROC:
            return f"held-out AUROC {self.auroc.value:.3f}, at least {LEAST_AUROC} is needed"
        if self.detected.value < LEAST_DETECTED:
            return f"{self.detected.value:.0%} of corrupted copies found, at least {LEAST_DETECTED:.0%} is needed"
        if self.flagged > MOST_FLAGGED:
            return f"{self.flagged:.0%} of the images would be flagged"
        if min(self.false_alarms, self.flagged) > MOST_FALSE:
            return "no gap separates the images from corrupted copies, so that many would be flagged wrongly"
        least = max(LEAST_DOUBTFUL * self.images, FEWEST_DOUBTFUL)
        share = self.doubtful / max(self.flagged + self.undecided, 1e-9)
        many = share > MOST_DOUBTFUL and round(min(self.doubtful, self.flagged) * self.images) >= least
        if many or self.alike > MOST_ALIKE:  # with much junk, false alarms are a small share of what is flagged
            return (
                f"{self.flagged:.1%} of the images would be flagged, and many of them look like the others: style, or "
                "junk of one kind, which the groups unlike the rest show"
            )
        return ""

    @property
    def applies(self) -> bool:
        """Whether the score can be used on this dataset."""
        return not self.problem

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**asdict(self), "applies": self.applies, "problem": self.problem}


def held_out(
    images: Floats, copies: Floats, kinds: Sequence[str], near: Floats = NONE, near_in_features: Floats = NONE
) -> HeldOut:
    """Measure a classifier from log odds that are 0 at the threshold.

    Args:
        images: log odds of the dataset's images, shape (N,).
        copies: log odds of corrupted copies, shape (P,).
        kinds: of corruption, P names.
        near: ``nearness`` of the images above the threshold, before some were set to it; empty if not measured.
        near_in_features: the same without the embedding.
    """
    clean, named = images[images <= 0], np.array(kinds)
    doubtful = max((near > DOUBTFUL).sum(), (near_in_features > DOUBTFUL).sum())
    return HeldOut(
        len(images),
        len(copies),
        _auroc(clean, copies),
        wilson(int((copies > 0).sum()), len(copies)),
        {kind: float((copies[named == kind] > 0).mean()) for kind in dict.fromkeys(kinds)},
        float((images > 0).mean()),
        tail_share(images),
        float(doubtful / len(images)),
        float((near > UNDECIDED).sum() / len(images)),
        float(((near > DOUBTFUL) & (near <= UNDECIDED)).sum() / len(images)),
    )


def nearness(images: Floats, copies: Floats, source: NDArray[np.int64], flagged: NDArray[np.bool_]) -> Floats:
    """Return how near each flagged image is to unflagged images; above 1: nearer than to corrupted copies.

    The mean distance to the 3 nearest corrupted copies divided by the mean distance to the 3 nearest unflagged images;
    proportionally more than 3 of the more numerous kind. On 15 datasets, nine in ten clean flagged images had 0.86 or
    more, and one in ten of planted junk above 0.8 (enlarged from 12 pixels, colour bars).

    Args:
        images: inputs of the classifier, shape (N, G).
        copies: of corrupted copies, shape (P, G).
        source: index of the image of each copy, shape (P,); an image is not compared with its copies.
        flagged: mask, shape (N,); not all True.
    """
    rows, others = np.flatnonzero(flagged), images[~flagged]
    fewer = min(len(others), len(copies))
    near = np.empty(len(rows))
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        to_copies = np.where(block[:, None] == source, np.inf, _distances(images[block], copies))
        near[start : start + BLOCK] = _mean_of_nearest(to_copies, round(NEIGHBOURS * len(copies) / fewer))
        near[start : start + BLOCK] /= _mean_of_nearest(
            _distances(images[block], others), round(NEIGHBOURS * len(others) / fewer)
        )
    return near


def _distances(rows: Floats, others: Floats) -> Floats:
    squares = (rows**2).sum(1)[:, None] + (others**2).sum(1) - 2 * rows @ others.T
    return np.asarray(np.sqrt(np.maximum(squares, 1e-12)))


def _mean_of_nearest(distances: Floats, count: int) -> Floats:
    count = min(count, distances.shape[1])
    return np.asarray(np.partition(distances, count - 1, axis=1)[:, :count].mean(1))


def tail_share(log_odds: Floats) -> float:
    """Return a lower bound (95 %) of the share of images expected above 0 by the tail below it.

    The tail from the 80 % quantile of the log odds below 0 is exponential, its rate by maximum likelihood from its
    part below 0; 1 if it does not decrease towards 0.
    """
    below = log_odds[log_odds < 0]
    start = np.quantile(below, UPPER) if len(below) else -1.0
    passed = 1 - below[below > start] / start  # share of the way to 0
    if len(passed) < FEWEST_IN_TAIL:
        return 0.0
    middle = passed.mean() - NORMAL_QUANTILE * passed.std() / np.sqrt(len(passed))
    least, most = 0.0, MOST_RATE
    for _ in range(HALVINGS):
        rate = (least + most) / 2
        least, most = (rate, most) if 1 / rate - 1 / np.expm1(rate) > middle else (least, rate)
    return float(min(1.0, len(passed) / np.expm1(most) / len(log_odds)))


def _auroc(clean: Floats, copies: Floats) -> Interval:
    if not len(clean):
        return Interval(float("nan"), 0.0, 1.0)
    generator = np.random.default_rng(0)

    def of(clean_odds: Floats, copy_odds: Floats) -> float:
        return auroc(
            np.concatenate([clean_odds, copy_odds]), np.arange(len(clean_odds) + len(copy_odds)) >= len(clean_odds)
        )

    drawn = [of(generator.choice(clean, len(clean)), generator.choice(copies, len(copies))) for _ in range(RESAMPLES)]
    low, high = percentiles(np.array(drawn)[:, None])
    return Interval(of(clean, copies), float(low[0]), float(high[0]))
