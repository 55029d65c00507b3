"""The outcome of every image of a source, and the files written."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.cleaning.changes import Changes
from curate.counted import Grid, Printed, counted
from curate.pipeline.run import Ran
from curate.pipeline.state import Stage
from curate.policies.outcomes import FAILED, OUTCOMES
from curate.policies.uneven import emptied_words

DONE, TO_DO = "done", "to do"


@dataclass(frozen=True)
class CleanResult(Printed):
    """The outcome of every image: images = unreadable + unusable + copies + dropped_in_review + kept.

    Attributes:
        images: in the source.
        unreadable: that could not be scored; None, as the next three, in a dry run that has to score first.
        unusable: dropped, for they are unusable in every domain.
        copies: dropped, for a copy of each is kept.
        kept: rows of the subset.
        to_review: kept rows with an open finding; None in a dry run.
        unreadable_by: status -> images.
        unusable_by: kind of issue -> images.
        copies_by: what found them -> images.
        review_by: kind of finding -> rows, the largest consequence first; a row may have several.
        changed_since: images that changed since a reviewer decided about them, which no longer counts.
        emptied: classes of readable images of which none is kept.
        folder: where all lies.
        subset: the kept rows.
        report: the page.
        review: folder of the findings.
        pipeline: the steps, to edit and to run.
        receipt: over all steps; None in a dry run.
        export: the subset for another tool; None where none was requested.
        source: where the images are, for a subset that names no file; None where it names them.
        no_junk: why junk was not looked for; empty where it was, or in a dry run.
        steps: what became of each.
        gone: that were in the source and no longer are, not among ``images``; None as ``unreadable``.
        changes: what differs from the time before; None for the first time, and where nothing does.
        dropped_in_review: images that a reviewer dropped; None without decisions, or as ``kept``.
        dry_run: whether nothing was written.
    """

    images: int
    unreadable: int | None
    unusable: int | None
    copies: int | None
    kept: int | None
    to_review: int | None
    folder: Path
    subset: Path
    report: Path
    review: Path
    pipeline: Path
    receipt: Path | None
    unreadable_by: Mapping[str, int] = field(default_factory=dict)
    unusable_by: Mapping[str, int] = field(default_factory=dict)
    copies_by: Mapping[str, int] = field(default_factory=dict)
    review_by: Mapping[str, int] = field(default_factory=dict)
    changed_since: int = 0
    emptied: list[str] = field(default_factory=list)
    export: Path | None = None
    source: str | None = None
    no_junk: str = ""
    steps: list[Ran] = field(default_factory=list)
    gone: int | None = None
    changes: Changes | None = None
    dropped_in_review: int | None = None
    dry_run: bool = False

    @property
    def changed(self) -> bool:
        """Whether any step ran, or in a dry run would run."""
        return any(step.state in (DONE, TO_DO) for step in self.steps)

    def account(self) -> list[tuple[str, int | str, str]]:
        """Return the table of all images: each outcome, its number of images, and their kinds."""
        return [
            ("images in", self.images, ""),
            *([("gone", self.gone, "no longer in the source, and not counted above")] if self.gone else []),
            ("unreadable", _known(self.unreadable), _kinds(self.unreadable_by)),
            ("unusable", _known(self.unusable), _kinds(self.unusable_by)),
            ("copies", _known(self.copies), _kinds(self.copies_by)),
            *([] if self.dropped_in_review is None else [("dropped in review", self.dropped_in_review, "")]),
            ("to review", _known(self.to_review), _kinds(self.review_by)),
            ("kept", _known(self.kept), ""),
        ]

    def lines(self) -> list[str | Grid]:
        """Return the printed lines."""
        lines: list[str | Grid] = [Grid(self.account(), right=1), *emptied_words("class", self.emptied)]
        if self.changed_since:
            images = counted(self.changed_since, "image")
            lines.append(f"{images} changed since the review: what was decided about them no longer counts")
        if self.no_junk:
            again = "" if self.changes is None else "; --overwrite searches among the images that are there now"
            lines.append(f"no search for junk: {self.no_junk}{again}")
        return lines if self.changes is None else [*lines, *self.changes.lines()]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        places = {name: str(value) for name, value in vars(self).items() if isinstance(value, Path)}
        return {**asdict(self), **places, "changed": self.changed}


def total(kinds: Mapping[str, int] | None) -> int | None:
    """Return how many images some kinds have together; None where that is not known."""
    return None if kinds is None else sum(kinds.values())


def lost_in(stage: Stage, *, failed: bool) -> dict[str, int]:
    """The rows of a stage that failed, by status, or were dropped, by kind."""
    word = OUTCOMES[FAILED]
    lost = {}
    for why, rows in stage.lost.items():
        decision, _, reason = why.partition(": ")
        if (decision == word) == failed and rows:
            lost[reason if failed else why] = rows
    return lost


def _known(n: int | None) -> int | str:
    return "?" if n is None else n


def _kinds(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in kinds.items())
