"""The result of a comparison of two tables, as a value, as JSON, and in words."""

from dataclasses import dataclass, field
from typing import Any

from curate.comparison import words
from curate.comparison.differences import ClusterShare, ColumnShift, DistinctiveRow, EmbeddingShift, LeftRange
from curate.counted import Grid, Printed
from curate.tables.typed_json import plain_json


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
        names = words.short_names(self.tables)
        return [
            *words.of_tables(self.tables, self.rows, self.sampled),
            *(f"note: {note}" for note in self.notes),
            *words.of_columns(self.columns, names),
            *words.of_ranges(self.left_range, names),
            *words.not_compared(self.only_in, self.left_out, names),
            *words.of_clusters(self.clusters, names),
            *words.of_rows(self.distinctive, names),
            "",
            *self.verdict(),
        ]

    def verdict(self) -> list[str]:
        """Return the verdict of the comparison: columns, embeddings, and the gate."""
        lines = words.verdict_on_columns(self.columns)
        if self.embedding is None:
            return [*lines, f"embeddings were not compared: {self.without_embedding}"]
        lines += words.verdict_on_embeddings(self.embedding)
        limit = self.settings.get("fail_above")
        return lines if limit is None else [*lines, words.gate(self.embedding.auroc.value, limit, failed=self.failed)]
