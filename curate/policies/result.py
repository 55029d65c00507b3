"""The result of a policy, as a value."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, ClassVar

from curate.counted import Grid, Printed
from curate.manifest.store_path import AnyPath


@dataclass(frozen=True)
class Result(Printed):
    """The result of a policy, as its command prints it.

    Attributes:
        n_rows: rows that came in; kept + dropped + undecided + failed.
        kept: rows of the subset.
        dropped_by: rule as typed, or why -> rows that it dropped.
        undecided_by: rule as typed, or what is missing -> rows that could not be judged.
        failed_by: status -> rows.
        notes: facts for the user, its own each class; sentences where a receipt holds them.
        examples: a few decisions: ``why`` they are shown (such as ``worst``), ``key`` and ``reason``.
        classes: class -> rows in, rows kept, by the column ``label``; if absent, the same of clusters.
        classes_of: ``class``, ``cluster``, or the name of another column.
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
    notes: list[Any] = field(default_factory=list)
    examples: list[dict[str, str]] = field(default_factory=list)
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)
    classes_of: str = "class"
    input_digest: str = ""
    subset: AnyPath | None = None
    decisions: AnyPath | None = None
    receipt: AnyPath | None = None

    FILES: ClassVar[tuple[str, ...]] = ("subset", "decisions", "receipt")
    IN_RECEIPT: ClassVar[tuple[str, ...]] = ()  # fields of a policy's own that its receipt holds

    def paths(self) -> dict[str, AnyPath | None]:
        """Return the files written, by name; None for those that were not."""
        return {name: getattr(self, name) for name in self.FILES}

    def account(self, undecided: Callable[[str], str] = str) -> list[tuple[str, int, str]]:
        """Return the outcomes of all rows, as rows of a table: how many, and why.

        Args:
            undecided: a text on each reason why rows are undecided.
        """
        rows = [("rows in", self.n_rows, ""), ("kept", self.kept, "")]
        rows += [("dropped", n, why) for why, n in self.dropped_by.items()]
        rows += [("undecided", n, undecided(why)) for why, n in self.undecided_by.items()]
        return [*rows, *(("failed", n, status) for status, n in self.failed_by.items())]

    def lines(self) -> list[str | Grid]:
        """Return the account of all rows, and where the files lie, as the command prints them."""
        files = [f"{name}: {path}" for name, path in self.paths().items() if path is not None]
        return [Grid(self.account(), right=1), *files]

    def facts(self) -> dict[str, Any]:
        """Return the receipt's facts next to the counts, as plain JSON."""
        names = ("dropped_by", "undecided_by", "failed_by", *self.IN_RECEIPT)
        return {name: getattr(self, name) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        paths = {name: str(path) if path else None for name, path in self.paths().items()}
        notes = [asdict(note) if is_dataclass(note) and not isinstance(note, type) else note for note in self.notes]
        return {**self.__dict__, **paths, "notes": notes}
