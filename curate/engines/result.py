"""The contract of an engine, and the request and the result of a scoring run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from curate.columns import OK
from curate.counted import Grid, Printed, counted
from curate.engines.settings import ScoreSettings
from curate.manifest.store_path import AnyPath
from scoring.errors import InputError
from scoring.settings import require_between

if TYPE_CHECKING:
    from curate.engines.options import ScoreOptions
    from curate.engines.run import ScoreRun
    from curate.manifest import SourceOptions
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


@dataclass(frozen=True)
class Cluster:
    """A cluster and the resources to use, for engines that run on one.

    Attributes:
        address: of the cluster; None starts one for this run.
        actors: maximum number of scoring processes; None for as many as fit.
        num_gpus: GPUs of each actor, a fraction to share one; None for none.
    """

    address: str | None = None
    actors: int | None = None
    num_gpus: float | None = None

    def __post_init__(self) -> None:
        if self.address is not None and not self.address:
            raise InputError("expected --engine ray:auto, ray:HOST:PORT or ray:ray://HOST:PORT, got no address")
        require_between("--actors", self.actors, 1)
        if self.num_gpus is not None and not 0 < self.num_gpus <= 1:
            raise InputError(f"--num-gpus must be above 0 and at most 1: an actor uses one GPU; got {self.num_gpus}")


@dataclass(frozen=True)
class Engine:
    """An engine ready to score.

    Attributes:
        settings: as requested, with the device resolved if only the engine knows it.
        score: scores ``run.todo()`` and passes each part to ``run.commit``.
        elsewhere: whether only other processes run the model, so that this process does not need the device.
    """

    settings: ScoreSettings
    score: "Callable[[ScoreRun], None]"
    elsewhere: bool = False
