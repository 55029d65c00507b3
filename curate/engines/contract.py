"""The contract of an engine, and the resources that it may use of a cluster."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.engines.settings import ScoreSettings
from scoring.errors import InputError
from scoring.settings import require_between

if TYPE_CHECKING:
    from curate.engines.run import ScoreRun


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
