"""The result of a deduplication."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from curate.manifest.store_path import AnyPath
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.quality.recall import RecallReport
from curate.policies.result import Result


@dataclass(frozen=True)
class DedupResult(Result):
    """The result of a deduplication, as ``curate dedup`` prints it.

    Attributes:
        n_groups: groups of two or more, those with a row of the other table among them.
        largest: rows of the largest group.
        n_leaks: rows that the other table has too.
        n_conflicts: groups whose rows carry different labels.
        n_lower: groups that keep a row of lower quality than one that goes; None where the table does not show.
        to_review: kept rows of large groups just above the threshold, to be reviewed.
        conflicts: some of them: kept key, and the labels.
        recall: what each finder finds of all pairs, in words.
        planted: how many planted copies were found, if that was requested.
        groups: path of the table of groups; None in a dry run.
        leaks: path of the leaks by name, where there is another table.
        audit: pairs for a reviewer to judge, if that was requested.
    """

    n_groups: int = 0
    largest: int = 0
    n_leaks: int = 0
    n_conflicts: int = 0
    n_lower: int | None = None
    to_review: int = 0
    conflicts: list[dict[str, Any]] = field(default_factory=list)
    recall: list[str] = field(default_factory=list)
    planted: RecallReport | None = None
    groups: AnyPath | None = None
    leaks: AnyPath | None = None
    audit: AnyPath | None = None

    FILES: ClassVar[tuple[str, ...]] = ("subset", "decisions", "groups", "receipt", "leaks", "audit")

    def account(self, undecided: Callable[[str], str] = str) -> list[tuple[str, int, str]]:
        """Return the outcomes of all rows, and how many of the kept ones are to be reviewed."""
        read, kept, *others = super().account(undecided)
        return [read, kept, *([("to review", self.to_review, "of the kept ones")] if self.to_review else []), *others]

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        names = ("dropped_by", "failed_by", "n_groups", "n_lower", "to_review", "recall")
        planted = {"planted": self.planted.to_json()} if self.planted is not None else {}
        return {**{name: getattr(self, name) for name in names}, **planted}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**super().to_json(), "planted": self.planted.to_json() if self.planted else None}


def recall_lines(searches: Mapping[str, Search]) -> list[str]:
    """Return the share of all pairs that each finder compares, in words."""
    lines = []
    for name, search in searches.items():
        recall = search.recall
        if recall is None or recall.exact:
            lines.append(f"{name}: {search.extent}")
        elif not recall.n_pairs:
            lines.append(f"{name}: searched in clusters; the sampled rows have no pair to measure by")
        else:
            lines.append(
                f"{name}: searched in clusters, which find {recall.estimate:.2%} of the pairs "
                f"[{recall.low:.2%}, {recall.high:.2%}] (by brute force on sampled rows: {recall.n_pairs:,} pairs)"
            )
    return lines
