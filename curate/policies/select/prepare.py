"""The pool of a strategy, from the rows and labels of a table."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.select.request import SelectRequest
from curate.probes.probabilities import Labelled, model_notes, with_probabilities
from curate.selectors.contract import HOW_TO_GET, Pool
from curate.selectors.ranked import rank_share
from curate.tables.needs import Signals
from curate.tables.rows import NO_NUMBER, Codes, Rows
from curate.tables.vectors import EMBEDDING_PROBLEMS, rows_of
from scoring.arrays import Ints, Mask
from scoring.errors import InputError

HOW_TO_LABEL = (
    "needs the classes of some labelled rows, got {}; pass them with --labelled FILE (columns key "
    "and label) or with --labelled-where CONDITION and --label COLUMN, or use --strategy auto, which needs none"
)


@dataclass(frozen=True)
class Ready:
    """A pool, and the table rows it consists of.

    Attributes:
        pool: rows in the order of ``Rows``.
        table_row: index into ``Rows`` of each row of the pool, shape (M,) int64.
        groups: of the pool's rows, or None.
        classes: names of the classes of the pool's labels and probabilities.
        reasons: why some rows are undecided.
        why: index of the reason of each row of ``Rows``, shape (N,) int8; -1 for none.
        model: facts on the probe, as plain JSON; empty without one.
        notes: notes for the user.
    """

    pool: Pool
    table_row: Ints
    groups: Codes | None
    classes: tuple[str, ...]
    reasons: tuple[str, ...]
    why: NDArray[np.int8]
    model: dict[str, Any]
    notes: tuple[str, ...]


def prepare(
    rows: Rows,
    request: SelectRequest,
    labelled: Labelled | None = None,
    *,
    excluded: Mask | None = None,
    signals: Signals | None = None,
    class_column: str | None = None,
) -> Ready:
    """Build the pool of a selection, with class probabilities if the strategy needs them.

    Rows that were not scored are not in the pool, nor are rows without a usable embedding if embeddings are used. Rows
    with a missing value in a used column are in the pool, but are no candidates.

    Args:
        rows: with all columns that the request needs.
        request: strategy and budget.
        labelled: the labels so far.
        excluded: rows that may not be picked, shape (N,) bool.
        signals: columns of score and quality.
        class_column: column with classes of all rows, for strategies that need them.

    Raises:
        InputError: if the strategy needs missing labels or a missing column.
    """
    labelled, signals = labelled or Labelled(), signals or Signals()
    excluded = np.zeros(len(rows), bool) if excluded is None else excluded
    selector, by_vectors = request.selector(), request.needs_vectors(signals)
    why, reasons = _undecided(rows, request.strategy, signals, by_vectors)
    inside = rows.ok & (rows.embedding_problem == 0) if by_vectors else rows.ok
    at = np.flatnonzero(inside)
    open_rows = inside & (why < 0) & ~excluded
    open_rows[labelled.rows] = False
    place = np.cumsum(inside) - 1  # row of the pool of each row inside
    notes: list[str] = []
    codes = np.full(len(rows), -1, np.int64)
    codes[labelled.rows] = labelled.codes
    if class_column is not None:
        labelled, codes = labelled.joined(rows.names[class_column])
        notes += _without_class(class_column, codes[open_rows], last="holdout_loss" in selector.needs)
    pool = Pool(
        candidates=place[open_rows],
        labelled=np.sort(place[labelled.rows[inside[labelled.rows]]]),
        vectors=_inside(rows, at) if by_vectors else None,
        labels=codes[at] if labelled.classes else None,
        **_numbers(rows, signals, at),
    )
    judged = class_column if request.derives_losses(signals) else None
    pool, model, of_model = _modelled(pool, labelled, request, judged, excluded[at])
    values = np.zeros(0) if pool.uncertainty is None else pool.uncertainty[pool.candidates]
    notes += of_model
    if signals.score is not None and len(values) > 1 and values.min() == values.max():
        notes.append(
            f"{signals.score.column} is the same for all {len(values):,} candidates: a hash of the key ranks them; "
            "choose another column with --score"
        )
    for need in selector.needs:
        if getattr(pool, need) is None:
            raise InputError(_missing(request.strategy, need, labelled))
    return Ready(pool, at, _groups(rows, request.group, at), labelled.classes, reasons, why, model, tuple(notes))


def _modelled(
    pool: Pool, labelled: Labelled, request: SelectRequest, judged: str | None, excluded: Mask
) -> tuple[Pool, dict[str, Any], list[str]]:
    """Return the pool with the probe's predictions, if the strategy needs them; facts on the probe; and notes.

    Args:
        pool: the rows.
        labelled: the labels so far, and the names of the classes.
        request: strategy and budget.
        judged: column of classes for out-of-fold losses; or None.
        excluded: rows of the pool that are not trained on for losses, shape (M,) bool.
    """
    selector = request.selector()
    needed = "probabilities" in selector.needs
    if judged is not None and pool.labels is not None:
        from curate.probes.out_of_fold import with_label_losses

        return with_label_losses(pool, labelled, judged, excluded)
    if pool.vectors is None or not (needed or "probabilities" in selector.optional):
        return pool, {}, []
    pool, model = with_probabilities(pool, labelled, seed=request.seed)
    if needed and not model:
        raise InputError(_missing(request.strategy, "labels", labelled))
    return pool, model, model_notes(model, labelled)


def _groups(rows: Rows, name: str | None, at: Ints) -> Codes | None:
    """Return the groups of the pool's rows by a column, if any; rows without a value form a separate group."""
    if not name:
        return None
    column = rows.names[name]
    return Codes(np.where(column.codes < 0, len(column.names), column.codes)[at], [*column.names, "(no value)"])


def _without_class(column: str, codes: Ints, *, last: bool) -> list[str]:
    """Return a note on candidates without a class in a column, which are picked ``last``, or form a separate class.

    Raises InputError if none has a class, since picks would be random.
    """
    without = int((codes < 0).sum())
    if len(codes) and without == len(codes):
        raise InputError(
            f"expected classes in column {column!r}, got none in the {without:,} rows that may be picked; "
            "choose another with --label, or use --strategy random"
        )
    if not without:
        return []
    then = "are picked last" if last else "count as their own class"
    return [f"{without:,} of {counted(len(codes), 'candidate')} without {column}, which {then}"]


def _missing(strategy: str, need: str, labelled: Labelled) -> str:
    flags = {
        "uncertainty": "--score COLUMN, such as unc_losspred, or max:COLUMN or min:COLUMN for any column of numbers",
        "quality": "--quality COLUMN, such as unc_losspred",
        "holdout_loss": "--holdout-loss COLUMN",
    }
    if need in ("labels", "probabilities"):
        got = f"{counted(len(labelled.rows), 'row')} without a class" if len(labelled.rows) else "none"
        return f"the strategy {strategy} {HOW_TO_LABEL.format(got)}"
    return f"the strategy {strategy} needs {flags.get(need, HOW_TO_GET[need])}"


def _undecided(
    rows: Rows, strategy: str, signals: Signals, by_vectors: bool
) -> tuple[NDArray[np.int8], tuple[str, ...]]:
    """Return the index of the reason why each row is undecided, -1 for none, and the reasons."""
    lacking: dict[str, Mask] = {}
    if by_vectors:
        problems = enumerate(EMBEDDING_PROBLEMS, 1)
        lacking = {f"has {what}, which {strategy} uses": rows.embedding_problem == n for n, what in problems}
    lacking |= {f"{name} has {NO_NUMBER}": ~np.isfinite(rows.numbers[name]) for name in signals.columns}
    return np.where(rows.ok, rows.first_lacking(lacking), np.int8(-1)), tuple(lacking)


def _inside(rows: Rows, at: Ints) -> NDArray[np.floating]:
    """Return the vectors of the pool: all of them, or the usable ones, compacted in place by blocks."""
    if rows.embedding is None or not len(rows):
        raise InputError("expected a table with rows, got one without any; score some images first")
    return rows_of(rows.embedding, at)


def _numbers(rows: Rows, signals: Signals, at: Ints) -> dict[str, Any]:
    """Return the pool's fields from columns; rows that are not candidates get 0, or a median quality."""
    fields: dict[str, Any] = {}
    if signals.score:
        values = signals.score.sign * rows.numbers[signals.score.column][at]
        fields["uncertainty"] = np.where(np.isfinite(values), values, 0.0)
    if signals.quality:
        values = signals.quality.sign * rows.numbers[signals.quality.column][at]
        quality = np.full(len(at), 0.5, np.float32)
        known = np.isfinite(values)
        quality[known] = rank_share(values[known])
        fields["quality"] = quality
    if signals.holdout_loss:
        values = rows.numbers[signals.holdout_loss][at]
        fields["holdout_loss"] = np.where(np.isfinite(values), values, 0.0).astype(np.float32)
    return fields
