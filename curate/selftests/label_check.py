"""Whether a score predicts errors on the user's labels better than chance."""

from curate.evaluation.results import CHANCE_LEVEL, NO_SCORES, QUALITY_MEASURES, Evaluation
from curate.evaluation.run import evaluate
from curate.manifest.store_path import AnyPath
from curate.selftests.contract import BROKEN, HOLDS, LABELS, UNSURE, UNTRIED, Check
from curate.selftests.options import SelftestOptions
from scoring.metrics.resampling import Interval

CLEARLY_BETTER = 0.6  # an AUROC that may be as high as this is not called a failure


def better_than_chance_level(table: AnyPath, label: str, options: SelftestOptions) -> list[Check]:
    """Return a check for each column: whether it is higher where a prediction of the labels is wrong.

    Predictions are made as in ``curate evaluate``: by a linear classifier out of fold where there can be one, else by
    neighbours. A column holds where the 95 % interval of its AUROC lies above one half, is no better than chance where
    it holds one half and ends below 0.6, and cannot be determined where it ends above.

    Args:
        table: scored, with embeddings.
        label: column of classes, in the file of labels or in the table.
        options: the file of labels, columns, resamples and seed.
    """
    evaluation = evaluate(
        str(table),
        label=label,
        labelled=options.labelled,
        column=options.column,
        repeats=options.repeats,
        seed=options.seed,
        announce=options.announce,
    )
    if not isinstance(evaluation, Evaluation):
        raise TypeError("scores are measured here, and no subset")
    known = {measure.name: measure for measure in evaluation.measures if measure.values}
    measure = next((known[name] for name in QUALITY_MEASURES if name in known), None)
    if measure is None:
        return [Check(LABELS, label, "", UNTRIED, evaluation.caveats.without_embeddings or "nothing to measure")]
    scores = {name: interval for name, interval in measure.values.items() if name not in NO_SCORES}
    return [_check(measure.name, name, interval, measure.n) for name, interval in scores.items()]


def _check(what: str, column: str, interval: Interval, images: int) -> Check:
    measured = f"{interval.value:.3f} [{interval.low:.3f}, {interval.high:.3f}]"
    if interval.low > CHANCE_LEVEL:
        return Check(LABELS, what, column, HOLDS, measured, interval, images)
    if interval.high >= CLEARLY_BETTER:
        return Check(
            LABELS, what, column, UNSURE, f"cannot be separated from so few rows: {measured}", interval, images
        )
    words = (
        f"worse than chance level: {measured}" if interval.high < CHANCE_LEVEL else f"no better than chance: {measured}"
    )
    return Check(LABELS, what, column, BROKEN, words, interval, images)
