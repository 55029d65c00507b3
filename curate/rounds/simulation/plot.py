"""Learning curves as a chart, from a folder of rounds or a simulation."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.manifest.text import read_json
from curate.options.function import callable_of
from curate.rounds.files.folder import open_folder
from curate.rounds.measures.lift import arm_accuracy
from curate.rounds.measures.rules import ACCURACY
from curate.rounds.options import RoundPlotOptions, RoundStatusOptions
from curate.rounds.state.standing import progress_of, standing_of, table_of
from curate.rounds.status import run_round_status
from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import check_chart, save_chart
from curate.tables.typed_json import from_json
from scoring.errors import InputError

LEAST_ARM = 5  # labels of an arm from which it is drawn
AXIS = "labels (bands: one standard error)"
MOST_BYTES = 64 << 20


def folder_panel(folder: Path, table: str | Path | None) -> Panel:
    """Return the learning curve of a folder of rounds with its anytime-valid band; InputError without any data."""
    curves, bounds = folder_curves(folder, table)
    axis = f"labels (band: {100 * open_folder(folder).settings.confidence:.10g} % at every look)"
    return Panel(curves, axis, "accuracy", percent=True, beside=bounds)


def folder_curves(folder: Path, table: str | Path | None = None) -> tuple[list[Curve], list[Curve]]:
    """Return accuracy by labels with its interval, the curves of both arms at equal numbers of labels, and stop bounds.

    Raises InputError as ``run_round_status``, and if no model was measured yet.
    """
    progress = run_round_status(RoundStatusOptions(folder, table=table), lift=False)
    points = [point for point in progress.curve if point["n"]]
    if not points:
        raise InputError(
            f"expected a round that was measured in {folder}, got none; import labels of held-out images first"
        )
    x = [point["n_labels"] for point in points]
    low, high = ([point["anytime"][end] for point in points] for end in ("low", "high"))
    curves = [Curve("all labels", x, [point["accuracy"] for point in points], low, high)]
    rules = [rule for rule in open_folder(folder).settings.rules if rule.measure == ACCURACY]
    return curves + arm_curves(folder, table), [Curve(f"stop: {rule}", x, [rule.bound] * len(x)) for rule in rules]


def arm_curves(folder: Path, table: str | Path | None = None) -> list[Curve]:
    """Return the accuracy of the strategy and of the control arm at equal numbers of labels, round by round."""
    opened = open_folder(folder)
    scored = table_of(opened.settings, opened.path, table)
    standing = standing_of(opened, scored, progress_of(opened))
    if not len(standing.held_known):
        return []
    numbers: dict[int, tuple[float, float]] = {}
    for each in opened.rounds:
        arms = standing.arms(each.number)
        if arms.n >= LEAST_ARM:
            numbers.setdefault(arms.n, arm_accuracy(arms, arms.n))
    if len(numbers) < 2:
        return []
    names = ("strategy, first labels", "random labels (control)")
    return [Curve(name, list(numbers), [pair[i] for pair in numbers.values()]) for i, name in enumerate(names)]


@dataclass(frozen=True)
class StrategyCurve:
    """Mean accuracy of a strategy over seeds after each budget, and its standard error (None for one seed)."""

    mean: tuple[float, ...]
    error: tuple[float | None, ...]


@dataclass(frozen=True)
class ReplayCurves:
    """The curves of a simulation.

    Attributes:
        budgets: labels, ascending, shape (B,).
        strategies: name -> curve over the budgets.

    Raises:
        InputError: if budgets do not ascend, there is no strategy, or a curve does not have one value per budget.
    """

    budgets: tuple[float, ...]
    strategies: dict[str, StrategyCurve]

    def __post_init__(self) -> None:
        sizes = {len(values) for curve in self.strategies.values() for values in (curve.mean, curve.error)}
        if list(self.budgets) != sorted(self.budgets) or sizes != {len(self.budgets)}:
            raise InputError("expected ascending budgets, and a value of each strategy at each")

    @classmethod
    def of_json(cls, replay: dict[str, Any]) -> "ReplayCurves":
        """Return the curves that ``Simulation.to_json`` wrote."""
        strategies = replay.get("strategies")
        if isinstance(strategies, dict):
            drawn = ("mean", "error")
            parts = {
                name: {part: curve[part] for part in drawn if part in curve} if isinstance(curve, dict) else curve
                for name, curve in strategies.items()
            }
            replay = {**replay, "strategies": parts}
        return from_json(cls, replay, what="the replay", ignored=replay)


def run_round_plot(options: RoundPlotOptions) -> Path:
    """Draw learning curves with intervals, of a folder of rounds or a simulation; return the chart's path.

    Raises:
        InputError: if there is nothing to draw, or the chart cannot be written.
    """
    source, out = Path(options.source), Path(options.out)
    check_chart(out, overwrite=options.overwrite)
    if source.is_dir():
        panel, title = folder_panel(source, options.table), f"Accuracy on held-out images: {source.name}"
    else:
        panel, title = _replay_panel(read_replay(source)), f"Replayed rounds: {source.name}"
    save_chart(draw_chart([panel], title=title), out, overwrite=options.overwrite)
    return out


round_plot = callable_of(RoundPlotOptions, run_round_plot)


def read_replay(path: Path) -> ReplayCurves:
    """Return the curves written by `curate round simulate`; InputError for a missing, too large or malformed file."""
    replay = read_json(path, what="a folder of rounds, or what `curate round simulate` wrote,", most=MOST_BYTES)
    if not isinstance(replay, dict) or replay.get("kind") != "replay":
        raise InputError(f"{path} is not a replay; expected what `curate round simulate` wrote")
    try:
        return ReplayCurves.of_json(replay)
    except InputError as error:
        raise InputError(f"{path} is not a replay; expected what `curate round simulate` wrote ({error})") from None


def _replay_panel(replay: ReplayCurves) -> Panel:
    curves = []
    for strategy, curve in replay.strategies.items():
        error = [math.nan if value is None else value for value in curve.error]
        low, high = ([a + sign * e for a, e in zip(curve.mean, error, strict=True)] for sign in (-1, 1))
        curves.append(Curve(strategy, replay.budgets, curve.mean, low, high))
    return Panel(curves, AXIS, "accuracy", percent=True)
