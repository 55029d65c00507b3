"""The result of a comparison of two tables, as a value, as JSON, and in words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from curate.counted import Grid, Printed, counted
from curate.tables.ranges import FittedRange, Outside
from curate.tables.typed_json import plain_json
from scoring.metrics.resampling import Interval

SIGNIFICANT = 0.05  # p values, adjusted for the number of tests, up to which a difference is called one
NUMBERS, VALUES = "numbers", "values"
N_KEYS = 3
N_CLUSTERS = 8
N_NAMED = 8  # columns


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


def short_names(tables: tuple[str, str]) -> list[str]:
    """Return a short name for each table: its own, or first and second if these are equal."""
    names = [Path(name).stem for name in tables]
    return names if names[0] != names[1] else ["first", "second"]


def of_tables(tables: tuple[str, str], rows: tuple[int, int], sampled: tuple[int, int]) -> list[str]:
    """Return how many rows each table has, and how many of them are compared."""
    return [
        f"{name}: {counted(n, 'row')}"
        + ("" if taken == n else f", {taken:,} of them compared (by a hash of their keys)")
        for name, n, taken in zip(tables, rows, sampled, strict=True)
    ]


def of_columns(columns: Sequence[ColumnShift], names: Sequence[str]) -> list[str | Grid]:
    """Return a table of how the columns differ."""
    header = ["column", "distance", *names, "std. difference", "p"]
    return ["", Grid([_line(each) for each in columns], header=header)] if columns else []


def not_compared(only_in: Sequence[Sequence[str]], left_out: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """Return which columns one table alone has, and which were left out."""
    alone = [f"only in {name}: {', '.join(only)}" for name, only in zip(names, only_in, strict=True) if only]
    return alone + [f"not compared: {column} {why}" for column, why in left_out.items()]


def of_clusters(clusters: Sequence[ClusterShare], names: Sequence[str]) -> list[str | Grid]:
    """Return the clusters whose shares differ by more than chance."""
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


def of_rows(distinctive: Sequence[Sequence[DistinctiveRow]], names: Sequence[str]) -> list[str]:
    """Return the rows of each table that are most unlike the other."""
    return [
        f"most unlike {names[1 - side]}, in {names[side]}: {_keys(rows)}"
        for side, rows in enumerate(distinctive)
        if rows
    ]


def verdict_on_columns(columns: Sequence[ColumnShift]) -> list[str]:
    """Return which columns differ by more than chance; nothing if none was compared."""
    if not columns:
        return []
    shifted = [each.name for each in columns if each.adjusted_p <= SIGNIFICANT]
    n = counted(len(columns), "column")
    if not shifted:
        return [f"none of {n} differs more than chance allows (p adjusted for all of them)"]
    more = f" and {len(shifted) - N_NAMED:,} more" if len(shifted) > N_NAMED else ""
    return [f"{len(shifted):,} of {n} differ more than chance allows: {', '.join(shifted[:N_NAMED])}{more}"]


def verdict_on_embeddings(shift: EmbeddingShift) -> list[str]:
    """Return whether a classifier separates the embeddings."""
    auroc = _interval(shift.auroc)
    lines = [
        f"a classifier separates the embeddings with AUROC {auroc}, p {shift.p:.3f}"
        + ("" if shift.p <= SIGNIFICANT else ": no more than chance"),
        f"MMD^2 {shift.mmd:.5f} above chance, p {shift.mmd_p:.3f}",
    ]
    if shift.shared:
        lines.append(
            f"{counted(shift.shared, 'image is', 'images are')} in both; an image in both counts on both sides"
        )
    return lines


def gate(auroc: float, limit: float, *, failed: bool) -> str:
    """Return whether the gate at a limit lets the embeddings pass, and why."""
    above = auroc > limit
    why = f"the AUROC is {'above' if above else 'not above'} it{' but can be chance' if above and not failed else ''}"
    return f"--fail-above {limit:g}: {'failed' if failed else 'passed'}, {why}"


def _line(each: ColumnShift) -> list[str]:
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
        tables: the two files.
        rows: of either.
        sampled: rows of either that are compared.
        columns: most significant first.
        only_in: columns that only one table has, of either.
        left_out: column -> why it was not compared.
        embedding: how the embeddings differ; None where they were not compared.
        without_embedding: why not; empty where they were.
        distinctive: the most distinctive rows, of either table.
        clusters: those that one side lacks first, then by difference.
        failed: whether the embeddings differ by more than was allowed, and by more than chance.
        settings: what decides the numbers.
        notes: what is odd about the keys of either table, one sentence each.
        left_range: where probabilities were calibrated: rows of either table that lie outside the range that was
            judged.
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
        """Return plain JSON values; a number that does not exist is null."""
        record: dict[str, Any] = plain_json(self)
        return record

    def lines(self) -> list[str | Grid]:
        """Return the printed lines: the verdict last, where a reviewer looks."""
        names = short_names(self.tables)
        return [
            *of_tables(self.tables, self.rows, self.sampled),
            *(f"note: {note}" for note in self.notes),
            *of_columns(self.columns, names),
            *[f"{names[each.table]}: {each.outside.words(each.fitted)}" for each in self.left_range],
            *not_compared(self.only_in, self.left_out, names),
            *of_clusters(self.clusters, names),
            *of_rows(self.distinctive, names),
            "",
            *self.verdict(),
        ]

    def verdict(self) -> list[str]:
        """Return the verdict of the comparison: columns, embeddings, and the gate."""
        lines = verdict_on_columns(self.columns)
        if self.embedding is None:
            return [*lines, f"embeddings were not compared: {self.without_embedding}"]
        lines += verdict_on_embeddings(self.embedding)
        limit = self.settings.get("fail_above")
        return lines if limit is None else [*lines, gate(self.embedding.auroc.value, limit, failed=self.failed)]
