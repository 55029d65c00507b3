"""Does an uncertainty report which rows would be mistaken: R-AUROC of every column on every set."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from transfer_datasets import Dataset, Scores
from transfer_fit import FITTED, fitted, fitted_with
from transfer_numbers import Measured, aurocs, average, share
from transfer_scores import centred, cross_entropy, dataset_scores, draw, probe_entropy

from scoring.metrics.neighbours import recall_at_1

SHARES = (0.01, 0.05, 0.10)
DRAWS = 3
ALL_LABELS = "probe entropy, labels of the other folds"
Numbers = dict[str, Measured]
Draws = list[tuple[np.ndarray, Scores]]  # rows that are given labels, and uncertainties of every row
FewLabels = dict[float, Draws]  # share of labels -> draws


def recalls(dataset: Dataset, random: Dataset | None) -> Numbers:
    """Return the share of rows whose nearest other row has their label, by embedding."""
    embeddings = {"raw": dataset.embedding, "centred": centred(dataset.embedding)}
    if random is not None:
        embeddings |= {"random weights, raw": random.embedding, "random weights, centred": centred(random.embedding)}
    return {name: share(recall_at_1(rows, dataset.label)) for name, rows in embeddings.items()}


def without_labels(dataset: Dataset, random: Dataset | None) -> Scores:
    """Return every uncertainty that is there before a label is: shape (N,) each."""
    scores = dataset.scores | fitted(dataset) | dataset_scores(dataset.embedding) | dataset.baselines
    if random is not None:
        scores |= {f"random weights, {name}": score for name, score in random.scores.items()}
    return scores


def mistaken(embedding: Tensor, label: Tensor) -> np.ndarray:
    """Return which rows' nearest other row has another label, shape (N,), bool."""
    return ~recall_at_1(embedding, label)


def r_aurocs(dataset: Dataset, target: np.ndarray, scores: Mapping[str, np.ndarray], few: FewLabels) -> Numbers:
    """Return R-AUROC of scores without labels, of those with a few of them, and of a probe with nearly all.

    Args:
        dataset: N rows.
        target: which rows are mistaken, shape (N,).
        scores: uncertainties without labels, shape (N,) each.
        few: what a few labels give, by share and draw.
    """
    numbers = aurocs(scores, target)
    for draws in few.values():
        numbers |= averaged(target, draws)
    every = cross_entropy(dataset.embedding, dataset.label)
    return numbers | aurocs({ALL_LABELS: every}, target)


def with_labels(dataset: Dataset) -> FewLabels:
    """Return share of labels -> for each draw, the rows that are given and the uncertainties of every row."""
    few: FewLabels = {}
    for part in SHARES:
        for seed in range(DRAWS):
            rows = draw(len(dataset.label), part, seed)
            scores = {f"probe entropy, {part:.0%} labels": probe_entropy(dataset.embedding, dataset.label, rows)}
            scores[f"{FITTED}, {part:.0%} labels"] = fitted_with(dataset, rows)[FITTED]
            few.setdefault(part, []).append((rows, scores))
    return few


def averaged(target: np.ndarray, draws: Draws) -> Numbers:
    """Return R-AUROC on the rows that were not given labels, the mean over draws."""
    each = []
    for labelled, scores in draws:
        rest = np.ones(len(target), bool)
        rest[labelled] = False
        each.append(aurocs(scores, target, rest))
    return {name: average([numbers[name] for numbers in each]) for name in each[0]}


def ahead(numbers: Numbers) -> Numbers:
    """Return by how much the fitted score is ahead: without labels of each that has none, with them of the probe."""
    labelled = [name for name in numbers if "labels" in name]
    less = {f"less {name}": numbers[FITTED].minus(each) for name, each in numbers.items() if name not in labelled}
    less.pop(f"less {FITTED}")
    for part in SHARES:
        probe = f"probe entropy, {part:.0%} labels"
        less[f"{part:.0%} labels, less {probe}"] = numbers[f"{FITTED}, {part:.0%} labels"].minus(numbers[probe])
    return less
