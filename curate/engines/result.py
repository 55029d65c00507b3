"""The request and the result of a scoring run."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from curate.columns import OK
from curate.counted import Grid, Printed, counted
from curate.manifest.store_path import AnyPath

if TYPE_CHECKING:
    from curate.engines.options import ScoreOptions
    from curate.manifest.contract import SourceOptions
    from curate.tables.table import Table


@dataclass(frozen=True)
class ScoreRequest:
    """The request of a scoring run.

    Attributes:
        options: as given; the other fields are derived from them.
        out: path of the table.
        model: a shipped model's name, or a checkpoint.
        reading: how the source is read.
        retry: statuses of the rows that are read again.
        table: at ``out``, to which rows are added; None for a new table.
    """

    options: "ScoreOptions"
    out: AnyPath
    model: str | Path
    reading: "SourceOptions"
    retry: frozenset[str]
    table: "Table | None" = None


@dataclass(frozen=True)
class ScoreResult(Printed):
    """The result of a scoring run.

    Attributes:
        path: of the table.
        rows: number of rows, one for each row of the manifest.
        statuses: number of rows by status: ``ok`` and the kinds of failure.
        resumed: rows that were scored by an earlier run.
        seconds: duration of this run, without model loading.
        device: of the model.
        precision: of the model.
        model: digest of the model.
        notes: for the user, such as a batch size that was reduced.
    """

    path: AnyPath
    rows: int
    statuses: dict[str, int]
    resumed: int
    seconds: float
    device: str
    precision: str
    model: str
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Number of rows whose image could not be scored."""
        return self.rows - self.statuses.get(OK, 0)

    def summary(self) -> str:
        """Return the number of rows, speed and device in one line."""
        fresh = self.rows - self.resumed
        speed = f" in {self.seconds:.1f} s ({fresh / max(self.seconds, 1e-9):,.0f} images/s)" if fresh else ""
        before = f", {self.resumed:,} of them by an earlier run" if self.resumed else ""
        return f"{counted(self.rows, 'row')}{before}{speed} on {self.device} in {self.precision}"

    def by_status(self) -> list[tuple[str, int]]:
        """Return the number of rows of each status: ``ok``, then failures, most frequent first."""
        return sorted(self.statuses.items(), key=lambda item: (item[0] != OK, -item[1], item[0]))

    def lines(self) -> list[str | Grid]:
        """Return the printed lines."""
        return [self.summary(), Grid(self.by_status(), right=1), *self.notes, f"scores: {self.path}"]
