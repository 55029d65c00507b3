"""The result of a fit and its messages: notes on the columns, and the effect of a cut."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.counted import Grid, Printed, counted
from curate.manifest.store_path import AnyPath
from curate.policies.decided import uneven_words
from scoring.arrays import Array
from scoring.metrics.resampling import Interval
from scoring.relative.columns import FEW_ROWS
from scoring.relative.model import far_from

KEPT = 0.7  # share of rows kept by the reported cut
MOST_SHARES = 100  # maximum classes reported
LEAST_ROWS = 10  # minimum rows of a reported group
MOST_LISTED = 12  # classes or clusters
CHANCE_LEVEL = 0.5


@dataclass(frozen=True)
class Share:
    """How much of one class or cluster a cut would drop.

    Attributes:
        name: of the class, or number of the cluster.
        rows: number of its rows.
        taken: number of rows that the cut would drop.
    """

    name: str
    rows: int
    taken: int


def shares_of(score: Array, codes: NDArray[np.integer], names: list[str]) -> list[Share]:
    """Return how much of each group a cut that keeps the most certain 70 % would drop, largest group first.

    Args:
        score: higher is less certain, shape (M,).
        codes: group of each row, an index in ``names``, shape (M,); -1 for none.
        names: of the groups.
    """
    order = np.argsort(score, kind="stable")
    taken = np.zeros(len(score), bool)
    taken[order[int(np.ceil(KEPT * len(score))) :]] = True
    known = codes >= 0
    size = np.bincount(codes[known], minlength=len(names))
    lost = np.bincount(codes[known & taken], minlength=len(names))
    by_size = [group for group in np.argsort(-size, kind="stable").tolist() if size[group]]
    return [Share(names[group], int(size[group]), int(lost[group])) for group in by_size[:MOST_SHARES]]


@dataclass(frozen=True)
class FitResult(Printed):
    """The result of ``curate fit``.

    Attributes:
        rows: number of rows fitted to, or scored by an earlier fit.
        without: number of rows without usable embedding, by reason.
        references: number of rows that the model stores for comparison.
        n_bytes: size of the fit in the model.
        digest: of the fit.
        kind: of ``shares``: ``class`` or ``cluster``.
        shares: effect of keeping the most certain 70 %.
        outside: share of rows farther from the dataset than 99 % of the fitted rows.
        labels: accuracy on labels: with labels to learn from, the fields of ``Learned``; else ``rows``, ``classes`` and
            the ``auroc`` of ``unc_ambiguous`` with its interval; empty without labels.
        recall: share of the true neighbours that the search found.
        path: the model written, or None.
        applied: the table written, or None.
        fitted_before: whether an earlier fit was applied instead of a new one.
        notes: for the user, such as the source of ``p_junk``.
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
        """Return the paths of the files written, by name."""
        return {"path": self.path, "applied": self.applied}

    def lines(self) -> list[str | Grid]:
        """Return the printed lines: notes on the columns, shares, and the files."""
        if self.fitted_before:
            warning = far_from(round(self.outside * self.rows), self.rows)
            notes = [warning] if warning else []
        else:
            notes = [*_size_notes(self.rows, self.references, self.recall), *_label_lines(self.labels)]
        kept = f"{counted(self.references, 'row')} to compare with, {self.n_bytes / 1e6:,.1f} MB"
        return [
            *[f"left out: {counted(count, 'image')} with {what}" for what, count in self.without.items()],
            *self.notes,
            *notes,
            *_share_lines(self.kind, self.shares),
            *([] if self.path is None else [f"model: {self.path} ({kept})"]),
            *([] if self.applied is None else [f"table: {self.applied}"]),
        ]


def _size_notes(rows: int, references: int, recall: float) -> list[str]:
    """Return notes on the number of rows: too few to judge, or so many that only a sample is stored."""
    lines = []
    if rows < FEW_ROWS:
        lines.append(f"fitted to {counted(rows, 'image')}: fewer than {FEW_ROWS} are too few to use")
    if references < rows:
        kept = f"{references:,} of {counted(rows, 'row')}"
        lines.append(f"the model keeps a sample of {kept} to compare new images with")
    if recall < 1:
        lines.append(f"the search found {recall:.1%} of the neighbours, measured on sampled rows")
    return lines


def _share_lines(kind: str, shares: Sequence[Share]) -> list[str | Grid]:
    """Return lines on how much of each class or cluster a cut would drop."""
    if not shares:
        return []
    rows = [(each.name, each.rows, each.taken, f"{each.taken / each.rows:.0%}") for each in shares[:MOST_LISTED]]
    return [
        (
            f"what filter --keep-top {KEPT:.0%} --allow-uneven drops of each {kind}; without --allow-uneven, "
            "the same share of each:"
        ),
        Grid(rows, header=(kind, "rows", "dropped", "share"), right=1),
        *([f"and {len(shares) - MOST_LISTED:,} more"] if len(shares) > MOST_LISTED else []),
        *uneven_words(kind, {each.name: (each.rows, each.taken) for each in shares}, 1 - KEPT),
    ]


def _label_lines(known: Mapping[str, Any]) -> list[str]:
    """Return lines on the score's accuracy on labels."""
    if not known:
        return []
    of = f"{counted(known['rows'], 'label')} of {counted(known['classes'], 'class', 'classes')}"
    what = "finding labelled rows whose nearest labelled row is of another class"
    notes = []
    if "better" in known:
        notes.append(f"{of}, {what}: AUROC {_interval_text(known['auroc'])} where labels were held out")
        inside = f"on the labels it was fitted on {known['inside'].value:.3f}"
        notes.append(f"without labels {_interval_text(known['without'])}; {inside}")
        if not known["better"]:
            notes.append("learning from the labels is no better: the fit ignores them")
    else:
        notes.append(f"{of}, {what}: AUROC {_interval_text(known['auroc'])}")
    used = known["auroc"] if known.get("better", True) else known["without"]
    if used.low <= CHANCE_LEVEL:
        more = "more labels may help" if "better" in known else "learn from the labels with --label"
        notes.append(f"that is no better than chance: on these classes, unc_ambiguous is uninformative; {more}")
    return notes


def _interval_text(interval: Interval) -> str:
    return f"{interval.value:.3f} (95 %: {interval.low:.3f} to {interval.high:.3f})"
