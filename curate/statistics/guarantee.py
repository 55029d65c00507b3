"""Thresholds with a guarantee on the share of bad rows kept, from verdicts on a random sample.

Rows are sorted, best first, and a cut keeps the first K. Verdicts give the badness of sampled rows: 0 good, 1 bad, or
between if reviewers disagree. There are two guarantees:

- with a given confidence, the mean badness of the kept rows is at most a rate (``LTT``, Learn then Test);
- in expectation over samples, the badness kept, as a share of all rows, is at most a rate (``CRC``, conformal risk
control).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, floor, sqrt

import numpy as np
from numpy.typing import NDArray

from scoring.metrics.proportions import Stratum, p_value_at_most

_SLACK = 1e-12
N_CUTS = 200  # approximate number of tested cuts
LATER_STARTS = ((0.5, 0.75), (0.75,), ())  # shares of the population at which further tests start
_MARGIN = 2.0  # margin of the first cut in standard deviations, so that it has enough verdicts


@dataclass(frozen=True)
class Sampled:
    """Verdicts on a random sample of an ordered population.

    Attributes:
        ends: last rank of each stratum, ascending from 1, shape (H,). The sample of each stratum is simple random
            without replacement.
        ranks: of the sampled rows, from 1 for the best, shape (n,), at most the last end. Ties have their largest rank.
        badness: of each sampled row, shape (n,), in [0, 1].
    """

    ends: NDArray[np.int64]
    ranks: NDArray[np.int64]
    badness: NDArray[np.float64]

    def __post_init__(self) -> None:
        if not len(self.ends) or self.ends[0] < 1 or (np.diff(self.ends) < 1).any():
            raise ValueError(f"expected ascending ends of strata, got {self.ends}")
        if len(self.ranks) != len(self.badness):
            raise ValueError("expected a rank and a badness for each row")
        inside = (self.ranks >= 1) & (self.ranks <= self.ends[-1]) & (self.badness >= 0) & (self.badness <= 1)
        if not inside.all():
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


def p_value_bad(strata: Sequence[Stratum], rate: float) -> float:
    """Return a p value for the hypothesis that more than ``rate`` of these rows are bad.

    Args:
        strata: of the population; ``positive`` is the sum of badness.
        rate: in [0, 1).

    Returns:
        In [0, 1]; under the hypothesis, below alpha with a probability of at most alpha. Exact (hypergeometric) for one
        stratum and binary badness; Chernoff's bound otherwise.
    """
    total = sum(stratum.size for stratum in strata)
    good = total - floor(rate * total + _SLACK * total) - 1  # largest number of good rows under the hypothesis
    return 0.0 if good < 0 else p_value_at_most([stratum.turned() for stratum in strata], good / total)


def fewest_verdicts(size: int, rate: float, confidence: float, n_bad: int = 0) -> int | None:
    """Return the number of verdicts, ``n_bad`` of them bad, that show that at most ``rate`` of ``size`` rows are bad.

    None if impossible even with verdicts on all rows.

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
    """Return the number of verdicts for a test of this power if a share ``expected`` of the rows is bad.

    Args:
        size: number of kept rows.
        rate: bound to show, in (0, 1).
        confidence: in (0, 1).
        expected: true share of bad rows, in [0, rate).
        power: in (0, 1).

    Returns:
        None if ``expected`` is not below ``rate``, or no number of verdicts suffices.
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
    """Cuts in the order of testing, and the error level of each.

    Attributes:
        cuts: ranks, ascending, shape (T,).
        levels: shape (T,), >= 0, with sum 1 - confidence; most are 0, since a passed cut adds its level to the next.
    """

    cuts: NDArray[np.int64]
    levels: NDArray[np.float64]


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
        kept: number of kept rows; 0 if no cut passes.
        tested: the tested cuts, in order.
    """

    kept: int
    tested: tuple[TestedCut, ...]


def plan_tests(sampled: Sampled, rate: float, confidence: float) -> Planned:
    """Return the cuts to test; empty with too few verdicts for any.

    They depend on the number of verdicts, not on their outcomes. Tests start at up to three cuts, each with an equal
    part of 1 - confidence: the strictest one with enough verdicts, half, and three quarters of the population. So
    scores with some bad rows among the best can pass at a later start, and scores that are only good for few rows at
    the first.
    """
    end = int(sampled.ends[-1])
    ranks = np.unique(np.linspace(1, end, 4 * N_CUTS).round().astype(np.int64))
    starts: list[int] = []
    for later in LATER_STARTS:
        part = (1 - confidence) / (1 + len(later))
        first = _strictest_cut(sampled, ranks, fewest_verdicts(end, rate, 1 - part))
        if first is not None and all(first < share * end for share in later):
            starts = [first, *(int(np.ceil(share * end)) for share in later)]
            break
    if not starts:
        return Planned(np.zeros(0, np.int64), np.zeros(0))
    cuts = np.unique(np.concatenate([np.linspace(starts[0], end, N_CUTS).round().astype(np.int64), starts]))
    levels = np.zeros(len(cuts))
    levels[np.searchsorted(cuts, starts)] = (1 - confidence) / len(starts)
    return Planned(cuts, levels)


def _strictest_cut(sampled: Sampled, ranks: NDArray[np.int64], needed: int | None) -> int | None:
    """Return the lowest rank that is certain to have that many verdicts; the last rank if only the whole has them."""
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

    Cuts are tested from strict to loose in an order fixed in advance. A passed cut adds its level to the next, a failed
    one does not: the probability of passing any cut with more than ``rate`` of bad rows is at most 1 - confidence, for
    any score.

    Args:
        sampled: the verdicts.
        rate: in (0, 1).
        confidence: in (0, 1).
        snap: moves ascending ranks up so that ties are not split; it must not depend on verdicts.

    Source: Angelopoulos et al. 2021, "Learn then Test", arXiv:2110.01052, section 2.3 (fixed-sequence testing with
        several starts); passing on levels: Wiens 2003, "A fixed sequence Bonferroni procedure" (the fallback
        procedure). The p value is exact for finite populations (Clopper and Pearson 1934 is its limit for large ones).
    """
    planned = plan_tests(sampled, rate, confidence)
    cuts, levels = planned.cuts, planned.levels
    if snap and len(cuts):
        cuts, of = np.unique(snap(cuts), return_inverse=True)
        levels = np.bincount(of, weights=levels, minlength=len(cuts)).astype(np.float64)
    tested: list[TestedCut] = []
    handed = 0.0
    for cut, share in zip(cuts.tolist(), levels.tolist(), strict=True):
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

    The loss of a row is its badness if kept, else 0, non-decreasing in the cut; its mean is over the whole population,
    not over the kept rows. The guarantee is for the expected loss of an exchangeable new row: E[badness x kept] <=
    rate.

    Args:
        sampled: verdicts of one stratum, at least one.
        rate: in (0, 1).
        cuts: ascending.

    Returns:
        0 if no cut has the guarantee.

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
    """Return the number of additional verdicts like these that would pass some cut with probability one half.

    None if every tested cut shows a share of bad rows of ``rate`` or more, so that no number suffices.
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
