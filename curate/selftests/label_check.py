"""What a score must show of the user's labels: more than chance level does."""

from collections.abc import Callable, Sequence
from pathlib import Path

from curate.evaluation.results import Evaluation
from curate.evaluation.run import evaluate
from curate.evaluation.words import CHANCE_LEVEL, NO_SCORES, WORTH
from curate.manifest.store_path import AnyPath
from curate.selftests.contract import BROKEN, HOLDS, LABELS, UNSURE, UNTRIED, Check
from scoring.metrics.resampling import Interval

WORTH_HAVING = 0.6  # an AUROC that may be as high as this is not called chance level


def better_than_chance_level(
    table: AnyPath,
    *,
    label: str | None,
    labelled: Path | None,
    column: Sequence[str],
    sample: int | None,
    repeats: int,
    seed: int,
    announce: Callable[[str], None],
) -> list[Check]:
    """Return a check for each column: is it higher where a prediction of the labels is wrong?

    Predictions are those of ``curate evaluate``: by a linear classifier out of fold where there can be one, else by
    neighbours. A column holds where the 95 % interval of its AUROC lies above one half, is no better than chance where
    it holds one half and ends below 0.6, and cannot be determined where it ends above.

    Args:
        table: scored, with embeddings.
        label: column of classes, in ``labelled`` or in the table.
        labelled: file of labels, or None.
        column: to measure; empty for every score.
        sample: rows to measure on; None for all.
        repeats: of the bootstrap.
        seed: of folds and resamples.
        announce: called with a line on what is done.
    """
    found = evaluate(
        str(table),
        label=label,
        labelled=labelled,
        column=list(column) or None,
        sample=sample,
        repeats=repeats,
        seed=seed,
        announce=announce,
    )
    if not isinstance(found, Evaluation):
        raise TypeError("scores are measured here, and no subset")
    known = {measure.name: measure for measure in found.measures if measure.values}
    measure = next((known[name] for name in WORTH if name in known), None)
    if measure is None:
        return [Check(LABELS, label or "label", "", UNTRIED, found.caveats.without_embeddings or "nothing to measure")]
    scores = {name: one for name, one in measure.values.items() if name not in NO_SCORES}
    return [_check(measure.name, name, one, measure.n) for name, one in scores.items()]


def _check(what: str, column: str, found: Interval, images: int) -> Check:
    said = f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"
    if found.low > CHANCE_LEVEL:
        return Check(LABELS, what, column, HOLDS, said, found, images)
    if found.high >= WORTH_HAVING:
        return Check(LABELS, what, column, UNSURE, f"cannot be separated from so few rows: {said}", found, images)
    words = f"worse than chance level: {said}" if found.high < CHANCE_LEVEL else f"no better than chance: {said}"
    return Check(LABELS, what, column, BROKEN, words, found, images)
