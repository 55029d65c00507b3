"""What a policy did, as a value."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class Result:
    """What a policy did; what its command prints.

    Attributes:
        n_rows: rows that came in; kept + dropped + undecided + failed.
        kept: rows of the subset.
        dropped_by: rule as typed, or why -> rows that it dropped.
        undecided_by: rule as typed, or what is missing -> rows that could not be judged.
        failed_by: status -> rows.
        notes: notes for the user.
        examples: a few decisions: ``why`` they are shown (such as ``worst``), ``key`` and ``reason``.
        classes: class -> rows in, rows kept, where there is a column ``label``; in a dry run alone.
        input_digest: of the rows that were read, whatever their order.
        subset: path written; None in a dry run, as ``decisions`` and ``receipt``.
    """

    n_rows: int = 0
    kept: int = 0
    dropped: int = 0
    undecided: int = 0
    failed: int = 0
    dropped_by: dict[str, int] = field(default_factory=dict)
    undecided_by: dict[str, int] = field(default_factory=dict)
    failed_by: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    examples: list[dict[str, str]] = field(default_factory=list)
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)
    input_digest: str = ""
    subset: Path | None = None
    decisions: Path | None = None
    receipt: Path | None = None

    FILES: ClassVar[tuple[str, ...]] = ("subset", "decisions", "receipt")

    def paths(self) -> dict[str, Path | None]:
        """Return the files written, by name; None for those that were not."""
        return {name: getattr(self, name) for name in self.FILES}

    def facts(self) -> dict[str, Any]:
        """Return what the receipt says beside the counts, as plain JSON."""
        return {"dropped_by": self.dropped_by, "undecided_by": self.undecided_by, "failed_by": self.failed_by}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {**self.__dict__, **{name: str(path) if path else None for name, path in self.paths().items()}}
