"""Measure the scores of a table, or the usefulness of a subset of it."""

from collections.abc import Sequence

from curate.evaluation.degraded import require_scores
from curate.evaluation.joined import open_labelled
from curate.evaluation.measures import Caveats
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.protocol import protocol_of
from curate.evaluation.results import Evaluation
from curate.evaluation.rows import score_columns
from curate.evaluation.subset.run import SubsetEvaluation, evaluate_subset
from curate.evaluation.work import EvaluationWork, runner_of
from curate.options.function import callable_of
from curate.options.values import several
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.lookup import name_list

# options without effect on a subset
OF_SCORES = ("column", "votes", "against", "degrade", "model", "repeats", "train", "probe", "set")
OF_SUBSETS = ("test", "seeds", "group", "network")


def run_evaluate(options: EvaluateOptions) -> Evaluation | SubsetEvaluation:
    """Measure every score column of a table, or with ``subset`` a subset of it; nothing is written.

    Raises:
        InputError: if there is nothing to measure, or it cannot be read.
    """
    if options.subset is not None:
        _refuse("--subset measures a subset, and no score", options, OF_SCORES)
        return evaluate_subset(open_table(options.table, embedding=options.embedding), options)
    _refuse("it needs --subset", options, OF_SUBSETS)
    label, votes = options.label, options.votes
    opened = open_table(options.table, embedding=options.embedding)
    if label is None and votes is None and options.labelled is not None:
        label = "label"
    if label is None and votes is None and options.against is None and not options.degrade:
        raise InputError(
            "expected something to measure against, got none; add --label, --votes, --against or --degrade "
            f"(columns of {opened.path}: {name_list(opened.schema.names, 'label')})"
        )
    if options.embedding is not None and label is None:
        raise InputError(
            f"--embedding {options.embedding} is for measures against labels; add --label, or leave it out"
        )
    if options.train is not None and label is None:
        raise InputError("--train is for measures against labels; add --label, or leave it out")
    if options.train is None and (options.probe is not None or options.set):
        raise InputError(f"--{'probe' if options.probe is not None else 'set'} needs --train; add --train TABLE")
    protocol = protocol_of(options.probe, options.set)
    chosen = several(options.column)
    others = votes is not None or options.against is not None or options.degrade
    names, same_ranks = score_columns(opened, chosen, needed=options.train is None or bool(others))
    caveats = Caveats(same_ranks)
    work = EvaluationWork(opened, options, caveats)
    runner = runner_of(opened, options, caveats) if options.degrade else None
    if runner is not None:
        require_scores(runner, chosen)
    training = None if options.train is None else open_table(options.train, embedding=options.embedding)
    work.begin(names, label, open_labelled(options.labelled), training, protocol)
    if label is not None:
        work.measure_labels()
    if votes is not None:
        work.measure_votes()
    if options.against is not None:
        work.measure_against(open_table(options.against), names)
    if runner is not None:
        work.measure_degraded(runner, chosen)
    return work.result()


evaluate = callable_of(EvaluateOptions, run_evaluate)


def _refuse(why: str, options: EvaluateOptions, names: Sequence[str]) -> None:
    """Refuse options that would have no effect."""
    for name in names:
        if getattr(options, name) != getattr(EvaluateOptions, name):
            raise InputError(f"expected no --{name} here: {why}; leave it out")
