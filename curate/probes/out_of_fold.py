"""Out-of-fold losses of each row's label, for the strategy ``small-loss``."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from curate.counted import counted
from curate.probes.linear import fit_linear_probe, spread_of
from curate.probes.probabilities import Labelled
from curate.selectors.contract import Pool
from curate.tables.vectors import vector_hashes
from scoring.arrays import Array
from scoring.errors import InputError
from scoring.metrics.classifier import spread_folds

FOLDS = 5
MOST_ROWS = 20_000  # maximal training rows of a model; more change little
MOST_CLASSES = 10_000
MOST_WEIGHTS = 2_500_000  # classes times numbers of an embedding: a fit holds up to 1.6 kB for each
TOLERANCE = 1e-4  # tolerance of the fit: a tenth takes twice as long and finds no more wrong labels
BLOCK_NUMBERS = 4_000_000  # probabilities held at a time
LEAST = float(np.finfo(np.float32).tiny)  # probability of a label that cannot be determined
N_NAMED = 3


def with_label_losses(
    pool: Pool, labelled: Labelled, column: str, excluded: NDArray[np.bool_]
) -> tuple[Pool, dict[str, Any], list[str]]:
    """Return the pool with the loss of each row's label under a probe fitted on other rows.

    Rows are split into ``FOLDS`` folds, stratified by class, rows with equal embeddings together; each fold is
    predicted by a linear probe on at most ``MOST_ROWS`` rows of the others, with some of every class. The rows of a
    pool are sorted by the hashes of their keys, so results do not depend on the order of the table.

    Args:
        pool: with vectors and labels; labelled rows are trained on too.
        labelled: with the names of the classes.
        column: name of the class column, for messages.
        excluded: rows that are not trained on, such as a test set, shape (N,) bool.

    Returns:
        the pool; facts on the models, as plain JSON; and notes. A row without a class, or the only one of its class,
        gets the largest possible loss, -log of the smallest float32.

    Raises:
        InputError: for fewer than two classes, too many, or no class with two rows.
    """
    if pool.vectors is None or pool.labels is None:
        raise ValueError("losses out of fold need vectors and labels")
    loss = np.full(len(pool.labels), -np.log(LEAST), np.float32)
    if not len(pool.candidates):
        return replace(pool, holdout_loss=loss), {}, []
    rows = np.flatnonzero((pool.labels >= 0) & ~excluded)
    names, codes = np.unique(pool.labels[rows], return_inverse=True)
    _refuse(len(rows), [labelled.classes[code] for code in names.tolist()], pool.vectors.shape[1], column)
    fold = _folds(pool.vectors, rows, codes)
    chance, likeliest = _judge(pool.vectors, rows, codes, fold, len(names))
    loss[rows] = -np.log(np.maximum(chance, LEAST))
    judged = chance >= 0
    if not judged.any():
        raise InputError(
            f"expected two different images of a class in column {column!r}, got {counted(len(rows), 'row')} of "
            f"{len(names):,} classes without; choose another with --label, or pass losses with --holdout-loss COLUMN"
        )
    other = int((likeliest[judged] != codes[judged]).sum())
    facts = {
        "kind": "linear probe, out of fold",
        "folds": FOLDS,
        "rows": int(judged.sum()),
        "classes": len(names),
        "says_otherwise": other,
        "not_judged": int((~judged).sum()),
    }
    alone = [labelled.classes[code] for code in names[np.unique(codes[~judged])].tolist()]
    return replace(pool, holdout_loss=loss), facts, _notes(facts, column, alone)


def _refuse(n: int, classes: list[str], width: int, column: str) -> None:
    instead = "choose another with --label, or pass losses with --holdout-loss COLUMN"
    if len(classes) < 2:
        got = f"{_named(classes[0])} alone in {counted(n, 'row')}" if classes else "none"
        raise InputError(f"expected rows of at least two classes in column {column!r}, got {got}; {instead}")
    most = min(MOST_CLASSES, MOST_WEIGHTS // width)
    if len(classes) > most:
        raise InputError(
            f"expected at most {most:,} classes in column {column!r}, for embeddings of {width:,} numbers, got "
            f"{len(classes):,} in {counted(n, 'row')}; {instead}"
        )


def _folds(vectors: Array, rows: NDArray[np.int64], codes: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return the fold of each row; rows with equal embeddings share one, since they would confirm each other."""
    _, same = np.unique(vector_hashes(vectors)[rows], return_inverse=True)
    target = torch.from_numpy(codes.astype(np.int64))
    return np.asarray(spread_folds(target, FOLDS, seed=0, groups=torch.from_numpy(same.astype(np.int64))))


def _judge(
    vectors: Array, rows: NDArray[np.int64], codes: NDArray[np.intp], fold: NDArray[np.int64], n_classes: int
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the probability of each row's label (-1 if its model never saw the class), and the most likely class."""
    chance, likeliest = np.full(len(rows), -1, np.float32), np.full(len(rows), -1)
    spread = spread_of(vectors)
    for number in range(FOLDS):
        others, held = _drawn(codes, fold != number), np.flatnonzero(fold == number)
        held = held[np.isin(codes[held], codes[others])]
        if not len(held):
            continue
        known = codes[others].astype(np.int64)
        probe = fit_linear_probe(
            vectors[rows[others]], known, n_classes, spread=spread, calibrate=False, tolerance=TOLERANCE
        )
        size = max(1, BLOCK_NUMBERS // max(n_classes, vectors.shape[1]))
        for start in range(0, len(held), size):
            at = held[start : start + size]
            predicted = probe.predict(vectors[rows[at]])
            chance[at], likeliest[at] = predicted[np.arange(len(at)), codes[at]], predicted.argmax(1)
    return chance, likeliest


def _drawn(codes: NDArray[np.intp], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return at most ``MOST_ROWS`` training rows, ascending: the first of each class, then the first overall.

    Rows are sorted by a hash, so the first ones are a random sample.
    """
    rows = np.flatnonzero(inside)
    if len(rows) <= MOST_ROWS:
        return rows
    first = np.unique(codes[rows], return_index=True)[1]
    rest = np.setdiff1d(np.arange(len(rows)), first, assume_unique=True)
    return np.asarray(rows[np.sort(np.concatenate([first, rest])[:MOST_ROWS])])


def _notes(facts: dict[str, Any], column: str, alone: list[str]) -> list[str]:
    n, other = facts["rows"], facts["says_otherwise"]
    notes = [
        (
            f"{FOLDS} probes, each applied to rows that it was not fitted on, agree with {column!r} on "
            f"{(n - other) / n:.1%} of {counted(n, 'row')} and disagree on {other:,}"
        )
    ]
    if alone:
        named = ", ".join(map(_named, alone[:N_NAMED])) + (", ..." if len(alone) > N_NAMED else "")
        rows = counted(facts["not_judged"], "row has", "rows have")
        notes.append(f"{rows} the largest loss, because their class has no other image: {named}")
    return notes


def _named(name: str) -> str:
    """Return a class name for messages, shortened to one line."""
    return repr(name[:40])
