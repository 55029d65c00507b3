"""The result of a retrieval, as a value, JSON and text."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.counted import Grid, Printed, counted, single_line
from curate.retrieval.queries import Queries
from curate.tables.keys import keys_at
from curate.tables.table import Table
from curate.tables.typed_json import plain_json
from scoring.search.links import Links, Recall

SHOWN = 10  # queries that are printed
EACH = 20  # rows of each
LETTERS = 80  # of a name
# States of a query.
ANSWERED, ALONE, REJECTED, UNDECIDED, FAILED = "answered", "alone", "rejected", "undecided", "failed"


@dataclass(frozen=True)
class Neighbour:
    """A row found by a query.

    Attributes:
        rank: 1 for the nearest.
        key: of the row.
        row: its index in the table.
        similarity: cosine with the query.
        certainty: value of the column; NaN if absent.
    """

    rank: int
    key: str
    row: int
    similarity: float
    certainty: float


@dataclass
class Retrieval(Printed):
    """The result of ``curate retrieve``.

    Attributes:
        table: the searched table.
        queries: names of the Q queries.
        states: of each query: ``answered``; ``alone`` (no row in its region); ``rejected`` (too uncertain);
            ``undecided`` (unknown certainty); or ``failed`` (unreadable image, or no embedding).
        reasons: reasons of the states; empty if answered.
        certainty: value of the column for each query, shape (Q,), NaN if absent.
        column: the certainty column; empty if absent.
        links: pairs of a query and a row, by query, nearest first.
        row_certainty: value of the column for every row of the table, shape (N,).
        inside: number of rows in the region of each query, shape (Q,); without regions the number returned.
        bounds: minimal cosine of rows in the region, shape (Q,); None without regions.
        region: how regions were computed; empty without regions.
        row_states: state of each row of the table, shape (N,), an index into ``left_out``; 0 was searched.
        left_out: reasons why rows were not searched; the first is for searched rows.
        recall: share of the true neighbours that were found.
        notes: remarks for the reader, a sentence each.
        settings: parameters of the search.
        out: the written file; None if not written.
    """

    table: Table = field(repr=False)
    queries: Queries = field(repr=False)
    states: list[str] = field(repr=False)
    reasons: list[str] = field(repr=False)
    certainty: NDArray[np.float64] = field(repr=False)
    column: str
    links: Links = field(repr=False)
    row_certainty: NDArray[np.float64] = field(repr=False)
    inside: NDArray[np.int64] = field(repr=False)
    bounds: NDArray[np.float64] | None = field(repr=False)
    region: str
    row_states: NDArray[np.uint8] = field(repr=False)
    left_out: tuple[str, ...] = field(repr=False)
    recall: Recall
    notes: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
    out: Path | None = None

    def __len__(self) -> int:
        return len(self.states)

    def neighbours(self, query: int) -> list[Neighbour]:
        """Return the neighbours of a query, nearest first."""
        start, stop = np.searchsorted(self.links.query, [query, query + 1]).tolist()
        rows = self.links.row[start:stop]
        return [
            Neighbour(rank, self.keys[row], row, similarity, float(self.row_certainty[row]))
            for rank, (row, similarity) in enumerate(
                zip(rows.tolist(), self.links.similarity[start:stop].tolist(), strict=True), 1
            )
        ]

    @cached_property
    def keys(self) -> dict[int, str]:
        """Keys of the found rows, by row index."""
        rows = np.unique(self.links.row)
        return dict(zip(rows.tolist(), keys_at(self.table, rows).tolist(), strict=True))

    @property
    def row_counts(self) -> dict[str, int]:
        """Return the number of searched rows, and of rows not searched by reason; they add up to all."""
        counts = np.bincount(self.row_states, minlength=len(self.left_out)).tolist()
        return {name: n for name, n in zip(self.left_out, counts, strict=True) if n or name == self.left_out[0]}

    @property
    def query_counts(self) -> dict[str, int]:
        """Return the number of queries by state; they add up to all."""
        return {state: self.states.count(state) for state in dict.fromkeys(self.states)}

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield each query as plain JSON values."""
        for at, name in enumerate(self.queries.names):
            yield {
                "query": name,
                "state": self.states[at],
                "reason": self.reasons[at] or None,
                "certainty": plain_json(self.certainty[at]),
                "bound": None if self.bounds is None else plain_json(self.bounds[at]),
                "inside": int(self.inside[at]),
                "neighbours": [
                    {"key": near.key, "similarity": near.similarity, "certainty": plain_json(near.certainty)}
                    for near in self.neighbours(at)
                ],
            }

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; a missing number is null."""
        out = None if self.out is None else str(self.out)
        return {**self.about(), "out": out, "queries": list(self.records())}

    def about(self) -> dict[str, Any]:
        """Return everything except the queries as plain JSON values."""
        return {
            "table": str(self.table.path),
            "certainty": self.column or None,
            "region": self.region or None,
            "recall": {**self.recall.__dict__, "estimate": plain_json(self.recall.estimate)},
            "rows": self.row_counts,
            "n_queries": self.query_counts,
            "notes": self.notes,
            "settings": self.settings,
        }

    def title(self, at: int) -> str:
        """Return a query with its certainty and its state."""
        certainty = f" ({self.column} {value(self.certainty[at])})" if self.column else ""
        name = f"{short(self.queries.names[at])}{certainty}"
        if self.reasons[at]:
            return f"{name}: {self.states[at]}, {self.reasons[at]}"
        if self.bounds is None:
            return name
        rows = counted(int(self.inside[at]), "row")
        return f"{name}: {rows} inside its region, from a cosine of {self.bounds[at]:.4f}"

    def lines(self) -> list[str | Grid]:
        """Return lines for the terminal: the first queries with their neighbours, then the counts."""
        lines: list[str | Grid] = []
        for at in range(min(len(self), SHOWN)):
            lines += [self.title(at), *self._table(self.neighbours(at)), ""]
        if len(self) > SHOWN:
            lines += [f"{counted(len(self) - SHOWN, 'more query', 'more queries')}: -o or --json gives all", ""]
        return [*lines, *self._account()]

    def _table(self, near: list[Neighbour]) -> list[str | Grid]:
        header = ["", "key", "similarity", *([self.column] if self.column else [])]
        rows = [
            [str(row.rank), short(row.key), f"{row.similarity:.4f}"] + ([value(row.certainty)] if self.column else [])
            for row in near[:EACH]
        ]
        more: list[str | Grid] = [f"and {len(near) - EACH:,} more"] if len(near) > EACH else []
        return [Grid(rows, header=header), *more] if rows else []

    def _account(self) -> list[str]:
        """Return the states of all queries and rows, and the recall of the search, as lines."""
        lines = [
            f"{counted(len(self), 'query', 'queries')}: " + counts_line(self.query_counts),
            f"{counted(len(self.row_states), 'row')}: " + counts_line(self.row_counts),
            recall_words(self.recall),
        ]
        if self.region:
            lines.append(self.region)
            sizes = self.inside[[state in (ANSWERED, ALONE) for state in self.states]]
            if len(sizes) > 1:
                low, middle, high = np.quantile(sizes, [0.1, 0.5, 0.9])
                lines.append(f"rows inside a region: median {middle:,.0f}, 10 to 90 %: {low:,.0f} to {high:,.0f}")
        return lines


def recall_words(recall: Recall) -> str:
    """Return the recall of a search in words."""
    if recall.exact:
        return "recall 1: every query was compared with every searched row"
    return (
        f"recall {recall.estimate:.4f} [{recall.low:.4f}, {recall.high:.4f}], measured on "
        f"{counted(recall.n_pairs, 'neighbour')} of sampled rows"
    )


def value(certainty: float) -> str:
    """Return a value of the column, or a dash if absent."""
    return f"{certainty:.4g}" if not np.isnan(certainty) else "-"


def short(text: str) -> str:
    """Return a name on one line, shortened in the middle."""
    half = LETTERS // 2
    return single_line(text if len(text) <= LETTERS else f"{text[:half]}...{text[-half:]}")


def counts_line(counts: Mapping[str, int]) -> str:
    """Return counts by name on one line."""
    return ", ".join(f"{n:,} {name}" for name, n in counts.items())
