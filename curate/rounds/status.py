"""How far the rounds of a folder are, how good the model is, and whether to stop."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.rounds.files.folder import CONTROL, STRATEGY, Folder, open_folder
from curate.rounds.files.votes import LABELLED, SKIPPED, TIED, agreement
from curate.rounds.state.model import fit_probe, measure, pool_spread
from curate.rounds.state.pool import TableRows, table_of
from curate.rounds.state.standing import Progress, Standing, progress_of, rows_of_arm, standing_of
from curate.rounds.worth.lift import ArmLift, Arms, arm_lift
from curate.rounds.worth.measured import Measured
from curate.rounds.worth.stopping import Advice, advise

N_NAMED = 5


@dataclass(frozen=True)
class Status:
    """How far a folder of rounds is.

    Attributes:
        path: of the folder.
        rounds: that were made.
        asked: images in all batches.
        counts: of them "labelled", "tied", "skipped" and "pending" (nothing came back).
        held_out: rows held out, and how many of them have a class.
        classes: labels of the pool by class, those without any too.
        tied: some keys whose votes are tied.
        annotators: those whose names are known.
        agreement: of annotators: keys with several labels, share of pairs alike, Krippendorff's alpha.
        curve: labels and accuracy of the model, before each round and now.
        advice: what each criterion for stopping says.
        lift: the strategy against random labels; None where it was not asked for.
        changed: files that are not as they were written.
    """

    path: Path
    rounds: int
    asked: int
    counts: dict[str, int]
    held_out: tuple[int, int]
    classes: dict[str, int]
    tied: list[str]
    annotators: list[str]
    agreement: dict[str, float | int | None]
    curve: list[dict[str, Any]]
    advice: list[Advice] = field(default_factory=list)
    lift: ArmLift | None = None
    changed: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON; what cannot be told is null."""
        held_out = {"rows": self.held_out[0], "with_class": self.held_out[1]}
        return {**asdict(self), "path": str(self.path), "held_out": held_out}


def status(folder: str | Path, *, table: str | Path | None = None, lift: bool = True) -> Status:
    """Say how far the rounds of a folder are; nothing is written, and nothing has to be held.

    Args:
        folder: of `curate round init`.
        table: where the table is now, if it was moved.
        lift: whether to compare the arms, which takes some seconds.

    Raises:
        InputError: if it is no such folder, one of its small files was changed, or the table is another one.
    """
    opened = open_folder(folder)
    changed = opened.changed()
    progress = progress_of(opened)
    scored = table_of(opened.settings, opened.path, table)
    standing = standing_of(opened, scored, progress)
    models = {each.number - 1: each.state.model for each in opened.rounds if each.state.model}
    now = _current(opened, scored, standing)
    if now is not None:
        models[len(opened.rounds)] = now
    n_left = int(scored.usable.sum()) - len(np.union1d(standing.holdout, standing.asked))
    known = standing.known
    return Status(
        path=opened.path,
        rounds=len(opened.rounds),
        asked=len(progress.arms),
        counts={
            **{state: progress.count(state) for state in (LABELLED, TIED, SKIPPED)},
            "pending": sum(key not in progress.consensus for key in progress.arms),
        },
        held_out=(len(standing.holdout), len(standing.held_known)),
        classes=known.counts(),
        tied=[key for key, one in progress.consensus.items() if one.state == TIED][:N_NAMED],
        annotators=progress.votes.annotators(),
        agreement=_agreement(progress),
        curve=[{"round": number, "n_labels": one.n_labels, **asdict(one.holdout)} for number, one in models.items()],
        advice=advise([*models.values()], len(known), opened.settings.budget, n_left),
        lift=_lift(opened, scored, standing) if lift and opened.settings.n_control else None,
        changed=changed,
    )


def _current(folder: Folder, scored: TableRows, standing: Standing) -> Measured | None:
    """Return what the model of all labels is worth, unless the last round's model had them all."""
    if not folder.rounds or (folder.rounds[-1].state.model and not folder.rounds[-1].labels):
        return None
    probe = fit_probe(scored, folder.settings, standing.known)
    return None if probe is None else measure(folder, scored, standing, probe)[0]


def arms_of(folder: Folder, scored: TableRows, standing: Standing, up_to: int | None = None) -> Arms:
    """Return the labelled rows of both arms, of all rounds or those up to one."""
    keys = [key for key, number in folder.asked.items() if up_to is None or number <= up_to]
    known = standing.known.among(scored.find(keys))
    strategy, control = (rows_of_arm(folder, scored, known, arm) for arm in (STRATEGY, CONTROL))
    spread = pool_spread(scored, folder.settings)
    return Arms(scored.vectors, strategy, control, standing.held_known, folder.settings.probe, spread)


def _lift(folder: Folder, scored: TableRows, standing: Standing) -> ArmLift:
    return arm_lift(arms_of(folder, scored, standing), folder.settings.seed)


def _agreement(progress: Progress) -> dict[str, float | int | None]:
    found = agreement(progress.votes.labels_of(key) for key in progress.consensus)
    return {
        "n_keys": found.n_keys,
        "pairs": None if math.isnan(found.pairs) else found.pairs,
        "alpha": None if math.isnan(found.alpha) else found.alpha,
    }
