"""The evaluation of a subset: read rows, draw training sets, train models and compare them."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.counted import Grid, Printed
from curate.evaluation.options import EvaluateOptions
from curate.evaluation.subset import training, words
from curate.evaluation.subset.findings import Noise, SubsetFindings, coverage, diversity, fairness
from curate.evaluation.subset.pool import FEWEST_TESTED, SubsetPool, read_pool
from curate.evaluation.subset.request import check_amounts, parse_test
from curate.evaluation.subset.sides import ALL_ROWS, BY_CLASS, RANDOM, SUBSET, TrainingSides, draw_sides
from curate.evaluation.subset.trained import HeldOutRows, SideAccuracies, compared, train_on_sides
from curate.evaluation.subset.training import PixelSquares, read_pictures, trainer
from curate.probes.crossed import crossed
from curate.statistics.diversity import nearest_distances
from curate.statistics.noise.quality import ClassProbabilities, ConfidentJoint, Mistakes, confident_joint, judge
from curate.statistics.noise.share import shares
from curate.tables.table import Table
from curate.tables.typed_json import plain_json
from curate.tables.vectors import vector_hashes
from scoring.errors import InputError
from scoring.metrics.resampling import Interval
from scoring.relative.space import centred, mean_of

BELOW = 0.5  # label quality below which a label is suspected, as in curate labels
COPY = 0.97  # cosine of stored embeddings above which two rows are near-copies
MOST_COPIES = 0.5  # maximum share of test rows that are excluded as copies
MOST_ALONE = 0.5  # maximum share of rows alone in their class; above, the column has no classes
SETTINGS = ("seeds", "seed", "sample", "network", "device")  # that determine the numbers, for the result


@dataclass(frozen=True)
class Judgement:
    """Confident-learning results on the labels of P rows.

    Attributes:
        probabilities: of classes, from models of other rows.
        labels: given classes of the rows, shape (P,).
        confident: the class that each row is confidently of, shape (P,); -1 for none.
        quality: probability that a label is right, shape (P,); NaN if it cannot be judged.
        suggested: the most likely class, shape (P,).
        n_classes: C.
    """

    probabilities: ClassProbabilities
    labels: NDArray[np.int64]
    confident: NDArray[np.int32]
    quality: NDArray[np.float32]
    suggested: NDArray[np.int32]
    n_classes: int

    def wrong(self, rows: NDArray[np.int64]) -> Interval:
        """Return the estimated share of label errors among some rows, in [0, 1]; NaN if none can be judged.

        Rows are judged with the models and thresholds of all rows; see ``curate.statistics.noise.share.shares``.
        """
        kept = self.probabilities
        part = ClassProbabilities(kept.index[rows], kept.probability[rows], kept.of_label[rows])
        labels, confident = self.labels[rows], self.confident[rows]
        is_confident = confident >= 0
        pair, count = np.unique(labels[is_confident] * self.n_classes + confident[is_confident], return_counts=True)
        joint = ConfidentJoint(pair, count, self.n_classes, confident)
        return shares(part, labels, joint, self.quality[rows] < BELOW, self.suggested[rows]).overall

    def left(self, subset: NDArray[np.int64], all_rows: NDArray[np.int64]) -> Interval:
        """Return the estimated share of label errors left in a subset of all rows.

        A subset chosen by this evidence has few suspected rows. Label errors of all rows that the dropped rows cannot
        contain must then be in it: the upper end is no less than their share.
        """
        estimate = self.wrong(subset)
        dropped = np.setdiff1d(all_rows, subset, assume_unique=True)
        if not len(subset) or not len(dropped):
            return estimate
        remaining = self.wrong(all_rows).high * len(all_rows) - self.wrong(dropped).high * len(dropped)
        return Interval(estimate.value, estimate.low, min(1.0, max(estimate.high, remaining / len(subset))))

    def confirmed(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of some rows have a label that is not suspected, shape (M,)."""
        return np.asarray(self.quality[rows] >= BELOW)


def judge_labels(pool: SubsetPool, *, seed: int) -> Judgement:
    """Judge every label of a pool from the other rows, as ``curate labels`` does."""
    n_classes = len(pool.classes)
    units = centred(pool.vectors, mean_of(pool.vectors))
    probabilities = crossed(units, pool.label, n_classes, seed=seed).probabilities
    joint = confident_joint(probabilities, pool.label, n_classes)
    judged = judge(probabilities, pool.label, Mistakes.of(joint))
    return Judgement(probabilities, pool.label, joint.confident, judged.quality, judged.suggested, n_classes)


class SubsetEvaluation(SubsetFindings, Printed):
    """The result of ``curate evaluate --subset``; see ``SubsetFindings`` for its fields."""

    def to_json(self) -> dict[str, Any]:
        """Return JSON values; a missing number is null."""
        return {**plain_json(self), "verdicts": plain_json(self.verdicts)}

    def notes(self) -> list[str]:
        """Return notes on the numbers, one sentence each."""
        return words.notes(self)

    def verdict(self) -> list[str]:
        """Return in plain words whether the subset helps."""
        return words.verdict(self)

    def lines(self) -> list[str | Grid]:
        """Return the printed lines."""
        return [
            *words.about(self),
            *words.of_models(self),
            *words.of_classes(self),
            *words.of_holdings(self),
            *words.of_fairness(self),
            *(f"note: {note}" for note in self.notes()),
            *(f"verdict: {line}" for line in self.verdict()),
        ]


def evaluate_subset(table: Table, options: EvaluateOptions) -> SubsetEvaluation:
    """Measure how well a subset of a table trains models; nothing is written.

    Args:
        table: scored, with embeddings.
        options: of ``curate evaluate``, with ``subset``.

    Raises:
        InputError: if the subset cannot be judged.
    """
    check_amounts(options)
    test, announce = options.test, options.announce
    if options.label is None and options.labelled is not None:
        options = replace(options, label="label")
    label = options.label
    if label is None and (test is not None or options.network):
        raise InputError(
            f"--{'test' if test is not None else 'network'} is for models, which need classes; add --label COLUMN"
        )
    side = parse_test(test, table)
    pool = read_pool(table, side, options)
    n_copies, left_out = 0, False
    if label is not None:
        _refuse_tests(pool)
        announce(f"{len(pool.tests):,} test rows: searching for near-copies among {len(pool.trainable):,} to train on")
        pool, n_copies, left_out = _without_copies(pool)
        _refuse_tests(pool)
    sides = draw_sides(pool, seeds=options.seeds, seed=options.seed)
    n = len(sides.subset)
    evaluation = SubsetEvaluation(
        str(table.path),
        str(options.subset),
        pool.rows_in_table,
        pool.rows_in_subset,
        pool.left_out,
        label,
        len(pool.classes),
        side.words(),
        len(pool.tests),
        {SUBSET: n, ALL_ROWS: len(sides.all_rows), RANDOM: n, BY_CLASS: n},
        pool.share,
        n_copies,
        left_out,
        settings={**{name: getattr(options, name) for name in SETTINGS}, "test": side.words(), "copy": COPY},
    )
    evaluation.fairness = [fairness(name, *each) for name, each in pool.groups.items()]
    announce("diversity and coverage")
    evaluation.diversity = diversity(pool, sides, seed=options.seed)
    evaluation.coverage = coverage(pool, sides, seed=options.seed)
    if label is not None:
        _measure_by_labels(evaluation, pool, sides, options)
    return evaluation


def _measure_by_labels(
    evaluation: SubsetEvaluation, pool: SubsetPool, sides: TrainingSides, options: EvaluateOptions
) -> None:
    """Add the measures that need labels: lost classes, label errors, and accuracy of trained models."""
    labels_kept = set(pool.label[sides.subset].tolist())
    evaluation.lost = [name for code, name in enumerate(pool.classes) if code not in labels_kept]
    options.announce(f"labels of {len(pool.label):,} rows, judged by other rows")
    judged = judge_labels(pool, seed=options.seed)
    evaluation.noise = Noise(
        judged.left(sides.subset, sides.all_rows), judged.wrong(sides.all_rows), judged.wrong(pool.tests)
    )
    images = None
    if options.network:
        options.announce(f"reading {len(pool.row):,} images")
        images = read_pictures(pool, source=options.source)
    _train_all(evaluation, pool, sides, judged, options)
    if images is not None:
        evaluation.trained.insert(0, _network(pool, images, judged, options))


def _refuse_tests(pool: SubsetPool) -> None:
    n = len(pool.tests)
    if n < FEWEST_TESTED:
        left = ", ".join(f"{count:,} {why}" for why, count in pool.left_out.items()) or "none"
        singletons = int((pool.of_class == 1).sum())
        advice = "test on more with --test: a larger share, COLUMN=VALUE or another table"
        if singletons > MOST_ALONE * pool.of_class.sum():
            advice = (
                f"{len(pool.classes):,} classes, of which {singletons:,} have one row, cannot be both trained "
                "and tested on; choose a column of classes that rows share with --label"
            )
        raise InputError(
            f"expected at least {FEWEST_TESTED} labelled rows to test on, got {n} (left out: {left}); {advice}"
        )
    if len(np.unique(pool.label[pool.tests])) < 2:
        raise InputError(
            f"expected test rows of at least two classes, got {n:,} of {pool.classes[pool.label[pool.tests[0]]]!r} "
            "alone; choose others with --test"
        )


def _without_copies(pool: SubsetPool) -> tuple[SubsetPool, int, bool]:
    """Return the pool without test rows that are copies of training rows, their number, and whether they were removed.

    If near-copies are the majority of test rows, as in video frames, they are kept; bit-identical embeddings or files
    never are.
    """
    tests = pool.tests
    twin = np.isin(vector_hashes(pool.vectors[tests]), vector_hashes(pool.vectors[pool.trainable]))
    twin |= pool.same_bytes()  # the same image has another embedding in another precision
    if twin.any():
        pool = pool.without_tests(tests[twin], "of the test side that may also be trained on")
        tests = pool.tests
        if not len(tests):
            return pool, 0, False
    distance = nearest_distances(pool.vectors[tests], pool.vectors[pool.trainable])
    copies = tests[1 - distance**2 / 2 > COPY]
    if not len(copies) or len(copies) > MOST_COPIES * len(tests):
        return pool, len(copies), False
    return pool.without_tests(copies, "of the test side with a near-copy to train on"), len(copies), True


def _train_all(
    evaluation: SubsetEvaluation, pool: SubsetPool, sides: TrainingSides, judged: Judgement, options: EvaluateOptions
) -> None:
    """Train the models on the embeddings of every training set, and compare them."""
    tests, vectors, label = pool.tests, pool.vectors, pool.label
    truth, held = label[tests], vectors[tests]
    n_classes = len(pool.classes)
    tested = _held_out(pool, judged, sides, tests)
    strengths: list[float] = []

    def linear(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        right, c = training.right_by_linear(
            vectors[rows], label[rows], held, truth, n_classes, seed=options.seed + number
        )
        strengths.append(c)
        return right

    def neighbours(rows: NDArray[np.int64], number: int) -> NDArray[np.bool_]:
        return training.right_by_neighbours(vectors[rows], label[rows], held, truth)

    models = {training.LINEAR: linear, training.KNN: neighbours}
    if n_classes > training.MOST_CLASSES:
        models.pop(training.LINEAR)
        evaluation.not_trained[training.LINEAR] = (
            f"{n_classes:,} classes are more than the {training.MOST_CLASSES:,} it can be fitted for"
        )
    for name, train in models.items():
        right = train_on_sides(
            sides,
            train,
            seeds=options.seeds,
            repeated=False,
            report=lambda text, name=name: options.announce(f"{name}: {text}"),  # type: ignore[misc]
        )
        trained = compared(name, right, tested)
        if name == training.LINEAR:
            trained.strengths = _by_side(strengths, right)
        evaluation.trained.append(trained)


def _held_out(pool: SubsetPool, judged: Judgement, sides: TrainingSides, tests: NDArray[np.int64]) -> HeldOutRows:
    counts = [np.bincount(pool.label[rows], minlength=len(pool.classes)) for rows in (sides.subset, sides.all_rows)]
    return HeldOutRows(pool.label[tests], pool.classes, pool.kept[tests], judged.confirmed(tests), *counts)


def _by_side(values: list[float], right: dict[str, NDArray[np.bool_]]) -> dict[str, list[float]]:
    by_side, start = {}, 0
    for side, each in right.items():
        by_side[side] = values[start : start + len(each)]
        start += len(each)
    return by_side


def _network(pool: SubsetPool, pictures: PixelSquares, judged: Judgement, options: EvaluateOptions) -> SideAccuracies:
    """Train the small network on every training set, of rows with a readable image."""
    is_readable = np.zeros(len(pool.row), bool)
    is_readable[pictures.at] = True
    readable = pool.part(is_readable)
    _refuse_tests(readable)
    sides = draw_sides(readable, seeds=options.seeds, seed=options.seed)
    train = trainer(readable, pictures, options)
    right = train_on_sides(
        sides, train, seeds=options.seeds, repeated=True, report=lambda text: options.announce(f"network: {text}")
    )
    tests = readable.tests
    tested = replace(_held_out(readable, judged, sides, tests), confirmed=judged.confirmed(pictures.at[tests]))
    trained = compared(training.NETWORK, right, tested)
    trained.n_unread = len(pool.row) - len(pictures.at)
    return trained
