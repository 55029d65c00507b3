"""Runs the tests of scores on the user's images."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from curate.columns import EMBEDDING, KEY
from curate.engines.junk import classifier_of
from curate.engines.out_path import holds_scores
from curate.engines.score import score
from curate.evaluation.results import CHANCE_LEVEL, NO_SCORES, QUALITY_MEASURES, Evaluation
from curate.evaluation.run import evaluate
from curate.manifest.contract import SourceOptions
from curate.manifest.store_path import AnyPath, path_to_read
from curate.options.function import callable_of
from curate.options.values import several
from curate.retrieval.images import fit_of, is_fitted, model_named_by, scorer_of
from curate.selftests.contract import BROKEN, HOLDS, LABELS, UNSURE, UNTRIED, Check
from curate.selftests.corruption import BatchScorer, climb, less_certain, less_unique
from curate.selftests.invariance import FEWEST, WAYS, ImageSample, of_source, of_table, unchanged
from curate.selftests.options import SelftestOptions
from curate.selftests.result import SelfTest, curves_of
from curate.statistics.degradations import LADDERS
from curate.tables.arrays import numbers_of
from curate.tables.dataset import log_odds_of
from curate.tables.images import drawn_rows
from curate.tables.provenance import model_of, white_of
from curate.tables.table import Table, embedding_matrix, open_table
from scoring.arrays import Array
from scoring.checkpoint import load_model
from scoring.errors import InputError
from scoring.lookup import require_known
from scoring.metrics.resampling import Interval
from scoring.model_names import DEFAULT
from scoring.relative.columns import CLUSTER, JUNK, PER_IMAGE, UNLIKE
from scoring.relative.fit import REFERENCES, fit_dataset
from scoring.relative.model import DatasetFit
from scoring.runner import Runner, select_device, select_precision
from scoring.settings import require_between

CLEARLY_BETTER = 0.6  # AUROC bound from which a failure is not certain
OF_DATASET = tuple(name for name in PER_IMAGE if name not in (CLUSTER, UNLIKE))  # scores among the fitted columns
IMAGES = 100
MOST_IMAGES = 100_000


def better_than_chance_level(table: AnyPath, label: str, options: SelftestOptions) -> list[Check]:
    """Return a check for each column: whether it is higher for wrongly predicted labels.

    Predictions are as in ``curate evaluate``: by an out-of-fold linear classifier if possible, else by neighbours. A
    column passes if the 95 % interval of its AUROC lies above 0.5, is no better than chance if the interval contains
    0.5 and ends below 0.6, and is undecided if it ends above.

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


@dataclass(frozen=True)
class _Tested:
    """The input of a test: images, model, and the fit to their dataset."""

    table: Table
    sample: ImageSample
    model: str
    runner: Runner
    dataset: Array
    fit: DatasetFit | None


def run_selftest(options: SelftestOptions) -> SelfTest:
    """Test on the images of a scored table or a source whether scores behave as they should.

    Raises:
        InputError: for an unusable source, table, column or kind, or fewer than 20 readable images.
    """
    require_between("--images", options.images, FEWEST, MOST_IMAGES, f"{IMAGES} is usual")
    changes, chosen = several(options.change), several(options.column)
    for name in changes:
        require_known(name, LADDERS, "--change: there is no")
    kinds = list(dict.fromkeys(changes)) or list(LADDERS)
    label = options.label
    if label is None and (options.label_from_folder or options.labelled is not None):
        label = "label"
    with tempfile.TemporaryDirectory(prefix="curate-selftest-") as place:
        folder = Path(place)
        tested = _opened(options, folder, chosen)
        columns, left_out = _columns(tested, chosen)
        if label is not None and options.labelled is None:
            require_known(label, tested.table.schema.names, f"--label: {options.images_of} has no column", "columns")
        scorer = BatchScorer(tested.runner, tested.fit, columns, white_of(tested.table))
        fitted = any(name in OF_DATASET for name in columns)
        ways, announce = options.ways or WAYS, options.announce
        checks: list[Check] = unchanged(
            tested.sample, folder, tested.model, columns=columns, fit=fitted, ways=ways, announce=announce
        )
        steps = sum(len(LADDERS[kind].strengths) for kind in kinds)
        announce(f"scoring {steps} corrupted versions of {len(tested.sample.keys):,} images")
        climbed = climb(tested.sample.data(), scorer, kinds=kinds, seed=options.seed)
        checks += less_certain(climbed)
        announce("searching for copies among the others")
        checks += less_unique(tested.sample.data(), scorer, tested.dataset)
        if label is not None:
            checks += better_than_chance_level(tested.table.path, label, options)
        n, unread = len(tested.sample.keys), tested.sample.unread
    return SelfTest(str(options.images_of), tested.model, n, unread, columns, left_out, checks, curves_of(climbed))


selftest = callable_of(SelftestOptions, run_selftest)


def _opened(options: SelftestOptions, folder: Path, columns: Sequence[str]) -> _Tested:
    """Draw the images to test; for a source, score them and others."""
    images_of, model, announce, seed = options.images_of, options.model, options.announce, options.seed
    if holds_scores(path_to_read(images_of)):
        table = open_table(images_of, require=columns)
        model = model_named_by(table, model_of(table)) if model is None else model
        runner, _ = scorer_of(table, model=model, device=options.device)
        announce(f"drawing {options.images:,} images of {table.path}")
        sample = of_table(table, options.images, folder, seed=seed, source=options.source)
    else:
        if options.source is not None:
            raise InputError(f"--source is for a scored table, and {images_of} is not one; leave it out")
        model = DEFAULT if model is None else model
        network, _ = load_model(model)
        chosen = select_device(options.device)
        runner = Runner(network, chosen, select_precision("auto", chosen, network.spec.cpu_precision))
        for name in columns:
            require_known(name, (*runner.columns, *OF_DATASET), f"--column: {model} gives no", "gives")
        of_folders = SourceOptions(label_from_folder=options.label_from_folder)
        sample, everything = of_source(
            str(images_of), options.images, folder, seed=seed, options=of_folders, announce=announce
        )
        scored = folder / "company.scores.parquet"
        announce(f"scoring {len(everything.keys):,} images")
        score(everything.path, scored, model=model, device=options.device, **everything.keywords())
        table = open_table(scored)
    dataset, fit = _fitted(table, model, sample, announce)
    return _Tested(table, replace(sample, white=white_of(table)), str(model), runner, dataset, fit)


def _fitted(
    table: Table, model: str | Path, sample: ImageSample, announce: Callable[[str], None]
) -> tuple[Array, DatasetFit | None]:
    """Return embeddings of the dataset, shape (R, D), R <= 20,000, and the fit of its columns, if any.

    The images to test are excluded, since a corrupted version would have its original as nearest neighbour. Raises
    InputError for a table without embeddings.
    """
    heads = [JUNK] if JUNK in table.schema.names else []
    table.require([KEY, EMBEDDING])
    rows = drawn_rows(table, REFERENCES + len(sample.keys), seed=0)
    keys = table.take(np.sort(rows), [KEY]).column(KEY).to_pylist()
    tested = set(sample.keys)
    others = np.array([row for row, key in zip(np.sort(rows).tolist(), keys, strict=True) if str(key) not in tested])
    taken = table.take(others, [EMBEDDING, *heads])
    embeddings = embedding_matrix(taken.column(EMBEDDING))
    is_finite = np.isfinite(embeddings).all(1)
    junk = log_odds_of(numbers_of(taken.column(JUNK))[is_finite]) if heads else None
    known = fit_of(model) if is_fitted(model) else None
    if known is not None or not any(name in OF_DATASET for name in table.schema.names):
        return embeddings[is_finite], known
    try:
        fit, _ = fit_dataset(embeddings[is_finite], junk)
        return embeddings[is_finite], replace(fit, junk=classifier_of(table))
    except InputError as error:
        announce(f"scores that are fitted to the dataset are not tried: {error}")
        return embeddings[is_finite], None


def _columns(tested: _Tested, chosen: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the columns that can be computed for corrupted images, and the others; InputError for a missing one."""
    names = tested.table.schema.names
    kappas = {name for name in tested.runner.columns if name.startswith("kappa_")}
    doubles = {f"unc_{name.removeprefix('kappa_')}" for name in kappas}  # 1/kappa, in the same order
    able = [name for name in tested.runner.columns if name not in doubles]
    able += [name for name in OF_DATASET if tested.fit is not None and name in names]
    candidates = list(chosen) or [name for name in names if name.startswith(("kappa_", "unc_")) and name not in doubles]
    columns = [name for name in able if name in candidates]
    if not columns:
        raise InputError(
            f"expected a score that corrupted images can be scored by ({', '.join(able)}), got "
            f"{', '.join(candidates) or 'none'}"
        )
    return columns, [name for name in candidates if name not in able]
