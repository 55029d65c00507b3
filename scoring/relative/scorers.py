"""Scorers of a whole table: each row relative to the others, without training or labels."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from scoring.column import Column
from scoring.relative.columns import AMBIGUOUS, COLUMNS, NEIGHBOUR
from scoring.scorers import TABLE

if TYPE_CHECKING:
    from scoring.arrays import Array


@dataclass(frozen=True)
class NeighbourScorer:
    """The distance of a row to the nearest row that is not a copy: 1 - cosine of centred embeddings."""

    needs: ClassVar[str] = TABLE
    passes: ClassVar[int] = 0
    columns: ClassVar[Mapping[str, Column]] = {NEIGHBOUR: COLUMNS[NEIGHBOUR]}

    def score(self, embeddings: "Array") -> Mapping[str, Any]:
        """Return the column for embeddings, shape (N, D); zero for fewer than two rows."""
        from scoring.relative.fit import column_of

        return column_of(embeddings, NEIGHBOUR)


@dataclass(frozen=True)
class AmbiguousScorer:
    """Ambiguity: far from other rows, or among rows of other clusters."""

    needs: ClassVar[str] = TABLE
    passes: ClassVar[int] = 0
    columns: ClassVar[Mapping[str, Column]] = {AMBIGUOUS: COLUMNS[AMBIGUOUS]}

    def score(self, embeddings: "Array") -> Mapping[str, Any]:
        """Return the column for embeddings, shape (N, D); zero for fewer than two rows."""
        from scoring.relative.fit import column_of

        return column_of(embeddings, AMBIGUOUS)
