"""Learning curves as pictures: of a folder of rounds, or of a replay."""

import json
import math
from pathlib import Path
from typing import Any

from curate.report.chart import Curve, check_picture, draw_chart, write_chart
from curate.rounds.files.folder import open_folder
from curate.rounds.state.pool import table_of
from curate.rounds.state.standing import progress_of, stand
from curate.rounds.status import arms_of, status
from curate.rounds.worth.lift import arm_accuracy
from curate.simulation.run import Simulation
from scoring.errors import InputError

REPLAY_AXIS = "labels (bands: one standard error)"
LEAST_ARM = 5  # labels of an arm from which it is drawn


def plot(source: str | Path, out: str | Path, *, table: str | Path | None = None, overwrite: bool = False) -> None:
    """Draw the learning curve of a folder of rounds, or the curves of a replay.

    Args:
        source: folder of `curate round init`, or the JSON of `curate round simulate`.
        out: a name ending in ``.png``.
        table: where the table of the folder is now, if it was moved.
        overwrite: replace a picture that is there.

    Raises:
        InputError: if the source cannot be read, or has nothing to draw.
    """
    source, out = Path(source), Path(out)
    check_picture(out)
    if source.is_dir():
        title = f"Accuracy on held-out images: {source.name}"
        _draw(folder_curves(source, table), out, title, "labels", overwrite)
    else:
        _draw(replay_curves(read_replay(source)), out, f"Replayed rounds: {source.name}", REPLAY_AXIS, overwrite)


def plot_simulation(found: Simulation, out: str | Path, *, overwrite: bool = False) -> None:
    """Draw the curves of a replay.

    Raises:
        InputError: for a name that does not end in ``.png``, or a place that refuses.
    """
    title = f"Replayed rounds: {Path(found.facts['table']).name}"
    _draw(replay_curves(found.to_json()), Path(out), title, REPLAY_AXIS, overwrite)


def _draw(curves: list[Curve], out: Path, title: str, axis: str, overwrite: bool) -> None:
    write_chart(out, draw_chart(curves, title=title, x=axis, y="accuracy", percent=True), overwrite=overwrite)


def folder_curves(folder: Path, table: str | Path | None = None) -> list[Curve]:
    """Return accuracy by labels with its interval, and of either arm at equal numbers of labels.

    Raises:
        InputError: as `status`; if no light model was measured yet.
    """
    points = [point for point in status(folder, table=table, lift=False).curve if point["n"]]
    if not points:
        raise InputError(
            f"expected a round that was measured in {folder}, got none; import labels of held-out images first"
        )
    x = [point["n_labels"] for point in points]
    low, high = ([point[end] for point in points] for end in ("low", "high"))
    curves = [Curve("all labels (95 % interval)", x, [point["accuracy"] for point in points], low, high)]
    return curves + arm_curves(folder, table)


def arm_curves(folder: Path, table: str | Path | None = None) -> list[Curve]:
    """Return the accuracy with equally many labels of the strategy and of the control arm, round by round."""
    opened = open_folder(folder)
    found = table_of(opened.settings, opened.path, table)
    where = stand(opened, found, progress_of(opened))
    if not len(where.held_known):
        return []
    numbers: dict[int, tuple[float, float]] = {}
    for each in opened.rounds:
        arms = arms_of(opened, found, where, each.number)
        if arms.n >= LEAST_ARM:
            numbers.setdefault(arms.n, arm_accuracy(arms, arms.n))
    if len(numbers) < 2:
        return []
    names = ("strategy, first labels", "random labels (control)")
    return [Curve(name, list(numbers), [pair[i] for pair in numbers.values()]) for i, name in enumerate(names)]


def replay_curves(found: dict[str, Any]) -> list[Curve]:
    """Return the curve of every strategy of a replay, with one standard error on both sides."""
    curves = []
    for name, one in found["strategies"].items():
        error = [math.nan if value is None else value for value in one["error"]]
        low = [a - e for a, e in zip(one["mean"], error, strict=True)]
        high = [a + e for a, e in zip(one["mean"], error, strict=True)]
        curves.append(Curve(name, found["budgets"], one["mean"], low, high))
    return curves


def read_replay(path: Path) -> dict[str, Any]:
    """Return what `curate round simulate` wrote.

    Raises:
        InputError: if the file is missing, too large, or something else.
    """
    try:
        with path.open("rb") as file:
            found = json.loads(file.read(64 << 20))
    except OSError as error:
        raise InputError(f"expected a folder of rounds or a replay at {path}, got: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not JSON; expected what `curate round simulate` wrote") from None
    if not isinstance(found, dict) or found.get("kind") != "replay" or not _is_whole(found):
        raise InputError(f"{path} is no replay; expected what `curate round simulate` wrote")
    return found


def _is_whole(found: dict[str, Any]) -> bool:
    budgets, strategies = found.get("budgets"), found.get("strategies")
    if not isinstance(budgets, list) or not isinstance(strategies, dict) or not strategies:
        return False
    numbers = all(isinstance(value, int | float) for value in budgets) and budgets == sorted(budgets)
    return numbers and all(
        isinstance(one, dict)
        and all(isinstance(one.get(name), list) and len(one[name]) == len(budgets) for name in ("mean", "error"))
        and all(isinstance(value, int | float) for value in one["mean"])
        and all(value is None or isinstance(value, int | float) for value in one["error"])
        for one in strategies.values()
    )
