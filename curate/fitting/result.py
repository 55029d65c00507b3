"""What a fit did, as a value."""

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.counted import Grid, Printed, counted
from curate.fitting import words
from curate.fitting.shares import Share
from curate.manifest.store_path import AnyPath


@dataclass(frozen=True)
class FitResult(Printed):
    """What a fit did; what its command prints.

    Attributes:
        rows: that it was fitted to, or that were judged by a model that was fitted before.
        without: what is wrong with the embeddings of other rows -> how many.
        references: rows that the model keeps to compare others with.
        n_bytes: that it keeps next to the base model.
        digest: of what it keeps.
        kind: ``class`` or ``cluster``: what ``shares`` are of.
        shares: what keeping the most certain 70 % would take of each.
        outside: share of the rows that lie farther from the dataset than 99 % of the rows it was fitted to.
        labels: what is known from labels: of those that were learned from, the fields of ``Learned``; else ``rows``,
            ``classes`` and the ``auroc`` of ``unc_ambiguous``, with its interval; empty without labels.
        recall: share of the true neighbours that the search found.
        path: the model written, or None.
        applied: the table written, or None.
        fitted_before: whether a model that was fitted before was applied, and nothing fitted.
        notes: notes for the user, such as what ``p_junk`` is based on.
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
    applied: AnyPath | None = None
    fitted_before: bool = False
    notes: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return asdict(self) | {name: None if path is None else str(path) for name, path in self.paths().items()}

    def paths(self) -> dict[str, AnyPath | None]:
        """Return the files written, by what they are called."""
        return {"path": self.path, "applied": self.applied}

    def lines(self) -> list[str | Grid]:
        """Return what the command prints: what to know before using the columns, shares, and where the files lie."""
        if self.fitted_before:
            notes = words.of_rows_outside(self.outside, self.rows)
        else:
            notes = [*words.of_size(self.rows, self.references, self.recall), *words.of_labels(self.labels)]
        kept = f"{counted(self.references, 'row')} to compare with, {self.n_bytes / 1e6:,.1f} MB"
        return [
            *words.of_rows_left_out(self.without),
            *self.notes,
            *notes,
            *words.of_shares(self.kind, self.shares),
            *([] if self.path is None else [f"model: {self.path} ({kept})"]),
            *([] if self.applied is None else [f"table: {self.applied}"]),
        ]
