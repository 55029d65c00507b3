"""Messages on a fit: what to know before using the columns, and what a cut would take."""

from collections.abc import Mapping, Sequence
from typing import Any

from curate.counted import Grid, counted
from curate.fitting.shares import KEPT, Share
from curate.policies.uneven import uneven_words
from scoring.metrics.resampling import Interval
from scoring.relative.fit import FEW_ROWS
from scoring.relative.model import far_from

MOST_LISTED = 12  # classes or clusters
CHANCE_LEVEL = 0.5


def of_rows_left_out(without: Mapping[str, int]) -> list[str]:
    """Return how many images were left out, and why."""
    return [f"left out: {counted(count, 'image')} with {what}" for what, count in without.items()]


def of_rows_outside(outside: float, rows: int) -> list[str]:
    """Return a warning where a large share of the rows lies outside of the dataset that a model was fitted to."""
    far = far_from(round(outside * rows), rows)
    return [far] if far else []


def of_size(rows: int, references: int, recall: float) -> list[str]:
    """Return what the number of rows costs: few show little, and of many a part is kept or found."""
    lines = []
    if rows < FEW_ROWS:
        lines.append(f"fitted to {counted(rows, 'image')}: fewer than {FEW_ROWS} show too little to use")
    if references < rows:
        kept = f"{references:,} of {counted(rows, 'row')}"
        lines.append(f"the model keeps a draw of {kept} to compare new images with")
    if recall < 1:
        lines.append(f"the search found {recall:.1%} of the neighbours, as measured on rows drawn")
    return lines


def of_shares(kind: str, shares: Sequence[Share]) -> list[str | Grid]:
    """Return what a cut would take of each class or cluster."""
    if not shares:
        return []
    rows = [(each.name, each.rows, each.taken, f"{each.taken / each.rows:.0%}") for each in shares[:MOST_LISTED]]
    return [
        f"what filter --keep-top {KEPT:.0%} --allow-uneven takes of each {kind}; without it, of each the same:",
        Grid(rows, header=(kind, "rows", "taken", "share"), right=1),
        *([f"and {len(shares) - MOST_LISTED:,} more"] if len(shares) > MOST_LISTED else []),
        *uneven_words(kind, {each.name: (each.rows, each.taken) for each in shares}, 1 - KEPT),
    ]


def of_labels(known: Mapping[str, Any]) -> list[str]:
    """Return what labels say of the score."""
    if not known:
        return []
    of = f"{counted(known['rows'], 'label')} of {counted(known['classes'], 'class', 'classes')}"
    what = "telling labelled rows whose nearest labelled row is of another class"
    notes = []
    if "better" in known:
        notes.append(f"{of}, {what}: AUROC {_shown(known['auroc'])} where labels were held out")
        inside = f"on the labels that it learned from {known['inside'].value:.3f}"
        notes.append(f"without labels {_shown(known['without'])}; {inside}")
        if not known["better"]:
            notes.append("learning from the labels is no better: the fit goes without them")
    else:
        notes.append(f"{of}, {what}: AUROC {_shown(known['auroc'])}")
    used = known["auroc"] if known.get("better", True) else known["without"]
    if used.low <= CHANCE_LEVEL:
        more = "more labels may help" if "better" in known else "learn from the labels, by --label"
        notes.append(f"that is no better than chance: on these classes, unc_ambiguous says nothing; {more}")
    return notes


def _shown(interval: Interval) -> str:
    return f"{interval.value:.3f} (95 %: {interval.low:.3f} to {interval.high:.3f})"
