"""Fitting of the dataset-relative score, without labels or with some."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scoring.arrays import Array
from scoring.errors import InputError
from scoring.relative.columns import FITTED, LOCAL, USABLE
from scoring.relative.learn import learn, weighed
from scoring.relative.model import NO_NEAR, DatasetFit, FittedScores, LaidOutRows, laid_out, stored
from scoring.relative.neighbours import EXACT_ROWS
from scoring.relative.propagated import OTHER, KnownLabels, Propagated
from scoring.relative.signals import ALONE
from scoring.relative.space import centred, mean_of
from scoring.relative.unlike import cluster_centres, directions_of, fine_clusters
from scoring.search.kmeans import assign

LINED_UP = 4_096  # maximal rows to cluster; of more, a sample is clustered, and the others are assigned to the nearest
REFERENCES = 20_000  # maximal number of reference rows in a fitted model
LEAST_ROWS = 20  # minimal number of rows


def tournament_ranks(
    local: NDArray[np.floating], fitted: NDArray[np.floating], units: NDArray[np.float32], *, seed: int = 0
) -> NDArray[np.float32]:
    """Return the rank at which each row is dropped, highest first: junk, then the highest ``local`` among similar rows.

    Rows are sorted so that similar ones are adjacent. They are ranked as in a knock-out tournament: the higher of every
    two neighbours wins, then the higher of every two winners, and so on; rows that win the same number of rounds
    alternate along the sequence. So any dropped share is the same in each stretch of the sequence, and contains its
    highest rows.

    Args:
        local: uncertainty among neighbours, shape (N,).
        fitted: fitted score, at most .5 for usable images, higher for junk; shape (N,).
        units: centred rows of length 1, shape (N, D).
        seed: of the sample from more than 4,096 rows.

    Returns:
        Shape (N,): equally spaced in [0, .5] for usable images; ``fitted`` for junk.
    """
    image = np.flatnonzero(~(fitted > USABLE))
    line = image[similarity_order(units[image], seed=seed)]
    order = []
    while len(line) > 1:
        rounds = _rounds_won(local[line])
        turn = _reversed_bits(np.arange(len(line)) >> rounds)
        winners = np.lexsort((turn, -rounds))[: np.count_nonzero(rounds)]
        order.append(line[winners])
        line = line[rounds == 0]
    dropped = np.concatenate([*order, line])
    out = np.array(fitted, np.float32)
    out[dropped] = USABLE * (1 - (np.arange(len(dropped)) + 0.5) / max(len(dropped), 1))
    return out


def similarity_order(units: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.int64]:
    """Return an order of rows (N, D) of unit length with similar ones adjacent: the leaves of Ward's clustering, (N,).

    More than 4,096 rows are sampled by ``seed``. Source: Ward 1963, "Hierarchical grouping to optimize an objective
    function".
    """
    from scipy.cluster.hierarchy import leaves_list, linkage  # type: ignore[import-untyped]

    if len(units) < 3:
        return np.arange(len(units))
    if len(units) <= LINED_UP:
        return np.asarray(leaves_list(linkage(units, "ward")), np.int64)
    drawn = np.sort(np.random.default_rng(seed).permutation(len(units))[:LINED_UP])
    leaves = similarity_order(units[drawn])
    return np.argsort(np.argsort(leaves)[assign(units, units[drawn])[0][:, 0]], kind="stable")


def _rounds_won(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the number of rounds that each of N >= 1 values wins in a knock-out tournament of neighbours, shape (N,).

    The last of an odd number wins its round without an opponent.
    """
    won, left = np.zeros(len(values), np.int64), np.arange(len(values))
    while len(left) > 1:
        pairs = left[: len(left) // 2 * 2].reshape(-1, 2)
        winners = pairs[np.arange(len(pairs)), values[pairs].argmax(1)]
        left = np.concatenate([winners, left[2 * len(pairs) :]])
        won[left] += 1
    return won


def _reversed_bits(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers with their bits reversed, which spreads 0, 1, 2, ... evenly (van der Corput sequence)."""
    out, rest = np.zeros_like(numbers), numbers.copy()
    for _ in range(int(numbers.max()).bit_length()):
        out, rest = 2 * out + rest % 2, rest // 2
    return out


def fit_dataset(
    embeddings: Array,
    junk: Array | None = None,
    *,
    labels: KnownLabels | None = None,
    seed: int = 0,
    most: int = REFERENCES,
) -> tuple[DatasetFit, FittedScores]:
    """Fit a score to a dataset, and apply it to every row of it.

    Up to 100,000 rows, each row is compared with all others. A fit to more than ``most`` rows stores a sample as the
    reference for new rows; beyond 100,000 rows, the dataset is also scored against that sample.

    Args:
        embeddings: shape (N, D), of any length above 0; rounded to float16. Deterministic for the same order.
        junk: log odds of junk, shape (N,), NaN if unknown; None if all are unknown.
        labels: classes of some rows. They are only used if they help on held-out labelled rows; see
            ``FittedScores.learned``.
        seed: of the clusterings, the sample and the folds.
        most: maximal number of stored rows.

    Raises:
        InputError: for fewer than 20 rows, rows that are all copies, or unusable labels.
    """
    rows, bare, kept, drawn = _reference_fit(embeddings, most, labels, seed)
    full = kept if len(drawn) == len(rows) else None
    if full is None and len(rows) <= EXACT_ROWS:
        full = laid_out(centred(rows, bare.mean), bare.centres)
    if labels is None:
        fit = _with_standing(bare, kept, _junk_of(junk, drawn))
        return fit, fit.score(rows, junk) if full is None else _scores_of(bare, full, junk, seed)
    return _with_labels(bare, rows, junk, (drawn, kept, full), labels, seed)


def fit_alone(embeddings: Array, junk: Array | None = None, *, seed: int = 0) -> DatasetFit:
    """Return the fit that ``fit_dataset`` computes without labels, without scoring the rows; InputError as there."""
    _, bare, kept, drawn = _reference_fit(embeddings, REFERENCES, None, seed)
    return _with_standing(bare, kept, _junk_of(junk, drawn))


def _reference_fit(
    embeddings: Array, most: int, labels: KnownLabels | None, seed: int
) -> tuple[NDArray[np.float16], DatasetFit, LaidOutRows, NDArray[np.int64]]:
    """Return rows as stored, a fit without quantiles, the reference rows as a search index, and their indices."""
    if len(embeddings) < LEAST_ROWS:
        raise InputError(
            f"expected at least {LEAST_ROWS} different images with an embedding to fit a score to, got "
            f"{len(embeddings):,}; score more images, or use the model's own columns"
        )
    rows = stored(embeddings)
    drawn = _sampled_rows(len(rows), most, labels, seed)
    mean = mean_of(rows)
    directions = centred(rows[drawn], mean)
    centres = cluster_centres(directions.units, seed=seed)
    kept = laid_out(directions, centres)
    if kept.signals["distance"].min() >= ALONE:
        raise InputError(f"expected images that differ, got {len(rows):,} copies of one image; curate dedup keeps one")
    clusters = fine_clusters(directions.units, seed=seed)
    bare = DatasetFit(mean, rows[drawn], centres, {}, kept.closest, clusters, directions_of([], len(mean)))
    return rows, bare, kept, drawn


def _junk_of(junk: Array | None, rows: NDArray[np.int64]) -> Array | None:
    return None if junk is None else junk[rows]


def _with_standing(bare: DatasetFit, kept: LaidOutRows, junk: Array | None) -> DatasetFit:
    """Return the fit with the ranks and the ``RowStanding`` of its references."""
    fit = bare.with_quantiles(kept.signals)
    return replace(fit, standing=fit.columns_of(kept.rows, kept.signals, junk, kept.near)[1])


def _sampled_rows(n: int, most: int, labels: KnownLabels | None, seed: int) -> NDArray[np.int64]:
    """Return the indices of the rows to store, ascending: all, or a sample of which up to half is labelled."""
    if n <= most:
        return np.arange(n)
    order = np.random.default_rng(seed).permutation(n)
    if labels is not None:
        known = np.isin(order, labels.rows)
        first = np.flatnonzero(known)[: most // 2]
        order = np.concatenate([order[first], np.delete(order, first)])
    return np.sort(order[:most])


def _scores_of(bare: DatasetFit, full: LaidOutRows, junk: Array | None, seed: int) -> FittedScores:
    """Return the scores of the dataset's rows: their ranks, and the order in which ``--keep-top`` drops them."""
    fit = bare.with_quantiles(full.signals)
    columns = fit.columns_of(full.rows, full.signals, junk, full.near)[0]
    columns[LOCAL] = tournament_ranks(columns[LOCAL], columns[FITTED], full.rows.units, seed=seed)
    return fit.with_recall(columns, full.near.recall)


def _with_labels(
    bare: DatasetFit,
    rows: NDArray[np.float16],
    junk: Array | None,
    laid: tuple[NDArray[np.int64], LaidOutRows, LaidOutRows | None],
    labels: KnownLabels,
    seed: int,
) -> tuple[DatasetFit, FittedScores]:
    """Learn from labels on the whole dataset, or on the reference rows if it is too large."""
    drawn, kept, full = laid
    on, known = (kept, labels.among(drawn)) if full is None else (full, labels)
    lesson = learn(on, known, seed=seed)
    learned, weights = weighed(bare, on, lesson, known, seed=seed)
    if not learned.better:
        fit = _with_standing(bare, kept, _junk_of(junk, drawn))
        scores = fit.score(rows, junk) if full is None else _scores_of(bare, full, junk, seed)
        return fit, replace(scores, learned=learned)
    inside = slice(None) if full is None else drawn
    propagated = Propagated(labels.classes, lesson.class_means, lesson.probabilities[inside].astype(np.float16))
    other = lesson.other if full is None or full is kept else propagated.other_class(kept.rows.units, kept.near)
    bare = replace(bare, propagated=propagated, weights=weights)
    fit = _with_standing(bare, replace(kept, signals={**kept.signals, OTHER: other}), _junk_of(junk, drawn))
    if full is None:
        scores = fit.score(rows, junk)
    else:
        scores = _scores_of(bare, replace(full, signals={**full.signals, OTHER: lesson.other}), junk, seed)
    return fit, replace(scores, learned=learned)


def column_of(embeddings: Array, column: str) -> dict[str, NDArray[np.float32]]:
    """Return one column of a dataset, each row compared with all others; zeros for fewer than two rows.

    Args:
        embeddings: shape (N, D); above 100,000 rows the neighbours are found approximately (inverted file).
        column: ``unc_neighbour`` or ``unc_ambiguous``.
    """
    if len(embeddings) < 2:
        return {column: np.zeros(len(embeddings), np.float32)}
    rows = stored(embeddings)
    mean = mean_of(rows)
    directions = centred(rows, mean)
    centres = cluster_centres(directions.units)
    full = laid_out(directions, centres)
    fit = DatasetFit(mean, rows[:0], centres, {}, NO_NEAR).with_quantiles(full.signals)
    return {column: fit.columns_of(full.rows, full.signals, None, full.near)[0][column]}
