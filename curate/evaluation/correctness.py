"""Certainty compared with the correctness of the nearest neighbour, a kNN vote and a linear classifier."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from curate.evaluation.measures import (
    BASELINE,
    EMBEDDING,
    FEW,
    INFINITE,
    SEPARATED,
    Measure,
    Shape,
    measured,
    widen_areas,
    widened_share,
)
from curate.evaluation.protocol import VOTERS
from curate.evaluation.ranked import SHAPES, at_random, ranked
from curate.statistics.calibrators import LogisticFit, logistic_regression, newton_step, newton_terms
from curate.statistics.retrieval import adjusted_rand_index, normalized_mutual_information
from curate.statistics.weighted import RankOrder, harmonic_sums, least_aurc, weighted_sums
from scoring.arrays import Array, Floats
from scoring.metrics.classifier import cross_validate
from scoring.metrics.duplicates import group_duplicates
from scoring.metrics.neighbours import knn_vote, nearest
from scoring.metrics.ranking import ranks
from scoring.metrics.resampling import Interval, percentiles, permutation_test_linear, resample

MOST_CLASSES = 2000  # maximum classes for the linear classifier
COVERAGES = np.arange(1, 11) / 10
HALF = 0.5  # the coverage that is a measure, not only a point of the curve
NEAREST, KNN, LINEAR = "neighbour", "kNN", "linear"
WHAT = {NEAREST: "nearest neighbour", KNN: "kNN vote", LINEAR: "linear classifier"}
CLASS_ENTROPY = "class entropy"

ACCURACY = {
    NEAREST: Shape(
        "Recall@1", "higher", "share of rows whose nearest other row has their label; baseline: another row at random"
    ),
    KNN: Shape(
        "kNN accuracy",
        "higher",
        f"share of rows whose {VOTERS} nearest other rows vote for their label; baseline: the most frequent class",
    ),
    LINEAR: Shape(
        "linear accuracy",
        "higher",
        "share of rows that a linear classifier fitted on other rows gets right; baseline: the most frequent class",
    ),
}
AUROC = {
    NEAREST: Shape(
        "R-AUROC",
        "higher",
        (
            "probability that a row whose nearest neighbour has its label is more certain than one whose "
            "neighbour has not; 0.5 at chance level"
        ),
    ),
    KNN: Shape("AUROC, kNN right", "higher", "the same for rows that the kNN vote gets right"),
    LINEAR: Shape("AUROC, linear right", "higher", "the same for rows that the linear classifier gets right"),
}
AGREEMENT = (
    Shape(
        "GMM NMI",
        "higher",
        "normalised mutual information of the Gaussians with the classes, 1 where they agree; baseline: the same "
        "Gaussians shuffled over the rows",
    ),
    Shape("GMM ARI", "higher", "adjusted Rand index, 1 where they agree, 0 at chance level; baseline: as of NMI"),
)
SELECTIVE = (
    Shape(
        "abstained accuracy",
        "higher",
        "mean accuracy of the {what} over all shares of rows kept, the most certain first; "
        "at chance level its accuracy",
    ),
    Shape("AURC", "lower", "one minus that: the area under the risk-coverage curve of the {what}"),
    Shape("excess AURC", "lower", "AURC beyond a perfect order's at the same accuracy"),
    Shape("accuracy, most certain half", "higher", "accuracy of the {what} on the half with the highest certainty"),
)
LOGISTIC = Shape(
    "logistic slope",
    "higher",
    "log-odds of the linear classifier being right for one standard deviation of certainty; above 0 means related",
)
MEANS = (
    Shape("mean, right", "", "mean of the column where the linear classifier is right"),
    Shape("mean, wrong", "", "mean of the column where the linear classifier is wrong"),
)


@dataclass
class Correctness:
    """Correctness of predictions from embeddings on N labelled rows.

    Attributes:
        right: correctness by prediction, bool, shape (N,).
        class_entropy: of out-of-fold linear classifiers, nats, shape (N,); None without one.
        missing: why a prediction is missing, by its name.
        n_twins: number of rows whose embedding is bit-identical to another row's.
        confidence: the linear classifier's probability of its prediction, shape (N,); None without one.
        ranked: retrieval measures of each row by name, shape (N,), in [0, 1].
        baseline: expected value of a prediction or measure for each row without the embedding, shape (N,).
        clusters: class, cluster, and permuted cluster of each row, shape (3, N), from 0; None without clusters.
        about: display name and meaning of each prediction or measure.
    """

    right: dict[str, NDArray[np.bool_]]
    class_entropy: Floats | None
    missing: dict[str, str]
    n_twins: int = 0
    confidence: Floats | None = None
    ranked: dict[str, Floats] = field(default_factory=dict)
    baseline: dict[str, Floats] = field(default_factory=dict)
    clusters: NDArray[np.int64] | None = None
    about: Mapping[str, Shape] = field(default_factory=lambda: ACCURACY | SHAPES)

    @property
    def few(self) -> dict[str, tuple[int, int]]:
        """Predictions with fewer than ``FEW`` wrong or right rows: numbers of both."""
        counts = {name: self.wrong_and_right(name) for name in self.right}
        return {name: each for name, each in counts.items() if min(each) < FEW}

    def wrong_and_right(self, name: str) -> tuple[int, int]:
        """Return the numbers of rows that a prediction gets wrong and right."""
        right = self.right[name]
        return int((~right).sum()), int(right.sum())


def judge(embedding: Tensor, labels: Tensor, *, folds: int, seed: int, rows: Tensor | None = None) -> Correctness:
    """Predict rows from all others: by the nearest, by a vote, and by cross-validated linear classifiers.

    Exact duplicates share a fold, so that no classifier was trained on a row it is tested on.

    Args:
        embedding: unit vectors, shape (N, D).
        labels: shape (N,), int64, from 0.
        folds: of the cross-validation.
        seed: of the folds.
        rows: to predict, shape (M,), int64; None for all N.
    """
    k = min(VOTERS, len(embedding) - 1)
    cosine, index = nearest(embedding, embedding, k, same=True) if rows is None else _nearest_others(embedding, rows, k)
    rows = torch.arange(len(labels)) if rows is None else rows
    true = labels[rows]
    right = {NEAREST: (labels[index[:, 0]] == true).numpy(), KNN: (knn_vote(cosine, labels[index]) == true).numpy()}
    retrieved, missing = ranked(embedding, labels, index, rows)
    expected = {name: values[rows.numpy()] for name, values in at_random(labels).items()}
    expected = {
        NEAREST: expected.pop("Recall@1"),
        **dict.fromkeys((KNN, LINEAR), most_frequent(labels, true)),
        **expected,
    }
    groups = group_duplicates(embedding)
    n_twins = 0 if groups is None else int((groups.size[groups.of_row[rows]] > 1).sum())
    measured = Correctness(right, None, missing, n_twins, ranked=retrieved, baseline=expected)
    n_classes = int(labels.max()) + 1
    if n_classes > MOST_CLASSES:
        missing[LINEAR] = too_many(n_classes)
        return measured
    if groups is not None and len(groups.first) < folds:
        missing[LINEAR] = f"the rows have {len(groups.first)} different embeddings, fewer than the {folds} folds"
        return measured
    linear = cross_validate(
        embedding, labels, folds=folds, seed=seed, groups=groups.of_row if groups is not None else None
    )
    right[LINEAR] = (linear.label[rows] == true).numpy()
    measured.class_entropy, measured.confidence = linear.entropy[rows.numpy()], linear.confidence[rows.numpy()]
    return measured


def _nearest_others(embedding: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return cosine and index of the k nearest other rows of M rows, shape (M, k) each."""
    cosine, index = nearest(embedding[rows], embedding, k + 1)
    others = index != rows[:, None]
    others[others.all(1), -1] = False  # more than k identical rows come before the row
    return cosine[others].view(-1, k), index[others].view(-1, k)


def too_many(n_classes: int) -> str:
    """Return why no classifier is fitted for so many classes."""
    return f"{n_classes:,} classes are more than the {MOST_CLASSES:,} it can be fitted for"


def most_frequent(learned: Tensor, labels: Tensor) -> Floats:
    """Return which labels (N,) equal the most frequent one of ``learned`` (M,), lowest if tied, as 0 or 1."""
    return (labels == torch.bincount(learned).argmax()).double().numpy()


def accuracies(correctness: Correctness, *, repeats: int, seed: int) -> list[Measure]:
    """Return the accuracy of each prediction, and retrieval measures; these rate the embedding, not a score."""
    about, baseline = correctness.about, correctness.baseline
    known = correctness.right | correctness.ranked
    measures: list[Measure] = []
    if known:
        hits = np.stack([*known.values(), *(baseline[name] for name in known)]).astype(np.float64)  # (2 P, N)
        measures = measured(
            [about[name] for name in known],
            [EMBEDDING, BASELINE],
            lambda counts: weighted_sums(hits, counts) / counts.sum(),
            hits.shape[1],
            repeats=repeats,
            seed=seed,
        )
        for measure, values in zip(measures, known.values(), strict=True):
            if ((values == 0) | (values == 1)).all():
                measure.values[EMBEDDING] = widened_share(measure.values[EMBEDDING], len(values))
    if correctness.clusters is not None:
        measures += _agreement(correctness.clusters, repeats=repeats, seed=seed)
    return measures + [about[name].without(why) for name, why in correctness.missing.items()]


def _agreement(clusters: NDArray[np.int64], *, repeats: int, seed: int) -> list[Measure]:
    """Return NMI and ARI of clusters, and of permuted clusters, with the classes."""
    labels, *groupings = clusters
    width = int(clusters[1].max()) + 1
    shape = (int(labels.max()) + 1, width)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        tables = [np.bincount(labels * width + each, counts, shape[0] * width).reshape(shape) for each in groupings]
        return np.array([[normalized_mutual_information(table), adjusted_rand_index(table)] for table in tables])

    return measured(AGREEMENT, [EMBEDDING, BASELINE], statistic, len(labels), repeats=repeats, seed=seed, centred=True)


def certainty_measures(
    certainty: Mapping[str, Floats], correctness: Correctness, *, repeats: int, seed: int
) -> tuple[list[Measure], dict[str, dict[str, list[dict[str, float | None]]]]]:
    """Return AUROC and selective prediction of every column for every prediction, and the curves.

    Args:
        certainty: by column, higher is more certain, shape (N,).
        correctness: of the predictions.
        repeats: resamples and permutations.
        seed: of both.
    """
    columns, names = list(certainty), list(correctness.right)
    right = np.stack(list(correctness.right.values()), 1)  # (N, P)
    orders = [RankOrder(certainty[column]) for column in columns]
    targets = [order.sort(right) for order in orders]
    sums = harmonic_sums(len(right))
    hits = np.ascontiguousarray(right.T, np.float64)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        """Shape (C, (4 + coverages) * P): AUROC, one minus AURC, AURC, excess, then accuracy at each coverage."""
        floor = least_aurc(1 - weighted_sums(hits, counts) / counts.sum())
        lines = []
        for order, target in zip(orders, targets, strict=True):
            drawn = order.drawn(counts, target)
            area, cost = order.auroc_and_aurc(counts, target, sums, drawn)
            curve = order.accuracy_at(counts, target, COVERAGES, drawn)
            lines.append(np.concatenate([[area, 1 - cost, cost, cost - floor], curve]).reshape(-1))
        return np.stack(lines)

    at_coverage = [SELECTIVE[3] if at == HALF else Shape(f"{at:.1f}", "higher", "") for at in COVERAGES]
    shapes = [AUROC[name] for name in names]
    shapes += [
        replace(shape, name=f"{shape.name}, {name}", meaning=shape.meaning.format(what=WHAT[name]))
        for shape in (*SELECTIVE[:3], *at_coverage)
        for name in names
    ]
    every = measured(shapes, columns, statistic, len(right), repeats=repeats, seed=seed)
    grid = np.array(every, object).reshape(-1, len(names))  # measure, prediction
    order = np.stack([ranks(values) for values in certainty.values()])
    for p, name in enumerate(names):
        widen_areas(grid[0, p], *correctness.wrong_and_right(name))
        chance = permutation_test_linear(order, right[:, p], repeats=repeats, seed=seed)
        grid[0, p].p = dict(zip(certainty, chance.tolist(), strict=True))
        for coverage, measure in zip(COVERAGES, grid[4:, p], strict=True):
            measure.values = {c: widened_share(each, coverage * len(right)) for c, each in measure.values.items()}
    at_half = 4 + COVERAGES.tolist().index(HALF)
    measures = list(grid[0])
    for p, name in enumerate(names):
        if name != KNN:  # its AUROC adds nothing to the other two
            measures += grid[[1, 2, 3, at_half], p].tolist()
    curves = {name: {c: _curve(grid[4:, p], c) for c in columns} for p, name in enumerate(names)}
    return measures, curves


def _curve(measures: Array, column: str) -> list[dict[str, float | None]]:
    """Return the accuracy with bounds at each coverage of one column."""
    points: list[dict[str, float | None]] = []
    for coverage, measure in zip(COVERAGES, measures, strict=True):
        value, low, high = (float(x) for x in measure.values[column])
        points.append({"coverage": float(coverage), "accuracy": value, "low": low, "high": high})
    return points


def slopes(
    certainty: Mapping[str, Floats], right: NDArray[np.bool_], *, repeats: int, seed: int
) -> tuple[Measure, dict[str, str]]:
    """Return logistic regressions of correctness on each standardised column, and why some are missing.

    The bounds are a one-step bootstrap (a Newton step from the fit on each resample); p is of a permutation test.

    Source: Nakamura et al. 2023, arXiv:2203.11437, appendices C and J.
    """
    measure = Measure(LOGISTIC.name, LOGISTIC.better, LOGISTIC.meaning, len(right))
    without: dict[str, str] = {}
    fits = {}
    for column, values in certainty.items():
        if not np.isfinite(values).all():
            without[column] = INFINITE
            continue
        spread = values.std()
        scaled = (values - values.mean()) / spread if spread > 0 else values
        fit = logistic_regression(scaled, right)
        if fit.converged:
            fits[column] = (fit, scaled)
        else:
            without[column] = SEPARATED
    if not fits:
        return LOGISTIC.without("no column has one; see the notes"), without
    _fill_slopes(measure, fits, right, repeats=repeats, seed=seed)
    return measure, without


def _fill_slopes(
    measure: Measure,
    fits: Mapping[str, tuple[LogisticFit, Floats]],
    right: NDArray[np.bool_],
    *,
    repeats: int,
    seed: int,
) -> None:
    terms = np.concatenate([newton_terms(scaled, right, fit).T for fit, scaled in fits.values()])  # (5 C, N)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        sums = weighted_sums(terms, counts).reshape(-1, 5)
        return np.array([newton_step(fit, line) for (fit, _), line in zip(fits.values(), sums, strict=True)])

    low, high = percentiles(resample(statistic, len(right), repeats=repeats, seed=seed))
    x = np.stack([scaled for _, scaled in fits.values()])
    chance = permutation_test_linear(x, right, repeats=repeats, seed=seed)
    for number, (column, (fit, _)) in enumerate(fits.items()):
        measure.values[column] = Interval(fit.coefficient, float(low[number]), float(high[number]))
        measure.p[column] = float(chance[number])


def means(raw: Mapping[str, Floats], right: NDArray[np.bool_], *, repeats: int, seed: int) -> list[Measure]:
    """Return the mean of each column over right and over wrong predictions.

    Source: Table 4 of Nakamura et al. 2023, arXiv:2203.11437.
    """
    finite = {column: values for column, values in raw.items() if np.isfinite(values).all()}
    if not finite:
        return [shape.without("every column holds infinite values") for shape in MEANS]
    values = np.stack(list(finite.values()))  # (C, N)
    split = np.concatenate([values * right, values * ~right])
    sides = np.stack([right, ~right]).astype(np.float64)

    def statistic(counts: NDArray[np.int64]) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            return (weighted_sums(split, counts).reshape(2, -1) / weighted_sums(sides, counts)[:, None]).T

    return measured(MEANS, list(finite), statistic, len(right), repeats=repeats, seed=seed)


def label_tensor(codes: NDArray[np.int64]) -> Tensor:
    """Return labels as consecutive integers from 0, shape (N,), int64."""
    _, dense = np.unique(codes, return_inverse=True)
    return torch.from_numpy(dense.astype(np.int64))
