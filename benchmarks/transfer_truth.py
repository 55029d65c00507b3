"""Does an uncertainty tell which rows would be mistaken: R-AUROC of every column on every set."""

from collections.abc import Mapping

import numpy as np
from torch import Tensor
from transfer_heaps import Heap, Scores
from transfer_numbers import Measured, aurocs, average, share
from transfer_scores import centred, cross_entropy, draw, heap_scores, probe_entropy

from scoring.metrics import recall_at_1

SHARES = (0.01, 0.05, 0.10)
DRAWS = 3
Numbers = dict[str, Measured]


def recalls(heap: Heap, random: Heap | None) -> Numbers:
    """Return the share of rows whose nearest other row has their label, by embedding."""
    found = {"raw": heap.embedding, "centred": centred(heap.embedding)}
    if random is not None:
        found |= {"random weights, raw": random.embedding, "random weights, centred": centred(random.embedding)}
    return {name: share(recall_at_1(rows, heap.label)) for name, rows in found.items()}


def without_labels(heap: Heap, random: Heap | None) -> Scores:
    """Return every uncertainty that is there before a label is: shape (N,) each."""
    found = heap.scores | heap_scores(heap.embedding) | heap.baselines
    if random is not None:
        found |= {f"random weights, {name}": score for name, score in random.scores.items()}
    return found


def mistaken(embedding: Tensor, label: Tensor) -> np.ndarray:
    """Return which rows' nearest other row has another label, shape (N,), bool."""
    return ~recall_at_1(embedding, label)


def r_aurocs(heap: Heap, target: np.ndarray, scores: Mapping[str, np.ndarray], *, probe: bool = True) -> Numbers:
    """Return R-AUROC of scores without labels, of a probe with a few of them, and of one with nearly all.

    Args:
        heap: N rows.
        target: which rows are mistaken, shape (N,).
        scores: uncertainties, shape (N,) each.
        probe: measure probes, too.
    """
    found = aurocs(scores, target)
    if not probe:
        return found
    for part in SHARES:
        drawn = [draw(len(target), part, seed) for seed in range(DRAWS)]
        found |= averaged(target, [with_labels(heap, given, part) for given in drawn], drawn)
    return found | aurocs(
        {"probe entropy, labels of the other folds": cross_entropy(heap.embedding, heap.label)}, target
    )


def with_labels(heap: Heap, given: np.ndarray, part: float) -> Scores:
    """Return the uncertainties that the labels of some rows give, of every row."""
    return {f"probe entropy, {part:.0%} labels": probe_entropy(heap.embedding, heap.label, given)}


def averaged(target: np.ndarray, scores: list[Scores], drawn: list[np.ndarray]) -> Numbers:
    """Return R-AUROC on the rows that were not given labels, the mean over draws."""
    each = []
    for found, given in zip(scores, drawn, strict=True):
        rest = np.ones(len(target), bool)
        rest[given] = False
        each.append(aurocs(found, target, rest))
    return {name: average([numbers[name] for numbers in each]) for name in each[0]}
