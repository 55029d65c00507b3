"""How columns, embeddings, rows and clusters of two tables differ, as plain values."""

from dataclasses import dataclass

from curate.tables.ranges import FittedRange, Outside
from scoring.metrics.resampling import Interval

SIGNIFICANT = 0.05  # p values, adjusted for the number of tests, up to which a difference is called one
NUMBERS, VALUES = "numbers", "values"


@dataclass(frozen=True)
class ValueShare:
    """One value of a column and its share of the rows of both tables."""

    value: str
    first: float
    second: float


@dataclass(frozen=True)
class ColumnShift:
    """How one column differs.

    Attributes:
        name: of the column.
        kind: ``numbers``, compared by their distribution functions, or ``values``, compared by their shares.
        distance: Kolmogorov-Smirnov's of numbers, total variation of values; in [0, 1].
        p: of a permutation test of the distance, and of missing values where there are any.
        adjusted_p: by Holm over all columns.
        missing: share of rows without a value in either table.
        means: of numbers, in either table.
        standardised: second mean less first in standard deviations, of numbers.
        moved: of values, those whose shares differ most.
    """

    name: str
    kind: str
    distance: float
    p: float
    adjusted_p: float
    missing: tuple[float, float]
    means: tuple[float, float] | None = None
    standardised: float | None = None
    moved: tuple[ValueShare, ...] = ()


@dataclass(frozen=True)
class LeftRange:
    """Rows of one of the tables that lie outside the range that probabilities of bad were fitted on.

    Attributes:
        table: 0 for the first, 1 for the second.
        fitted: the range, and the column it is of.
        outside: rows of the sample with a score, and those outside.
        p: probability of as many, if these rows and those that were judged are drawn alike.
    """

    table: int
    fitted: FittedRange
    outside: Outside
    p: float


@dataclass(frozen=True)
class EmbeddingShift:
    """How the embeddings differ.

    Attributes:
        rows: of either table that are compared.
        shared: distinct images that both samples hold.
        auroc: probability that a row of the second table looks more like the second than one of the first does.
        p: of its permutation test.
        mmd: squared maximum mean discrepancy, less its value where both come from one distribution.
        mmd_p: the same.
    """

    rows: tuple[int, int]
    shared: int
    auroc: Interval
    p: float
    mmd: float
    mmd_p: float


@dataclass(frozen=True)
class DistinctiveRow:
    """A row that is distinctive of its table.

    Attributes:
        row: its number in its table.
        key: of the row.
        score: how much it looks like its own table and not the other, in standard deviations.
    """

    row: int
    key: str
    score: float


@dataclass(frozen=True)
class ClusterShare:
    """One cluster of the rows of both tables.

    Attributes:
        number: of the cluster.
        rows: of either sample in it.
        first: share of the first table's rows, with a 95 % interval.
        second: the same.
        adjusted_p: of a permutation test that the shares differ, adjusted for all clusters.
        lacking: ``first`` or ``second`` where that has a tenth of the other's share or less; else empty.
        examples: rows nearest to its middle, of either table.
    """

    number: int
    rows: tuple[int, int]
    first: Interval
    second: Interval
    adjusted_p: float
    lacking: str
    examples: tuple[tuple[DistinctiveRow, ...], tuple[DistinctiveRow, ...]]
