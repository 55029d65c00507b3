"""What a fit did, as a value."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Share:
    """What a cut would take of one class or cluster.

    Attributes:
        name: of the class, or the number of the cluster.
        rows: of it.
        taken: rows that the cut would take.
    """

    name: str
    rows: int
    taken: int


@dataclass(frozen=True)
class FitResult:
    """What a fit did; what its command prints.

    Attributes:
        rows: that it was fitted to, or that were judged by a model that was fitted before.
        without: what is wrong with the embeddings of other rows -> how many.
        references: rows that the model keeps to compare others with.
        n_bytes: that it keeps beside the base model.
        digest: of what it keeps.
        kind: ``class`` or ``cluster``: what ``shares`` are of.
        shares: what keeping the surest 70 % would take of each.
        outside: share of the rows that lie farther from the heap than 99 % of the rows it was fitted to.
        labels: what is known from labels: of those that were learned from, the fields of ``Learned``; else ``rows``,
            ``classes`` and the ``auroc`` of ``unc_ambiguous``, with its interval; empty without labels.
        recall: share of the true neighbours that the search found.
        path: the model written, or None.
        applied: the table written, or None.
    """

    rows: int
    without: dict[str, int]
    references: int
    n_bytes: int
    digest: str
    kind: str = "cluster"
    shares: list[Share] = field(default_factory=list)
    outside: float = 0.0
    labels: dict[str, Any] = field(default_factory=dict)
    recall: float = 1.0
    path: Path | None = None
    applied: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return asdict(self) | {name: None if path is None else str(path) for name, path in self.paths().items()}

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by what they are called."""
        return {"path": self.path, "applied": self.applied}
