"""The learning curve of a folder of rounds as an image."""

from pathlib import Path

from curate.rounds.files.folder import open_folder
from curate.rounds.measures.lift import arm_accuracy
from curate.rounds.measures.rules import ACCURACY
from curate.rounds.options import RoundStatusOptions
from curate.rounds.state.model import arms_of
from curate.rounds.state.pool import table_of
from curate.rounds.state.standing import progress_of, standing_of
from curate.rounds.status import run_round_status
from curate.sheets.chart import Curve, Panel
from scoring.errors import InputError

LEAST_ARM = 5  # labels of an arm from which it is drawn


def folder_panel(folder: Path, table: str | Path | None) -> Panel:
    """Return the learning curve of a folder of rounds, with the band that holds at every look.

    Raises:
        InputError: if the folder cannot be read, or has nothing to draw.
    """
    curves, bounds = folder_curves(folder, table)
    axis = f"labels (band: {100 * open_folder(folder).settings.confidence:.10g} % at every look)"
    return Panel(curves, axis, "accuracy", percent=True, beside=bounds)


def folder_curves(folder: Path, table: str | Path | None = None) -> tuple[list[Curve], list[Curve]]:
    """Return accuracy by labels with its interval, and of either arm at equal numbers of labels; and bounds to reach.

    Raises:
        InputError: as ``run_round_status``; if no model was measured yet.
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
    """Return the accuracy with equally many labels of the strategy and of the control arm, round by round."""
    opened = open_folder(folder)
    scored = table_of(opened.settings, opened.path, table)
    standing = standing_of(opened, scored, progress_of(opened))
    if not len(standing.held_known):
        return []
    numbers: dict[int, tuple[float, float]] = {}
    for each in opened.rounds:
        arms = arms_of(opened, scored, standing, each.number)
        if arms.n >= LEAST_ARM:
            numbers.setdefault(arms.n, arm_accuracy(arms, arms.n))
    if len(numbers) < 2:
        return []
    names = ("strategy, first labels", "random labels (control)")
    return [Curve(name, list(numbers), [pair[i] for pair in numbers.values()]) for i, name in enumerate(names)]
