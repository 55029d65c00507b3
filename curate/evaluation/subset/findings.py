"""The measures of a subset as plain values."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.evaluation.subset.pool import SubsetPool
from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, TrainingSides
from curate.evaluation.subset.trained import ChanceLevel, Gap, SideAccuracies, chance_level_of, gap, gap_of_draws
from curate.statistics.diversity import nearest_distances, vendi_interval, vendi_score
from curate.statistics.two_sample import holm
from curate.tables.rows import Codes
from scoring.errors import InputError
from scoring.metrics.proportions import chance_of_at_least, wilson
from scoring.metrics.resampling import Interval

FOUR_FIFTHS = 0.8  # ratio of kept shares below which there is adverse impact, by the four-fifths rule
MOST_GROUPS = 1000
SIGNIFICANT = 0.05
NOBODY = "(none)"  # name of the group of rows without a value
LOOKED_AT = 4_000  # maximum rows whose nearest kept row is searched
DRAWS = 20  # minimum of random subsets for diversity, which is fast
WITHIN = 0.9  # share of all rows with another row within the radius
HELPS, HURTS, NO_HELP, UNKNOWN = "helps", "hurts", "does not help", "cannot be determined"
BETTER, WORSE, AS_GOOD = "better", "worse", "as good"
MARGIN = 0.02  # margin of accuracy within which a difference is negligible


@dataclass(frozen=True)
class GroupShare:
    """The kept share of one group.

    Attributes:
        name: value of the column.
        rows: number of rows of the group.
        kept: number of these in the subset.
        share: kept over rows, with Wilson's 95 % interval.
        p: probability that a random subset of the same size drops at least as many of the group.
        adjusted_p: adjusted by Holm over all groups of the column.
    """

    name: str
    rows: int
    kept: int
    share: Interval
    p: float
    adjusted_p: float

    @property
    def dropped_more(self) -> bool:
        """Whether the group lost significantly more rows than average."""
        return self.adjusted_p <= SIGNIFICANT


@dataclass(frozen=True)
class Fairness:
    """The kept share of each group in a column.

    Attributes:
        column: of the groups.
        kept: share of all rows.
        groups: lowest share first.
        ratio: lowest share over the highest; NaN for a single group.
    """

    column: str
    kept: float
    groups: list[GroupShare]
    ratio: float

    @property
    def passes(self) -> bool:
        """Whether the lowest share is at least four fifths of the highest."""
        return not self.ratio < FOUR_FIFTHS


def fairness(column: str, codes: Codes, kept: NDArray[np.bool_]) -> Fairness:
    """Return the kept share of each group.

    Args:
        column: name, for messages.
        codes: the group of each of N rows; -1 for none.
        kept: whether each row is in the subset, shape (N,).

    Raises:
        InputError: for a column of more than 1,000 values.

    Source: the ratio, "four-fifths rule": Uniform Guidelines on Employee Selection Procedures, 29 CFR 1607.4 D (1978);
    p: Fisher's exact test, one-sided.
    """
    place = np.where(codes.codes < 0, len(codes.names), codes.codes)
    names = [*codes.names, NOBODY]
    rows, stay = np.bincount(place, minlength=len(names)), np.bincount(place[kept], minlength=len(names))
    present = np.flatnonzero(rows)
    if len(present) > MOST_GROUPS:
        raise InputError(
            f"--group: expected at most {MOST_GROUPS:,} groups in column {column!r}, got {len(present):,}; "
            "choose a column of groups"
        )
    n, dropped = len(kept), int((~kept).sum())
    p = np.array([chance_of_at_least(int(rows[g] - stay[g]), int(rows[g]), dropped, n) for g in present])
    adjusted = holm(p) if len(present) else p
    shares_kept = [
        GroupShare(names[g], int(rows[g]), int(stay[g]), wilson(int(stay[g]), int(rows[g])), float(each), float(after))
        for g, each, after in zip(present.tolist(), p, adjusted, strict=True)
    ]
    shares = stay[present] / rows[present]
    ratio = float(shares.min() / shares.max()) if len(present) > 1 and shares.max() > 0 else float("nan")
    return Fairness(
        column, float(kept.mean()) if n else 0.0, sorted(shares_kept, key=lambda group: group.share.value), ratio
    )


@dataclass(frozen=True)
class Diversity:
    """Vendi scores.

    Attributes:
        subset: with its interval over rows.
        all_rows: with its interval over rows.
        random: mean of random subsets of the same size.
        against_random: difference of the subset to it.
    """

    subset: Interval
    all_rows: Interval
    random: float
    against_random: Gap


@dataclass(frozen=True)
class SubsetCoverage:
    """Distances from all rows to the rows of a subset.

    Attributes:
        radius: Euclidean, between unit vectors, in [0, 2]: 90 % of all rows have another row within it.
        subset: share of all rows with a row of the subset within the radius, themselves included.
        random: mean of random subsets of the same size.
        against_random: difference of the subset to it.
        distance: mean distance to the nearest row of the subset.
        random_distance: mean of random subsets.
        distance_against_random: difference of the subset to it.
        n: number of rows measured.
    """

    radius: float
    subset: float
    random: float
    against_random: Gap
    distance: float
    random_distance: float
    distance_against_random: Gap
    n: int


def diversity(pool: SubsetPool, sides: TrainingSides, *, seed: int) -> Diversity:
    """Return Vendi scores of a subset, of all rows and of random subsets, from stored embeddings."""
    mixed = np.random.default_rng([seed, 3])
    subset, all_rows = (
        vendi_interval(pool.vectors[mixed.permutation(rows)]) for rows in (sides.subset, sides.all_rows)
    )
    drawn = [*sides.random, *(mixed.choice(sides.all_rows, len(sides.subset), replace=False) for _ in range(DRAWS))]
    random = np.array([vendi_score(pool.vectors[rows]) for rows in drawn[: max(DRAWS, len(sides.random))]])
    return Diversity(subset, all_rows, float(random.mean()), gap_of_draws(subset.value, random))


def coverage(pool: SubsetPool, sides: TrainingSides, *, seed: int) -> SubsetCoverage:
    """Return the distances of all rows to the subset, and to random subsets."""
    generator = np.random.default_rng([seed, 4])
    looked_at = np.sort(generator.permutation(len(sides.all_rows))[:LOOKED_AT])
    rows = pool.vectors[sides.all_rows[looked_at]]
    radius = float(np.quantile(nearest_distances(rows, pool.vectors[sides.all_rows], same=looked_at), WITHIN))
    radius += 1e-6  # tolerance, so that a neighbour at the radius is within it
    ours = nearest_distances(rows, pool.vectors[sides.subset])
    random = np.stack([nearest_distances(rows, pool.vectors[drawn]) for drawn in sides.random])
    weight = np.full(len(rows), 1 / len(rows))

    def chance_level(values: np.ndarray) -> ChanceLevel:
        return chance_level_of(values, weight)

    within = random <= radius
    return SubsetCoverage(
        radius,
        float((ours <= radius).mean()),
        float(within.mean()),
        gap(ours <= radius, within, chance_level(within)),
        float(ours.mean()),
        float(random.mean()),
        gap(ours, random, chance_level(random)),
        len(rows),
    )


@dataclass(frozen=True)
class SubsetVerdict:
    """The verdict from one kind of model.

    Attributes:
        model: kind of model.
        says: ``helps``, ``hurts``, ``does not help`` or ``cannot be determined``, compared with random rows of the same
            size.
        of_rows: the same, compared with random rows of the same class counts: the effect of the rows alone.
        of_size: ``better``, ``worse``, ``as good`` or ``cannot be determined``, compared with all rows.
    """

    model: str
    says: str
    of_rows: str
    of_size: str


def against(gap: Gap) -> str:
    """Return whether the subset is better than random rows, by the 95 % interval of a difference.

    Above 0 it helps, below 0 it hurts. Around 0 it does not help if the upper end is below the margin; else the test is
    too small to decide.
    """
    _, low, high = gap.interval
    if low > 0:
        return HELPS
    if high < 0:
        return HURTS
    return NO_HELP if high < MARGIN else UNKNOWN


def compare_with_all(gap: Gap) -> str:
    """Return how the subset compares with all rows, by the 95 % interval; within the margin counts as equal."""
    _, low, high = gap.interval
    if low > 0:
        return BETTER
    if high < 0:
        return WORSE
    return AS_GOOD if low > -MARGIN and high < MARGIN else UNKNOWN


def verdict_of(trained: SideAccuracies) -> SubsetVerdict:
    """Return the verdict from one kind of model."""
    gaps = trained.gaps
    return SubsetVerdict(
        trained.model, against(gaps[RANDOM]), against(gaps[BY_CLASS]), compare_with_all(gaps[ALL_ROWS])
    )


@dataclass(frozen=True)
class Noise:
    """Estimated shares of wrong labels, each with a 95 % interval."""

    subset: Interval
    all_rows: Interval
    tested: Interval


@dataclass
class SubsetFindings:
    """The results of ``curate evaluate --subset``.

    Attributes:
        table: its path.
        subset: its path.
        rows: number of rows of the table.
        kept: number of these in the subset.
        left_out: number of excluded rows by reason.
        label: class column; None without.
        classes: number of classes.
        test: requested test rows, as typed.
        n_tested: number of test rows.
        n_trained: number of training rows by side.
        share: share of the trainable rows that were sampled.
        copies: test rows with a near-copy among the training rows.
        copies_left_out: whether they were excluded.
        lost: classes without a row in the subset.
        trained: accuracies of every kind of model; the first determines the verdict.
        not_trained: why a kind of model was not trained.
        noise: estimated label errors; None without labels.
        diversity: Vendi scores.
        coverage: distances of all rows to the subset.
        fairness: of each requested column.
        settings: that determine the numbers.
    """

    table: str
    subset: str
    rows: int
    kept: int
    left_out: dict[str, int]
    label: str | None
    classes: int
    test: str
    n_tested: int
    n_trained: dict[str, int]
    share: float
    copies: int = 0
    copies_left_out: bool = False
    lost: list[str] = field(default_factory=list)
    trained: list[SideAccuracies] = field(default_factory=list)
    not_trained: dict[str, str] = field(default_factory=dict)
    noise: Noise | None = None
    diversity: Diversity | None = None
    coverage: SubsetCoverage | None = None
    fairness: list[Fairness] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def verdicts(self) -> list[SubsetVerdict]:
        """The verdict from each kind of model; the first counts."""
        return [verdict_of(model) for model in self.trained]
