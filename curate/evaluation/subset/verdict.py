"""Whether a subset helps, from its differences to random rows of the same size and to all rows."""

from dataclasses import dataclass

from curate.evaluation.subset.differences import Gap
from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM
from curate.evaluation.subset.trained import SideAccuracies

HELPS, HURTS, NO_HELP, UNKNOWN = "helps", "hurts", "does not help", "cannot be determined"
BETTER, WORSE, AS_GOOD = "better", "worse", "as good"
MARGIN = 0.02  # of accuracy: a difference that is surely less than this is negligible


@dataclass(frozen=True)
class SubsetVerdict:
    """The verdict from one kind of model.

    Attributes:
        model: that it is of.
        says: ``helps``, ``hurts``, ``does not help`` or ``cannot be determined``, against random rows of the same size.
        of_rows: the same against random rows of the same classes: what is left once the counts of classes are alike.
        of_size: ``better``, ``worse``, ``as good`` or ``cannot be determined``, against the whole.
    """

    model: str
    says: str
    of_rows: str
    of_size: str


def against(gap: Gap) -> str:
    """Return whether the subset is ahead, by the 95 % interval of a difference.

    Above 0 it helps, below 0 it hurts. Around 0 it does not help where even the upper end is below the margin; else the
    test is too small to decide.
    """
    _, low, high = gap.interval
    if low > 0:
        return HELPS
    if high < 0:
        return HURTS
    return NO_HELP if high < MARGIN else UNKNOWN


def beside(gap: Gap) -> str:
    """Return how the subset compares with all rows, by the 95 % interval; within the margin counts as equal."""
    _, low, high = gap.interval
    if low > 0:
        return BETTER
    if high < 0:
        return WORSE
    return AS_GOOD if low > -MARGIN and high < MARGIN else UNKNOWN


def verdict_of(trained: SideAccuracies) -> SubsetVerdict:
    """Return the verdict by one kind of model."""
    gaps = trained.gaps
    return SubsetVerdict(trained.model, against(gaps[RANDOM]), against(gaps[BY_CLASS]), beside(gaps[ALL_ROWS]))
