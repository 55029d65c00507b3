"""The diversity and coverage of a subset, measured without labels."""

from dataclasses import dataclass

import numpy as np

from curate.evaluation.subset.differences import ChanceLevel, Gap, chance_level_of, gap, gap_of_draws
from curate.evaluation.subset.pool import SubsetPool
from curate.evaluation.subset.sides import TrainingSides
from curate.statistics.diversity import nearest_distances, vendi_interval, vendi_score
from scoring.metrics.resampling import Interval

LOOKED_AT = 4_000  # rows of the whole whose nearest kept row is looked for
DRAWS = 20  # random subsets at least, whose diversity costs little
WITHIN = 0.9  # share of the whole's rows that have another row within the radius


@dataclass(frozen=True)
class Diversity:
    """Vendi scores.

    Attributes:
        subset: with its interval over rows.
        all_rows: the same.
        random: mean of random subsets of the same size.
        against_random: subset less that.
    """

    subset: Interval
    all_rows: Interval
    random: float
    against_random: Gap


@dataclass(frozen=True)
class SubsetCoverage:
    """Distances from all rows to the rows of a subset.

    Attributes:
        radius: Euclidean, between unit rows, in [0, 2]: 90 % of the whole's rows have another row within it.
        subset: share of the whole's rows with a row of the subset within the radius, themselves counted.
        random: mean of random subsets of the same size.
        against_random: subset less that.
        distance: mean distance to the nearest row of the subset.
        random_distance: of random subsets.
        distance_against_random: subset less that.
        n: rows of the whole that were looked at.
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
    radius += 1e-6  # a neighbour at the radius is within it, whatever the product's last digits
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
