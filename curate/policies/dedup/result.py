"""What came of a deduplication."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.policies.dedup.finders.neighboured import NearGraph
from curate.policies.dedup.finders.searches import Search
from curate.policies.dedup.quality.recall import RecallReport


@dataclass(frozen=True)
class DedupResult:
    """What a deduplication did; what ``curate dedup`` prints.

    Attributes:
        n_rows: rows that came in; kept + dropped + failed.
        dropped_by: finder with its threshold -> rows that it dropped.
        n_groups: groups of two or more, those with a row of the other table among them.
        largest: rows of the largest group.
        n_leaks: rows that the other table has too.
        n_conflicts: groups whose rows carry different labels.
        conflicts: some of them: kept key, and the labels.
        recall: what each finder finds of all pairs, in words.
        notes: what a person should know.
        examples: a few decisions of rows that go.
        subset: path written; None in a dry run, as the others.
        planted: how many planted copies were found, if that was asked.
        audit: pairs for a person to judge, and the page to do it on, if that was asked.
    """

    n_rows: int
    kept: int
    dropped: int
    failed: int
    dropped_by: dict[str, int]
    failed_by: dict[str, int]
    n_groups: int
    largest: int
    n_leaks: int
    n_conflicts: int
    conflicts: list[dict[str, Any]]
    recall: list[str]
    notes: list[str]
    examples: list[dict[str, str]]
    subset: Path | None = None
    decisions: Path | None = None
    groups: Path | None = None
    receipt: Path | None = None
    input_digest: str = ""
    planted: RecallReport | None = None
    audit: Path | None = None
    audit_page: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(value) if value else None for name, value in self.paths().items()}
        planted = self.planted.to_json() if self.planted else None
        return {
            **{name: value for name, value in self.__dict__.items() if name not in paths},
            **paths,
            "planted": planted,
        }

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name."""
        names = ("subset", "decisions", "groups", "receipt", "audit", "audit_page")
        return {name: getattr(self, name) for name in names}


def recall_lines(searches: Mapping[str, Search]) -> list[str]:
    """Return what share of all pairs each finder looks at, in words."""
    lines = []
    for name, search in searches.items():
        recall = search.recall
        if recall is None or recall.exact:
            lines.append(f"{name}: {search.extent}")
        elif isinstance(search, NearGraph):
            lines.append(f"{name}: {search.words}")
        elif not recall.n_pairs:
            lines.append(f"{name}: searched in clusters; the sampled rows have no pair to measure by")
        else:
            lines.append(
                f"{name}: searched in clusters, which find {recall.estimate:.2%} of the pairs "
                f"[{recall.low:.2%}, {recall.high:.2%}] (by brute force on sampled rows: {recall.n_pairs:,} pairs)"
            )
    return lines
