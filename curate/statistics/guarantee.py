"""Thresholds with a guarantee on the share of bad rows kept, from verdicts on a random sample.

A population is ordered, the best rows first, and a cut keeps the first K of them. Verdicts say of a sample how bad each
row is: 0 good, 1 bad, or between where judges disagree. Two promises can be had:

- with a confidence: the mean badness of the kept rows is at most a rate, unless probability was against it (``LTT``);
- on average over samples: the badness that is kept, a share of the whole population, is at most a rate (``CRC``).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from scoring.metrics.proportions import Stratum, p_value_at_most

_SLACK = 1e-12
N_CUTS = 200  # that are tested, about
LATER_STARTS = ((0.5, 0.75), (0.75,), ())  # shares of the population at which tests begin again, as many as have room
_MARGIN = 2.0  # standard deviations by which the first cut is larger, so that it has its verdicts


@dataclass(frozen=True)
class Sampled:
    """Verdicts on a random sample of an ordered population.

    Attributes:
        ends: where each stratum ends, ascending ranks from 1, shape (H,); the first begins at rank 1. Within each the
            sample is a simple random one, without replacement.
        ranks: of the sampled rows, from 1 for the best, shape (n,), all at most the last end. Equal rows have the
            largest of their ranks.
        badness: of each, shape (n,), in [0, 1].
    """

    ends: NDArray[np.int64]
    ranks: NDArray[np.int64]
    badness: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not len(self.ends) or self.ends[0] < 1 or (np.diff(self.ends) < 1).any():
            raise ValueError(f"expected ascending ends of strata, got {self.ends}")
        if len(self.ranks) != len(self.badness):
            raise ValueError("expected a rank and a badness for each row")
        if not _within(self.ranks, 1, self.ends[-1]) or not _within(self.badness, 0, 1):
            raise ValueError("expected ranks from 1 to the last end, and badness in [0, 1]")

    def until(self, cut: int) -> list[Stratum]:
        """Return the strata of the first ``cut`` rows, with the number judged bad in each."""
        starts = np.concatenate([[0], self.ends[:-1]])
        out = []
        for start, end in zip(starts.tolist(), np.minimum(self.ends, cut).tolist(), strict=True):
            if end > start:
                inside = (self.ranks > start) & (self.ranks <= end)
                out.append(Stratum(end - start, int(inside.sum()), float(self.badness[inside].sum())))
        return out


def _within(values: NDArray, low: float, high: float) -> bool:
    return bool(((values >= low) & (values <= high)).all())


def p_value_bad(strata: Sequence[Stratum], rate: float) -> float:
    """Return a p value for the hypothesis that more than ``rate`` of these rows are bad.

    Args:
        strata: of the population, with ``positive`` what was judged bad.
        rate: in [0, 1).

    Returns:
        In [0, 1]. Below alpha in at most a share alpha of all samples, if more than ``rate`` is bad. Exact
        (hypergeometric) for one stratum of yes and no; Chernoff's bound for several, or for badness between 0 and 1.
    """
    total = sum(stratum.size for stratum in strata)
    good = total - floor(rate * total + _SLACK * total) - 1  # the most that can be good if more than the rate is bad
    return 0.0 if good < 0 else p_value_at_most([stratum.turned() for stratum in strata], good / total)


def fewest_verdicts(size: int, rate: float, confidence: float, n_bad: int = 0) -> int | None:
    """Return the verdicts needed, ``n_bad`` of them bad, to show that at most ``rate`` of ``size`` rows are bad.

    None where even a verdict on every row does not.

    >>> fewest_verdicts(10**6, 0.02, 0.95), fewest_verdicts(10**6, 0.02, 0.95, 3)
    (149, 386)
    """
    if n_bad > size or p_value_bad([Stratum(size, size, n_bad)], rate) > 1 - confidence:
        return None
    low = max(n_bad, 1)
    verdicts = range(low, size)
    return low + bisect_left(
        verdicts, True, key=lambda n: p_value_bad([Stratum(size, n, n_bad)], rate) <= 1 - confidence
    )


def verdicts_for_power(size: int, rate: float, confidence: float, *, expected: float, power: float = 0.8) -> int | None:
    """Return the verdicts needed for a test of this power if a share ``expected`` of the rows is bad.

    Args:
        size: rows that are kept.
        rate: to be shown, in (0, 1).
        confidence: in (0, 1).
        expected: share that is bad in truth, in [0, rate).
        power: in (0, 1).

    Returns:
        None where ``expected`` is not below ``rate``, or no number of verdicts is enough.
    """
    if expected >= rate:
        return None
    truly_bad, n_bad = floor(expected * size), 0
    while True:
        n = fewest_verdicts(size, rate, confidence, n_bad)
        if n is None:
            return None
        # of n verdicts at most n_bad bad: at least n - n_bad of the good ones
        passes = p_value_at_most([Stratum(size, n, n - n_bad)], (size - truly_bad) / size)
        if passes >= power:
            return n
        n_bad = max(n_bad + 1, floor(n_bad * 1.1))


@dataclass(frozen=True)
class Planned:
    """Cuts in the order of their tests, and the error level of each.

    Attributes:
        cuts: ranks, ascending, shape (T,).
        levels: shape (T,), not negative, in sum 1 - confidence; most are 0, for a cut also has what those before it
            passed on.
    """

    cuts: NDArray[np.int64]
    levels: NDArray[np.float64]

    def snapped(self, snap: Callable[[NDArray[np.int64]], NDArray[np.int64]]) -> "Planned":
        """Return the plan at the ranks that ``snap`` gives; ``snap`` must not depend on verdicts."""
        cuts, of = np.unique(snap(self.cuts), return_inverse=True)
        return Planned(cuts, np.bincount(of, weights=self.levels, minlength=len(cuts)).astype(np.float64))


@dataclass(frozen=True)
class TestedCut:
    """A tested cut: the first ``kept`` rows, ``n`` of them judged and ``bad`` of these bad."""

    kept: int
    n: int
    bad: float
    p: float
    level: float

    @property
    def passed(self) -> bool:
        """Whether the test passed."""
        return self.level > 0 and self.p <= self.level


@dataclass(frozen=True)
class Guaranteed:
    """The largest cut with a guarantee.

    Attributes:
        kept: rows; 0 where no cut has it.
        tested: the cuts that had a level, in the order of their tests.
    """

    kept: int
    tested: tuple[TestedCut, ...]


def plan_tests(sampled: Sampled, rate: float, confidence: float) -> Planned:
    """Return the cuts to test; empty with too few verdicts for any.

    They depend on how many rows were judged, and not on what was reported on them. Tests begin at up to three cuts, at
    an equal part of 1 - confidence each: the strictest that has verdicts enough for that part, half, and three quarters
    of the population. A score whose best rows are mostly, but not all, good passes late where it failed early, and one
    that is good for few rows alone passes early.
    """
    end = int(sampled.ends[-1])
    ranks = np.unique(np.linspace(1, end, 4 * N_CUTS).round().astype(np.int64))
    starts: list[int] = []
    for later in LATER_STARTS:
        part = (1 - confidence) / (1 + len(later))
        first = _strictest(sampled, ranks, fewest_verdicts(end, rate, 1 - part))
        if first is not None and all(first < share * end for share in later):
            starts = [first, *(int(np.ceil(share * end)) for share in later)]
            break
    if not starts:
        return Planned(np.zeros(0, np.int64), np.zeros(0))
    cuts = np.unique(np.concatenate([np.linspace(starts[0], end, N_CUTS).round().astype(np.int64), starts]))
    levels = np.zeros(len(cuts))
    levels[np.searchsorted(cuts, starts)] = (1 - confidence) / len(starts)
    return Planned(cuts, levels)


def _strictest(sampled: Sampled, ranks: NDArray[np.int64], needed: int | None) -> int | None:
    """Return the lowest rank that is certain to have that many verdicts; the last if only the whole has them."""
    n_of = np.array([stratum.n for stratum in sampled.until(int(sampled.ends[-1]))], np.float64)
    if needed is None or n_of.sum() < needed:
        return None
    starts = np.concatenate([[0], sampled.ends[:-1]])
    inside = np.clip((ranks[:, None] - starts) / (sampled.ends - starts), 0, 1)  # of each stratum, at each rank
    sure = inside @ n_of - _MARGIN * np.sqrt((inside * (1 - inside)) @ n_of) >= needed
    sure[-1] = True
    return int(ranks[sure.argmax()])


def guaranteed_cut(
    sampled: Sampled,
    rate: float,
    confidence: float,
    *,
    snap: Callable[[NDArray[np.int64]], NDArray[np.int64]] | None = None,
) -> Guaranteed:
    """Return the largest cut that is shown to have at most a share ``rate`` of bad rows.

    Cuts are tested from strict to loose in an order that is fixed beforehand. A cut that passes hands its level on to
    the next, one that fails hands on nothing: the probability of passing any cut with more than ``rate`` of bad rows is
    at most 1 - confidence, however accurate the score is.

    Args:
        sampled: the verdicts.
        rate: in (0, 1).
        confidence: in (0, 1).
        snap: moves ranks, ascending, up to such at which no equal rows are parted.

    Source: Angelopoulos et al. 2021, "Learn then Test", arXiv:2110.01052, section 2.3 (fixed-sequence testing with
        several starts); that a level is handed on: Wiens 2003, "A fixed sequence Bonferroni procedure" (the fallback
        procedure). The p value is exact for finite populations (Clopper and Pearson 1934 is its limit for large ones).
    """
    planned = plan_tests(sampled, rate, confidence)
    planned = planned.snapped(snap) if snap and len(planned.cuts) else planned
    tested: list[TestedCut] = []
    handed = 0.0
    for cut, share in zip(planned.cuts.tolist(), planned.levels.tolist(), strict=True):
        level = share + handed
        if not level:
            continue
        strata = sampled.until(cut)
        p = p_value_bad(strata, rate)
        tested.append(
            TestedCut(cut, sum(stratum.n for stratum in strata), sum(stratum.positive for stratum in strata), p, level)
        )
        handed = level if tested[-1].passed else 0.0
    return Guaranteed(max((test.kept for test in tested if test.passed), default=0), tuple(tested))


def conformal_cut(sampled: Sampled, rate: float, cuts: NDArray[np.int64]) -> int:
    """Return the largest cut whose bad kept rows are, in expectation over samples, at most ``rate`` of all rows.

    The loss of a row is its badness where it is kept, else 0, which does not fall as cuts grow; its mean is over the
    whole population and not over what is kept. The guarantee is for the expected loss of a further row like those
    that were sampled: E[badness x kept] <= rate.

    Args:
        sampled: verdicts of one stratum, at least one.
        rate: in (0, 1).
        cuts: ascending.

    Returns:
        0 where none does.

    Source: Angelopoulos et al. 2022, "Conformal Risk Control", arXiv:2208.02814, equation 4, with B = 1.
    """
    if len(sampled.ends) != 1 or not len(sampled.ranks):
        raise ValueError("expected verdicts of one stratum")
    order = np.argsort(sampled.ranks, kind="stable")
    lost = np.concatenate([[0.0], np.cumsum(sampled.badness[order])])
    kept_loss = lost[np.searchsorted(sampled.ranks[order], cuts, side="right")]
    passes = (kept_loss + 1) / (len(sampled.ranks) + 1) <= rate + _SLACK
    return int(cuts[passes][-1]) if passes.any() else 0


def more_verdicts(sampled: Sampled, rate: float, confidence: float) -> int | None:
    """Return how many more verdicts like these would show it for some cut with probability one half.

    None where every cut that was tested shows a share of bad rows of ``rate`` or more: no number of verdicts helps.
    """
    n, end = len(sampled.ranks), int(sampled.ends[-1])
    tested = guaranteed_cut(sampled, rate, confidence).tested
    if not tested:
        needed = fewest_verdicts(end, rate, confidence)
        return None if needed is None else max(needed - n, 1)
    totals = [
        ceil(n * needed / test.n) - n
        for test in tested
        if test.n
        and test.bad / test.n < rate
        and (needed := verdicts_for_power(test.kept, rate, 1 - test.level, expected=test.bad / test.n, power=0.5))
    ]
    return max(min(totals), ceil(sqrt(n))) if totals else None
