"""The result of comparing two tables, as a value, as JSON, and in words."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.counted import Grid, Printed, counted
from curate.tables.provenance import FittedRange, Outside
from curate.tables.typed_json import plain_json
from scoring.metrics.resampling import Interval

SIGNIFICANT = 0.05  # significance level of adjusted p values
NUMBERS, VALUES = "numbers", "values"
N_KEYS = 3
N_CLUSTERS = 8
N_NAMED = 8  # columns


@dataclass(frozen=True)
class ValueShare:
    """A value of a column, and its share of the rows of each table."""

    value: str
    first: float
    second: float


@dataclass(frozen=True)
class ColumnShift:
    """The difference of one column.

    Attributes:
        name: of the column.
        kind: ``numbers``, compared by their distribution functions, or ``values``, compared by their shares.
        distance: Kolmogorov-Smirnov distance of numbers, total variation distance of values; in [0, 1].
        p: of a permutation test of the distance, and of the share of missing values if any.
        adjusted_p: adjusted by Holm over all columns.
        missing: share of rows without a value in each table.
        means: of numbers in each table.
        standardised: of numbers, second mean minus first in standard deviations.
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
    """Rows of one table outside of the score range on which its probabilities were calibrated.

    Attributes:
        table: 0 for the first, 1 for the second.
        fitted: the range and its column.
        outside: number of sampled rows with a score, and of those outside.
        p: probability of at least as many if these rows and the calibration rows have the same distribution.
    """

    table: int
    fitted: FittedRange
    outside: Outside
    p: float


@dataclass(frozen=True)
class EmbeddingShift:
    """The difference of the embeddings.

    Attributes:
        rows: number of compared rows of each table.
        shared: number of distinct images in both samples.
        auroc: probability that a classifier ranks a row of the second table as more like the second than a row of the
            first.
        p: of its permutation test.
        mmd: squared maximum mean discrepancy, minus its mean under equal distributions.
        mmd_p: of its permutation test.
    """

    rows: tuple[int, int]
    shared: int
    auroc: Interval
    p: float
    mmd: float
    mmd_p: float


@dataclass(frozen=True)
class DistinctiveRow:
    """A row that a classifier attributes most clearly to its own table.

    Attributes:
        row: its number in its table.
        key: of the row.
        score: classifier score in favour of its table, in standard deviations.
    """

    row: int
    key: str
    score: float


@dataclass(frozen=True)
class ClusterShare:
    """One cluster of the rows of both tables.

    Attributes:
        number: of the cluster.
        rows: number of its rows in each sample.
        first: share of the first table's rows, with a 95 % interval.
        second: share of the second table's rows, with a 95 % interval.
        adjusted_p: of a permutation test that the shares differ, adjusted for all clusters.
        lacking: ``first`` or ``second`` if its share is at most a tenth of the other's; else empty.
        examples: rows of each table nearest to the cluster's centre.
    """

    number: int
    rows: tuple[int, int]
    first: Interval
    second: Interval
    adjusted_p: float
    lacking: str
    examples: tuple[tuple[DistinctiveRow, ...], tuple[DistinctiveRow, ...]]


def of_clusters(clusters: Sequence[ClusterShare], names: Sequence[str]) -> list[str | Grid]:
    """Return a table of the clusters whose shares differ significantly."""
    if not clusters:
        return []
    differing = [each for each in clusters if each.adjusted_p <= SIGNIFICANT]
    n = counted(len(clusters), "cluster")
    if not differing:
        return ["", f"{n} of both: no share differs more than chance allows"]
    header = ["cluster", f"share of {names[0]}", f"share of {names[1]}", "", "such as"]
    rows = []
    for each in differing[:N_CLUSTERS]:
        lacking = f"{names[('first', 'second').index(each.lacking)]} lacks it" if each.lacking else ""
        larger = each.examples[int(each.second.value > each.first.value)]
        shares = [_interval(interval, percent=True) for interval in (each.first, each.second)]
        rows.append([str(each.number), *shares, lacking, _keys(larger)])
    return [
        "",
        Grid(rows, header=header),
        f"the shares of {len(differing):,} of {n} of both differ more than chance allows",
    ]


def _shift_row(each: ColumnShift) -> list[str]:
    first = second = ""
    if each.means is not None:
        first, second = (f"{value:.4g}" for value in each.means)
    elif each.moved:
        first = ", ".join(f"{moved.value[:24]} {moved.first:.1%}" for moved in each.moved)
        second = ", ".join(f"{moved.value[:24]} {moved.second:.1%}" for moved in each.moved)
    if max(each.missing) > 0:
        first, second = (
            f"{text} ({missing:.1%} missing)" if missing else text
            for text, missing in zip((first, second), each.missing, strict=True)
        )
    known = each.standardised is not None and each.standardised == each.standardised
    return [
        each.name,
        f"{each.distance:.3f}",
        first,
        second,
        f"{each.standardised:+.2f}" if known else "",
        f"{each.adjusted_p:.3f}",
    ]


def _keys(rows: Sequence[DistinctiveRow]) -> str:
    return ", ".join(each.key for each in rows[:N_KEYS])


def _interval(value: Interval, *, percent: bool = False) -> str:
    shape = "{:.1%} [{:.1%}, {:.1%}]" if percent else "{:.3f} [{:.3f}, {:.3f}]"
    return shape.format(*value)


@dataclass
class TableComparison(Printed):
    """The result of ``curate compare``, which it prints.

    Attributes:
        tables: paths of the two files.
        rows: number of rows of each.
        sampled: number of compared rows of each.
        columns: differences, most significant first.
        only_in: columns that only one table has, of each.
        left_out: why a column was not compared, by column.
        embedding: difference of the embeddings; None if they were not compared.
        without_embedding: why they were not compared; else empty.
        distinctive: the most distinctive rows of each table.
        clusters: those that one side lacks first, then by difference.
        failed: whether the embeddings differ significantly and by more than allowed.
        settings: options that determine the numbers.
        notes: on unusual keys of each table, one sentence each.
        left_range: for calibrated probabilities, rows of each table outside of the calibrated range.
    """

    tables: tuple[str, str]
    rows: tuple[int, int]
    sampled: tuple[int, int]
    columns: list[ColumnShift] = field(default_factory=list)
    only_in: tuple[list[str], list[str]] = field(default_factory=lambda: ([], []))
    left_out: dict[str, str] = field(default_factory=dict)
    embedding: EmbeddingShift | None = None
    without_embedding: str = ""
    distinctive: tuple[tuple[DistinctiveRow, ...], tuple[DistinctiveRow, ...]] = ((), ())
    clusters: list[ClusterShare] = field(default_factory=list)
    failed: bool = False
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    left_range: list[LeftRange] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; an undefined number is null."""
        record: dict[str, Any] = plain_json(self)
        return record

    def lines(self) -> list[str | Grid]:
        """Return the printed lines; the verdict is last."""
        names = [Path(name).stem for name in self.tables]
        names = names if names[0] != names[1] else ["first", "second"]
        lines: list[str | Grid] = []
        for name, n, taken in zip(self.tables, self.rows, self.sampled, strict=True):
            some = "" if taken == n else f", {taken:,} of them compared (by a hash of their keys)"
            lines.append(f"{name}: {counted(n, 'row')}{some}")
        lines += [f"note: {note}" for note in self.notes]
        if self.columns:
            header = ["column", "distance", *names, "std. difference", "p"]
            lines += ["", Grid([_shift_row(each) for each in self.columns], header=header)]
        lines += [f"{names[each.table]}: {each.outside.words(each.fitted)}" for each in self.left_range]
        lines += [f"only in {name}: {', '.join(only)}" for name, only in zip(names, self.only_in, strict=True) if only]
        lines += [f"not compared: {column} {why}" for column, why in self.left_out.items()]
        lines += of_clusters(self.clusters, names)
        for side, rows in enumerate(self.distinctive):
            if rows:
                lines.append(f"most unlike {names[1 - side]}, in {names[side]}: {_keys(rows)}")
        return [*lines, "", *self.verdict()]

    def verdict(self) -> list[str]:
        """Return the verdict of the comparison: columns, embeddings, and the gate."""
        shifted = [each.name for each in self.columns if each.adjusted_p <= SIGNIFICANT]
        n, lines = counted(len(self.columns), "column"), list[str]()
        if shifted:
            more = f" and {len(shifted) - N_NAMED:,} more" if len(shifted) > N_NAMED else ""
            names = f"{', '.join(shifted[:N_NAMED])}{more}"
            lines.append(f"{len(shifted):,} of {n} differ more than chance allows: {names}")
        elif self.columns:
            lines.append(f"none of {n} differs more than chance allows (p adjusted for all of them)")
        shift = self.embedding
        if shift is None:
            return [*lines, f"embeddings were not compared: {self.without_embedding}"]
        by_chance = "" if shift.p <= SIGNIFICANT else ": no more than chance"
        lines += [
            f"a classifier separates the embeddings with AUROC {_interval(shift.auroc)}, p {shift.p:.3f}{by_chance}",
            f"MMD^2 {shift.mmd:.5f} above chance, p {shift.mmd_p:.3f}",
        ]
        if shift.shared:
            n_shared = counted(shift.shared, "image is", "images are")
            lines.append(f"{n_shared} in both; an image in both counts on both sides")
        limit = self.settings.get("fail_above")
        if limit is None:
            return lines
        above = shift.auroc.value > limit
        why = f"{'above' if above else 'not above'} it{' but can be chance' if above and not self.failed else ''}"
        return [*lines, f"--fail-above {limit:g}: {'failed' if self.failed else 'passed'}, the AUROC is {why}"]
