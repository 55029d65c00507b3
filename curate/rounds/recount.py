"""Verification of a round's model: correct rows and intervals, recomputed."""

import math
from collections.abc import Callable
from dataclasses import replace

from curate.probes.accuracy import accuracy
from curate.probes.linear import Probe
from curate.rounds.files.folder import Folder, Round
from curate.rounds.measures.lift import Anytime, anytime_accuracy, anytime_difference
from curate.rounds.state.standing import RoundRows
from scoring.errors import InputError

ROUNDING = 1e-9  # tolerance of interval bounds between machines


def measure_problems(before: Folder | None, round_: Round, standing: RoundRows, probe: Probe | None) -> list[str]:
    """Return the differences in a round's record of its model and lift.

    Args:
        before: the folder with the earlier rounds; None if they have changed, so that the lift is not recomputed.
        round_: as on disk.
        standing: state of the rows before the round.
        probe: the model, fitted again.
    """
    state, problems = round_.state, []
    if state.model is not None and probe is not None:
        now, then = accuracy(probe, standing.scored.vectors, standing.held_known), state.model.holdout
        if (now.right, now.n) != (then.right, then.n):
            problems.append(
                f"the model is right on {now.right:,} of {now.n:,} held-out images now, on {then.right:,} of "
                f"{then.n:,} as recorded"
            )
        noted = state.model.anytime
        problems += _interval("accuracy", lambda: anytime_accuracy(then, state.look, noted.confidence), noted)
    if state.lift is not None:
        problems += _lift_problems(before, round_, standing)
    return problems


def _lift_problems(before: Folder | None, round_: Round, standing: RoundRows) -> list[str]:
    then, problems = round_.state.lift, []
    if then is None:
        return []
    counts, look, confidence = (then.better, then.worse, then.n_held_out), round_.state.look, then.anytime.confidence
    problems += _interval("lift", lambda: anytime_difference(*counts, look, confidence), then.anytime)
    if before is None:
        return problems
    try:
        now = replace(standing, folder=before).lift(look)
    except InputError as error:
        return [*problems, f"the lift cannot be measured again: {error}"]
    if now is None or (now.n, now.better, now.worse, now.n_held_out) != (then.n, *counts):
        problems.append("the lift of the strategy is not what the labels show")
    return problems


def _interval(name: str, compute: Callable[[], Anytime], recorded: Anytime) -> list[str]:
    try:
        now = compute()
        same = now.look == recorded.look and all(
            math.isclose(*ends, abs_tol=ROUNDING) for ends in ((now.low, recorded.low), (now.high, recorded.high))
        )
    except ValueError:
        same = False
    return [] if same else [f"the interval of its {name} does not follow from the counts and the look"]
