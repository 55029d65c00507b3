"""The outcome of every image of a source, and the files written."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from curate.cleaning.changes import Changes
from curate.counted import Grid, Printed, counted
from curate.pipeline.run import Ran
from curate.pipeline.state import Stage
from curate.policies.decided import FAILED, OUTCOMES, emptied_words

DONE, TO_DO = "done", "to do"


@dataclass(frozen=True)
class CleanResult(Printed):
    """The outcome of every image: images = unreadable + unusable + copies + dropped_in_review + kept.

    Attributes:
        images: number of images in the source.
        unreadable: images that could not be scored; None, as the next three, in a dry run that has to score first.
        unusable: images dropped as unusable in every domain.
        copies: images dropped as copies of a kept image.
        kept: rows of the subset.
        to_review: kept rows with an open finding; None in a dry run.
        unreadable_by: number of images by status.
        unusable_by: number of images by kind of issue.
        copies_by: number of images by the finder of the copy.
        review_by: number of rows by kind of finding, by decreasing consequence; a row may have several.
        changed_since: images that changed after a reviewer's decision, which is ignored.
        emptied: classes of readable images of which none is kept.
        folder: output folder.
        subset: table of the kept rows.
        report: HTML page.
        review: folder of the findings.
        pipeline: file of the steps, which can be edited and run.
        receipt: over all steps; None in a dry run.
        export: the subset in another format; None if not requested.
        source: location of the images, for a subset without file paths; None otherwise.
        no_junk: why junk was not searched; empty if it was, or in a dry run.
        steps: outcome of each step.
        gone: images no longer in the source, not counted in ``images``; None as ``unreadable``.
        changes: differences from the previous run; None on the first run, or without differences.
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
        """Return table rows: each outcome, its number of images, and their kinds."""
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
    """Return the sum of the counts; None if they are unknown."""
    return None if kinds is None else sum(kinds.values())


def lost_in(stage: Stage, *, failed: bool) -> dict[str, int]:
    """Return the number of a stage's rows that failed, by status, or were dropped, by kind."""
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
