"""The compared training sets: the subset, all rows, and random rows of the subset's size."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.evaluation.subset.pool import SubsetPool
from scoring.errors import InputError

SUBSET, ALL_ROWS, RANDOM, BY_CLASS = "subset", "whole", "random", "random by class"
MEANS = {
    SUBSET: "the rows of the subset",
    ALL_ROWS: "all rows but those that are tested on",
    RANDOM: "random rows of the whole, as many as the subset has",
    BY_CLASS: "random rows of each class, as many as the subset has",
}
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingSides:
    """Training sets as row numbers of a pool.

    Attributes:
        subset: ascending.
        all_rows: ascending.
        random: R draws of the subset's size from all rows.
        by_class: R draws with the subset's class counts; empty without labels.
    """

    subset: Rows
    all_rows: Rows
    random: Sequence[Rows]
    by_class: Sequence[Rows]


def draw_sides(pool: SubsetPool, *, seeds: int, seed: int) -> TrainingSides:
    """Draw the training sets of a pool, ``seeds`` random ones of each kind.

    Raises:
        InputError: for a subset without trainable rows, of one class, or equal to all rows.
    """
    subset, all_rows = pool.subset, pool.trainable
    if len(subset) == 0:
        raise InputError(
            f"--subset: expected rows to train on, got none of {counted(pool.rows_in_subset, 'row')} that is scored, "
            "labelled and not tested on; keep more, or test on others with --test"
        )
    if len(subset) == len(all_rows):
        raise InputError(
            f"--subset: expected fewer rows than the table has, got all {len(all_rows):,} that can be trained on; "
            "there is nothing to compare"
        )
    labelled = bool(pool.classes)
    if labelled and len(np.unique(pool.label[subset])) < 2:
        raise InputError(
            f"--subset: expected rows of at least two classes, got {counted(len(subset), 'row')} of "
            f"{pool.classes[pool.label[subset[0]]]!r} alone; there is nothing to separate"
        )
    generators = [np.random.default_rng([seed, 1, number]) for number in range(seeds)]
    random = [np.sort(generator.choice(all_rows, len(subset), replace=False)) for generator in generators]
    by_class = [_by_class(pool, seed, number) for number in range(seeds)] if labelled else []
    return TrainingSides(subset, all_rows, random, by_class)


def _by_class(pool: SubsetPool, seed: int, number: int) -> Rows:
    generator, all_rows = np.random.default_rng([seed, 2, number]), pool.trainable
    classes, counts = np.unique(pool.label[pool.subset], return_counts=True)
    drawn = [
        generator.choice(all_rows[pool.label[all_rows] == label], n, replace=False)
        for label, n in zip(classes.tolist(), counts.tolist(), strict=True)
    ]
    return np.sort(np.concatenate(drawn))
