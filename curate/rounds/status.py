"""The progress of a folder of rounds, the accuracy of its model, and whether to stop."""

import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.options.function import callable_of
from curate.rounds.files.folder import open_folder
from curate.rounds.files.votes import LABELLED, SKIPPED, TIED, agreement
from curate.rounds.measures.lift import ArmLift, ModelQuality, PairLift, arm_lift
from curate.rounds.measures.rules import LIFT, RuleCheck, check_rule, parse_rules
from curate.rounds.measures.stopping import Advice, advise
from curate.rounds.options import RoundStatusOptions
from curate.rounds.state.standing import LabelProgress, RoundRows, progress_of, standing_of, table_of

N_NAMED = 5


@dataclass(frozen=True)
class Status:
    """The progress of a folder of rounds.

    Attributes:
        path: of the folder.
        rounds: number of rounds.
        requested: number of images in all batches.
        counts: their number by state: "labelled", "tied", "skipped" and "pending" (no label yet).
        held_out: number of held-out rows, and of those with a class.
        classes: number of labels by class, including 0.
        tied: some keys whose votes are tied.
        annotators: known names.
        agreement: keys with several labels, share of agreeing pairs, Krippendorff's alpha.
        curve: labels and accuracy of the model, before each round and now; ``low`` and ``high`` hold at one look, the
            bounds of ``anytime`` simultaneously.
        confidence: of the simultaneous intervals.
        looks: number of imports.
        advice: of each criterion for stopping.
        lift: of the strategy over random labels; None if not requested.
        pair_lift: lift of the present two models, with an anytime-valid interval; None if not requested, or with too
            few labels.
        rules: results of the stop rules.
        changed: changed files.
    """

    path: Path
    rounds: int
    requested: int
    counts: dict[str, int]
    held_out: tuple[int, int]
    classes: dict[str, int]
    tied: list[str]
    annotators: list[str]
    agreement: dict[str, float | int | None]
    curve: list[dict[str, Any]]
    confidence: float
    looks: int
    advice: list[Advice] = field(default_factory=list)
    lift: ArmLift | None = None
    pair_lift: PairLift | None = None
    rules: list[RuleCheck] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)

    @property
    def stop(self) -> bool | None:
        """Whether a stop rule was reached; None without rules."""
        return any(each.reached for each in self.rules) if self.rules else None

    def to_json(self) -> dict[str, Any]:
        """Return the status as plain JSON; unknown values are null."""
        held_out = {"rows": self.held_out[0], "with_class": self.held_out[1]}
        return {**asdict(self), "path": str(self.path), "held_out": held_out, "stop": self.stop}


def run_round_status(options: RoundStatusOptions, *, lift: bool = True) -> Status:
    """Return the progress of a folder of rounds, the current accuracy of its model, and whether to stop.

    Nothing is written or locked. Comparing the arms (``lift``) takes a few seconds.

    Raises:
        InputError: for an invalid rule or folder, a changed small file, or another table.
    """
    typed_rules = parse_rules(options.stop or ())
    opened = open_folder(options.folder)
    rules = tuple(dict.fromkeys((*opened.settings.rules, *typed_rules)))
    changed = opened.changed()
    progress = progress_of(opened)
    scored = table_of(opened.settings, opened.path, options.table)
    standing = standing_of(opened, scored, progress)
    look, confidence = len(opened.label_files), opened.settings.confidence
    models = {each.number - 1: each.state.model for each in opened.rounds}
    models[len(opened.rounds)] = _current(standing, look)
    known_models = {number: model for number, model in models.items() if model is not None}
    last = [*known_models.values()][-1].holdout if known_models else None
    pairs = lift or any(rule.measure == LIFT for rule in rules)
    pair_lift = standing.lift(look) if pairs and look else None
    n_left = int(scored.usable.sum()) - len(np.union1d(standing.holdout, standing.requested))
    known = standing.known
    return Status(
        path=opened.path,
        rounds=len(opened.rounds),
        requested=len(progress.arms),
        counts={
            **{state: progress.count(state) for state in (LABELLED, TIED, SKIPPED)},
            "pending": sum(key not in progress.consensus for key in progress.arms),
        },
        held_out=(len(standing.holdout), len(standing.held_known)),
        classes=known.counts(),
        tied=[key for key, agreed in progress.consensus.items() if agreed.state == TIED][:N_NAMED],
        annotators=progress.votes.annotators(),
        agreement=_agreement(progress),
        curve=[
            {"round": number, "n_labels": model.n_labels, **asdict(model.holdout), "anytime": asdict(model.anytime)}
            for number, model in known_models.items()
        ],
        confidence=confidence,
        looks=look,
        advice=advise([*known_models.values()], len(known), opened.settings.budget, n_left),
        lift=arm_lift(standing.arms(), opened.settings.seed) if lift and opened.settings.n_control else None,
        pair_lift=pair_lift,
        rules=[check_rule(rule, look, confidence, last, pair_lift) for rule in rules],
        changed=changed,
    )


round_status = callable_of(RoundStatusOptions, run_round_status)


def _current(standing: RoundRows, look: int) -> ModelQuality | None:
    """Return the accuracy of a model trained on all labels; None if the last round's model was trained on them."""
    rounds = standing.folder.rounds
    if not rounds or (rounds[-1].state.model and not rounds[-1].labels):
        return None
    probe = standing.fit_probe()
    return None if probe is None else standing.measure(probe, look)[0]


def _agreement(progress: LabelProgress) -> dict[str, float | int | None]:
    measures = agreement(progress.votes.labels_of(key) for key in progress.consensus)
    return {
        "n_keys": measures.n_keys,
        "pairs": None if math.isnan(measures.pairs) else measures.pairs,
        "alpha": None if math.isnan(measures.alpha) else measures.alpha,
    }
