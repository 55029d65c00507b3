"""What the strategy is worth on the user's own data: its labels against those drawn at random, at equal numbers."""

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.probe import Spread
from curate.rounds.light import Known, fit

LEAST_CONTROL = 20  # labels an arm below which nothing is said
LEAST_HELD_OUT = 50  # rows to measure on below which nothing is said
LEVEL = 1.96  # standard errors of a 95 % interval
SUBSAMPLES = 20  # of the larger arm, whose mean is told
RESAMPLES = 60  # of both arms, for the interval


@dataclass(frozen=True)
class ArmLift:
    """Accuracy of light models fitted on equally many labels of either arm.

    Attributes:
        n: labels of each arm.
        n_held_out: rows it is measured on.
        strategy: accuracy with the strategy's labels, the mean over subsamples.
        control: accuracy with labels drawn at random.
        difference: strategy above control.
        low: lower end of its 95 % interval.
        high: upper end.
        needed: labels an arm after which the interval would leave 0 out, if the difference stays; None where it does
            already, where more held-out rows are needed first, or where that cannot be told.
        text: one sentence for a person.
    """

    n: int
    n_held_out: int
    strategy: float | None = None
    control: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    needed: int | None = None
    text: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return asdict(self)


@dataclass(frozen=True)
class Arms:
    """Rows with labels, by why they were asked, and rows to measure on.

    Attributes:
        vectors: of the table, shape (N, D).
        strategy: rows that the strategy picked.
        control: rows drawn at random.
        held_out: rows to measure on.
        kind: of the light model.
        spread: of the pool.
    """

    vectors: NDArray
    strategy: Known
    control: Known
    held_out: Known
    kind: str
    spread: Spread | None = None

    @property
    def n(self) -> int:
        """Labels that both arms have."""
        return min(len(self.strategy), len(self.control))

    def right(self, arm: Known, chosen: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return 1 for each held-out row that a model of some labels of an arm is right on, else 0, shape (T,)."""
        order = np.sort(chosen)
        part = Known(arm.rows[order], arm.labels[order], arm.classes)
        probe = fit(self.kind, self.vectors, part, spread=self.spread, calibrate=False)
        predicted = probe.predict(self.vectors[self.held_out.rows]).argmax(1)
        return (predicted == self.held_out.labels).astype(np.float64)


def arm_lift(arms: Arms, seed: int = 0) -> ArmLift:
    """Compare the arms at equal numbers of labels.

    The larger arm is subsampled; the accuracy told is the mean over subsamples. The interval holds for other labels of
    the same arms and for other held-out rows: the variance of the difference over resampled labels, plus that of its
    mean over the held-out rows.

    Args:
        arms: their rows.
        seed: of the subsamples.
    """
    n, n_held_out = arms.n, len(arms.held_out)
    if n < LEAST_CONTROL or n_held_out < LEAST_HELD_OUT:
        text = (
            f"not enough yet to tell the lift over random: {n:,} control labels of at least {LEAST_CONTROL}, "
            f"{n_held_out:,} held-out labels of at least {LEAST_HELD_OUT}"
        )
        return ArmLift(n, n_held_out, needed=LEAST_CONTROL if n < LEAST_CONTROL else None, text=text)
    generator = np.random.default_rng([seed, 4])
    strategy, control = (_told(arms, arm, n, generator) for arm in (arms.strategy, arms.control))
    of_labels, of_rows = _errors(arms, n, generator)
    difference, error = strategy - control, math.hypot(of_labels, of_rows)
    low, high = difference - LEVEL * error, difference + LEVEL * error
    needed = None if low > 0 or high < 0 else _needed(n, abs(difference), of_labels, of_rows)
    text = _text(n, strategy, control, low, high, needed, of_rows)
    return ArmLift(n, n_held_out, strategy, control, difference, low, high, needed, text)


def arm_accuracy(arms: Arms, n: int, seed: int = 0, draws: int = 5) -> tuple[float, float]:
    """Return the accuracy with n labels of the strategy, and of the control arm, each the mean over subsamples."""
    generator = np.random.default_rng([seed, 5])
    strategy, control = (_told(arms, arm, n, generator, draws) for arm in (arms.strategy, arms.control))
    return strategy, control


def _told(arms: Arms, arm: Known, n: int, generator: np.random.Generator, draws: int = SUBSAMPLES) -> float:
    if len(arm) == n:
        return float(arms.right(arm, np.arange(n)).mean())
    return float(np.mean([arms.right(arm, generator.permutation(len(arm))[:n]).mean() for _ in range(draws)]))


def _errors(arms: Arms, n: int, generator: np.random.Generator) -> tuple[float, float]:
    """Return the standard errors of the difference that come from which labels, and from which rows to measure on."""
    gaps = np.empty((RESAMPLES, len(arms.held_out)))
    for gap in gaps:
        drawn = [generator.integers(0, len(arm), n) for arm in (arms.strategy, arms.control)]
        gap[:] = arms.right(arms.strategy, drawn[0]) - arms.right(arms.control, drawn[1])
    of_labels = float(gaps.mean(1).std(ddof=1))
    of_rows = float(gaps.mean(0).std(ddof=1) / math.sqrt(len(arms.held_out)))
    return of_labels, of_rows


def _needed(n: int, difference: float, of_labels: float, of_rows: float) -> int | None:
    """Return the labels an arm at which 1.96 standard errors come down to the difference; None where they never do."""
    left = (difference / LEVEL) ** 2 - of_rows**2
    return math.ceil(n * of_labels**2 / left) if left > 0 else None


def _text(n: int, strategy: float, control: float, low: float, high: float, needed: int | None, of_rows: float) -> str:
    gap = strategy - control
    told = (
        f"with {n:,} labels each, the strategy's teach {strategy:.1%} and random ones {control:.1%}: "
        f"{100 * gap:+.1f} points ({100 * low:+.1f} to {100 * high:+.1f})"
    )
    if low > 0:
        return f"{told}; the strategy beats random"
    if high < 0:
        return f"{told}; random beats the strategy"
    if needed is not None and needed <= 1000 * n:
        return f"{told}; not enough yet to tell: about {needed:,} control labels if the difference stays"
    return f"{told}; not enough yet to tell" + (
        "; more held-out rows are needed" if of_rows * LEVEL >= abs(gap) else ""
    )
