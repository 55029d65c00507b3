"""What a comparison of two tables found, as plain values and as JSON."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from scoring.metrics import Interval

SIGNIFICANT = 0.05  # p values, adjusted for how many were asked, up to which a difference is called one
NUMBERS, VALUES = "numbers", "values"


@dataclass(frozen=True)
class Share:
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
    moved: tuple[Share, ...] = ()


@dataclass(frozen=True)
class EmbeddingShift:
    """How the embeddings differ.

    Attributes:
        rows: of either table that are compared.
        shared: distinct images that both samples hold.
        auroc: chance that a row of the second table looks more like the second than one of the first does.
        p: of its permutation test.
        mmd: squared maximum mean discrepancy, less what chance gives.
        mmd_p: likewise.
    """

    rows: tuple[int, int]
    shared: int
    auroc: Interval
    p: float
    mmd: float
    mmd_p: float


@dataclass(frozen=True)
class Told:
    """A row that tells its table from the other.

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
        second: likewise.
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
    examples: tuple[tuple[Told, ...], tuple[Told, ...]]


@dataclass
class Comparison:
    """What ``curate compare`` found.

    Attributes:
        tables: the two files.
        rows: of either.
        sampled: rows of either that are compared.
        columns: most significant first.
        only_in: columns that only one table has, of either.
        left_out: column -> why it was not compared.
        embedding: how the embeddings differ; None where they were not compared.
        without_embedding: why not; empty where they were.
        tell: the rows that tell most, of either table.
        clusters: those that one side lacks first, then by difference.
        failed: whether the embeddings differ by more than was allowed, and by more than chance.
        settings: what decides the numbers.
        notes: what is odd about the keys of either table, one sentence each.
    """

    tables: tuple[str, str]
    rows: tuple[int, int]
    sampled: tuple[int, int]
    columns: list[ColumnShift] = field(default_factory=list)
    only_in: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    left_out: dict[str, str] = field(default_factory=dict)
    embedding: EmbeddingShift | None = None
    without_embedding: str = ""
    tell: tuple[tuple[Told, ...], tuple[Told, ...]] = ((), ())
    clusters: list[ClusterShare] = field(default_factory=list)
    failed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a number that does not exist is null."""
        record: dict[str, Any] = _plain(asdict(self))
        return record


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, Interval):
        return _plain(value._asdict())
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
