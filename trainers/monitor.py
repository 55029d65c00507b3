"""Monitoring of a training run: progress, epochs, mean measures, and warnings."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor

from scoring.model import ScoringModel

COLLAPSED = 0.1  # share of the spread of uniform embeddings


@dataclass(frozen=True)
class Progress:
    """Progress of a run: the step, and the mean measures since the last report."""

    step: int
    steps: int
    epoch: int
    measures: dict[str, float]
    images_per_second: float
    warning: str | None


@dataclass(frozen=True)
class Epoch:
    """A finished epoch.

    Attributes:
        step: number of steps done.
        number: of the epoch, from 1.
        epochs: number of epochs of the run.
        lr: learning rate of its last step.
        measures: means over its steps; ``gradient_norm`` is the global norm before clipping.
        model: in evaluation mode; must not be changed.
        earlier: see ``RunState``.
    """

    step: int
    number: int
    epochs: int
    lr: float
    measures: dict[str, float]
    model: ScoringModel
    earlier: list[dict[str, Any]] = field(default_factory=list)


class Course(Protocol):
    """Observes a run without changing it."""

    def begin(self, step: int) -> None:
        """Called when the run starts (step 0) or resumes after a step."""

    def add(self, epoch: Epoch) -> None:
        """Called after an epoch, before its state is saved."""


@dataclass(frozen=True)
class Monitor:
    """Callbacks of a run, and how often its state is saved.

    Attributes:
        save_every: seconds between two saves.
        course: called after every epoch.
        report: called with the progress about once a second.
    """

    save_every: float = 60.0
    course: Course | None = None
    report: Callable[[Progress], None] = lambda progress: None


class Sums:
    """Sums of measures over steps, kept on their device."""

    def __init__(self, totals: dict[str, float] | None = None, n: int = 0) -> None:
        self._totals = {name: torch.tensor(value, dtype=torch.float64) for name, value in (totals or {}).items()}
        self.n = n

    def add(self, measures: dict[str, Tensor]) -> None:
        """Add the measures of one step."""
        for name, value in measures.items():
            before = self._totals.get(name)
            self._totals[name] = value.double() if before is None else before.to(value.device) + value.double()
        self.n += 1

    def totals(self) -> dict[str, float]:
        """Return the sums by name."""
        return {name: float(value) for name, value in self._totals.items()}

    def means(self) -> dict[str, float]:
        """Return the means over the steps by name."""
        return {name: value / max(self.n, 1) for name, value in self.totals().items()}


def warn(measures: dict[str, float]) -> str | None:
    """Return a warning if embeddings collapse or kappa vanishes, or None.

    ``spread`` is the standard deviation of the unit embeddings times sqrt(M): 1 if they are uniform on the sphere, 0 if
    all are equal (Chen & He 2021, sec. 4.1).
    """
    if measures.get("spread", 1.0) < COLLAPSED:
        return f"the embeddings collapse: their spread is {measures['spread']:.3f} of 1; lower --lr, or use more views"
    if measures.get("kappa", 1.0) < 0.01:
        return (
            f"kappa has fallen to {measures['kappa']:.2g} and may not come back; lower --lr, or use --set "
            "predictor=direct"
        )
    if measures.get("used", 1.0) < COLLAPSED or measures.get("undecided", 0.0) > 1 - COLLAPSED / 10:
        where = "on one prototype" if measures["used"] < COLLAPSED else "everywhere alike"
        return f"the embeddings collapse: the teacher puts all images {where}; lower --lr, or use more views"
    return None
