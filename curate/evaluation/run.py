"""Measure how accurate the columns of a scored table are, or how useful a subset of it is."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from curate.evaluation.joined import open_labelled
from curate.evaluation.measures import Caveats
from curate.evaluation.protocol import protocol_of
from curate.evaluation.results import Evaluation
from curate.evaluation.rows import score_columns
from curate.evaluation.subset.request import SubsetSettings
from curate.evaluation.subset.results import SubsetEvaluation
from curate.evaluation.subset.run import evaluate_subset
from curate.evaluation.work import EvaluateSettings, EvaluationWork, runner_of
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.lookup import name_list

OF_SCORES: dict[str, Any] = {  # options that say nothing of a subset, and what they are where they are not given
    "column": None,
    "votes": None,
    "against": None,
    "degrade": 0,
    "strengths": False,
    "model": None,
    "repeats": 1000,
    "train": None,
    "probe": None,
    "set": None,
}
OF_SUBSETS: dict[str, Any] = {"test": None, "seeds": 5, "group": None, "network": 0}


def evaluate(
    table: str | Path,
    *,
    label: str | None = None,
    labelled: str | Path | None = None,
    train: str | Path | None = None,
    probe: str | Sequence[str] | None = None,
    set: Mapping[str, object] | None = None,
    subset: str | Path | None = None,
    test: str | None = None,
    seeds: int = 5,
    group: str | Sequence[str] | None = None,
    network: int = 0,
    column: str | Sequence[str] | None = None,
    votes: str | None = None,
    against: str | Path | None = None,
    degrade: int = 0,
    strengths: bool = False,
    source: str | None = None,
    model: str | Path | None = None,
    device: str = "auto",
    repeats: int = 1000,
    embedding: str | None = None,
    seed: int = 0,
    sample: int | None = None,
    announce: Callable[[str], None] = lambda text: None,
) -> Evaluation | SubsetEvaluation:
    """Measure every score column of a table, or with ``subset`` how good that is; nothing is written.

    Every keyword but ``announce`` is the option of ``curate evaluate`` of that name.

    Args:
        table: what ``curate score`` wrote, or any table with score columns.
        label: column of classes, in ``labelled`` where that has it and else in the table; with ``labelled`` and neither
            ``label`` nor ``votes``, the column ``label`` of that file.
        labelled: CSV, TSV or Parquet file of labels or votes, whose rows are found by key.
        train: another scored table with that column, from whose rows classifiers learn, instead of the other rows of
            the table; images of the table that are in it are left out there.
        probe: with ``train``, one or several of linear, knn, few (the linear one on few labels), mlp and gmm (clusters
            without labels), also as text with commas; the first three by default.
        set: with ``train``, settings of these; see ``ProtocolSettings``.
        subset: what a policy kept: its subset, its decisions, or a file of keys. Models are trained on it, on all rows
            and on random rows of the same size, and tested on rows that none of them saw: a ``SubsetEvaluation``.
        test: with ``subset``, what is tested on: a share of each class ("0.2", the default), "COLUMN=VALUE" or a table.
        seeds: with ``subset``, random subsets of each kind, and trainings of the network.
        group: with ``subset``, one or several columns whose groups should be kept alike.
        network: with ``subset``, steps of a small network that is trained on pixels; 0 for none.
        column: one or several scores to measure; every ``kappa_*`` and ``unc_*`` by default.
        votes: the same, a column of lists: how many annotators chose each class.
        against: another table, that certainty should separate from this one.
        degrade: images that are read again and made worse; 0 for none.
        strengths: make them worse at five strengths of each change, too: 30 more versions of each.
        source: what was scored, for corrupted images and the network; by default the uris in the table.
        model: that scores corrupted images; by default the shipped one that the table names.
        device: that scores them, or trains the network.
        repeats: bootstrap resamples, and shuffles of the permutation tests, >= 1.
        embedding: column of the user's own embeddings, of any length, instead of ``embedding``.
        seed: of folds, resamples, shuffles, samples and corrupted images.
        sample: measure that many rows, chosen by a hash of their keys; None for all. With ``subset``, train on at most
            that many; None for 50,000, and for fewer where classes are many.
        announce: called with a line on what is about to happen.

    Raises:
        InputError: if there is nothing to measure, or it cannot be read.
    """
    if subset is not None:
        _refuse("--subset measures a subset, and no score", locals(), OF_SCORES)
        return evaluate_subset(
            open_table(table, embedding=embedding),
            subset,
            settings=SubsetSettings(seeds, seed, sample, network, device),
            label="label" if label is None and labelled is not None else label,
            labelled=labelled,
            test=test,
            group=[group] if isinstance(group, str) else group or (),
            source=source,
            announce=announce,
        )
    _refuse("it is for --subset, which is missing", locals(), OF_SUBSETS)
    settings = EvaluateSettings(repeats, seed, sample, degrade, device, strengths)
    opened = open_table(table, embedding=embedding)
    if label is None and votes is None and labelled is not None:
        label = "label"
    if label is None and votes is None and against is None and not settings.degrade:
        raise InputError(
            "expected something to measure against, got none; give --label, --votes, --against or --degrade "
            f"(columns of {opened.path}: {name_list(opened.schema.names, 'label')})"
        )
    if embedding is not None and label is None:
        raise InputError(
            f"--embedding {embedding} is for what is measured against labels; add --label, or leave it out"
        )
    if train is not None and label is None:
        raise InputError("--train is for what is measured against labels; add --label, or leave it out")
    if train is None and (probe is not None or set):
        raise InputError(
            f"--{'probe' if probe is not None else 'set'} is for --train, which is missing; give --train TABLE"
        )
    protocol = protocol_of(probe, set)
    names, same_ranks = score_columns(opened, [column] if isinstance(column, str) else column or ())
    caveats = Caveats(same_ranks)
    runner = runner_of(opened, model, settings, caveats) if settings.degrade else None
    work = EvaluationWork(opened, settings, announce, caveats)
    training = None if train is None else open_table(train, embedding=embedding)
    work.begin(names, label, votes, open_labelled(labelled), training, protocol)
    if label is not None:
        work.measure_labels()
    if votes is not None:
        work.measure_votes()
    if against is not None:
        work.measure_against(open_table(against), names)
    if runner is not None:
        work.measure_degraded(runner, source)
    return work.result()


def _refuse(why: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
    """Refuse options that would change nothing."""
    for name, default in defaults.items():
        if options[name] != default:
            raise InputError(f"expected no --{name} here: {why}; leave it out")
