"""Learning curves of a replay as an image."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import check_chart, save_chart
from curate.tables.typed_json import from_json
from scoring.errors import InputError

AXIS = "labels (bands: one standard error)"
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class StrategyCurve:
    """Accuracy of a strategy after each budget: mean over the seeds, and its standard error, None for one seed."""

    mean: tuple[float, ...]
    error: tuple[float | None, ...]


@dataclass(frozen=True)
class ReplayCurves:
    """What is drawn of a replay.

    Attributes:
        budgets: labels, ascending, shape (B,).
        strategies: name -> curve over the budgets.

    Raises:
        InputError: if budgets do not ascend, there is no strategy, or a curve has not one value a budget.
    """

    budgets: tuple[float, ...]
    strategies: dict[str, StrategyCurve]

    def __post_init__(self) -> None:
        sizes = {len(values) for curve in self.strategies.values() for values in (curve.mean, curve.error)}
        if list(self.budgets) != sorted(self.budgets) or sizes != {len(self.budgets)}:
            raise InputError("expected strategies with a value at each of ascending budgets")

    @classmethod
    def of_json(cls, replay: dict[str, Any]) -> "ReplayCurves":
        """Return the curves of what ``Simulation.to_json`` gave."""
        strategies = replay.get("strategies")
        if isinstance(strategies, dict):
            drawn = ("mean", "error")
            parts = {
                name: {part: curve[part] for part in drawn if part in curve} if isinstance(curve, dict) else curve
                for name, curve in strategies.items()
            }
            replay = {**replay, "strategies": parts}
        return from_json(cls, replay, what="the replay", ignored=replay)


def plot_replay(path: Path, out: Path, *, overwrite: bool = False) -> None:
    """Draw the curves of a file that `curate round simulate` wrote.

    Args:
        path: the file.
        out: a name ending in ``.png``, ``.svg`` or ``.pdf``.
        overwrite: replace an image that is there.

    Raises:
        InputError: if the file is no replay, the name no image's, or the place refuses.
    """
    check_chart(out, overwrite=overwrite)
    _draw(read_replay(path), out, path.name, overwrite)


def read_replay(path: Path) -> ReplayCurves:
    """Return the curves that `curate round simulate` wrote.

    Raises:
        InputError: if the file is missing, too large, or something else.
    """
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise InputError(f"expected a file at {path}, got a folder, a device or a pipe; give the path of a file")
    try:
        with path.open("rb") as file:
            replay = json.loads(file.read(MOST_BYTES))
    except OSError as error:
        raise InputError(f"expected a folder of rounds or a replay at {path}, got: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; expected what `curate round simulate` wrote") from None
    if not isinstance(replay, dict) or replay.get("kind") != "replay":
        raise InputError(f"{path} is no replay; expected what `curate round simulate` wrote")
    try:
        return ReplayCurves.of_json(replay)
    except InputError as error:
        raise InputError(f"{path} is no replay; expected what `curate round simulate` wrote ({error})") from None


def _draw(replay: ReplayCurves, out: Path, name: str, overwrite: bool) -> None:
    curves = []
    for strategy, curve in replay.strategies.items():
        error = [math.nan if value is None else value for value in curve.error]
        low, high = ([a + sign * e for a, e in zip(curve.mean, error, strict=True)] for sign in (-1, 1))
        curves.append(Curve(strategy, replay.budgets, curve.mean, low, high))
    panel = Panel(curves, AXIS, "accuracy", percent=True)
    save_chart(draw_chart([panel], title=f"Replayed rounds: {name}"), out, overwrite=overwrite)
