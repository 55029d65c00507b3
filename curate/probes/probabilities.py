"""Class probabilities of every row, by a probe fitted on the labels so far."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.counted import counted
from curate.selectors.contract import Pool
from curate.tables.rows import Codes
from scoring.arrays import zeros_or_memmap

BLOCK = 65_536


@dataclass(frozen=True)
class Labelled:
    """The labels so far.

    Attributes:
        rows: indices into ``Rows``, shape (L,) int64, each once.
        codes: class of each, shape (L,) int64; -1 if unknown.
        classes: names of the classes.
    """

    rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    codes: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    classes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.codes):
            object.__setattr__(self, "codes", np.full(len(self.rows), -1, np.int64))
        if len(self.codes) != len(self.rows) or (len(self.codes) and self.codes.max() >= len(self.classes)):
            raise ValueError(f"{len(self.rows)} rows, {len(self.codes)} codes of {len(self.classes)} classes")

    def __len__(self) -> int:
        return len(self.rows)

    def among(self, rows: NDArray[np.int64]) -> "Labelled":
        """Return the labels of the given rows only."""
        inside = np.isin(self.rows, rows)
        return Labelled(self.rows[inside], self.codes[inside], self.classes)

    def counts(self) -> dict[str, int]:
        """Return the number of rows of each class, including 0; all rows must have a class."""
        counts = np.bincount(self.codes, minlength=len(self.classes))
        return dict(zip(self.classes, counts.tolist(), strict=True))

    def joined(self, column: Codes) -> tuple["Labelled", NDArray[np.int64]]:
        """Return the labels extended by the classes in a column, and the class of every row.

        Args:
            column: classes of the table's rows, shape (N,).

        Returns:
            the labelled rows, and codes, shape (N,): the known label if there is one, else the column's; -1 for none.
        """
        classes = tuple(sorted({*self.classes, *column.names}))
        codes = codes_among(classes, self.classes, self.codes)
        all_codes = codes_among(classes, column.names, column.codes)
        all_codes[self.rows[codes >= 0]] = codes[codes >= 0]
        return Labelled(self.rows, codes, classes), all_codes


def with_probabilities(pool: Pool, labelled: Labelled, *, seed: int) -> tuple[Pool, dict[str, Any]]:
    """Return the pool with the probe's predictions for every row, and facts about the model.

    Args:
        pool: with vectors; returned unchanged, without a model, if no labelled row has a known class.
        labelled: with the names of the classes.
        seed: of the folds.
    """
    from curate.probes.linear import fit_linear_probe, spread_of

    if pool.vectors is None or pool.labels is None:
        return pool, {}
    propagated = np.flatnonzero(pool.labels >= 0)
    if not len(propagated):
        return pool, {}
    everything, n_classes = pool.vectors, len(labelled.classes)
    vectors, codes, spread = everything[propagated], pool.labels[propagated], spread_of(everything)
    counts = np.bincount(codes, minlength=n_classes)
    facts: dict[str, Any] = {"kind": "linear probe", "rows": len(propagated), "classes": n_classes}
    facts["without_rows"] = [labelled.classes[code] for code in np.flatnonzero(counts == 0).tolist()]
    probe = fit_linear_probe(vectors, codes, n_classes, spread=spread, seed=seed)
    facts["temperature"] = probe.temperature
    probabilities = zeros_or_memmap((len(everything), n_classes), np.dtype(np.float32))
    for start in range(0, len(probabilities), BLOCK):
        probabilities[start : start + BLOCK] = probe.predict(everything[start : start + BLOCK])
    return replace(pool, probabilities=probabilities), facts


def model_notes(model: dict[str, Any], labelled: Labelled) -> list[str]:
    """Return notes on the probe, or on why there is none."""
    if not model:
        if labelled.classes or not len(labelled.rows):
            return []
        return ["the labelled rows have no classes, so they only count for diversity; choose their column with --label"]
    text = f"probe: {counted(model['rows'], 'labelled row')} of {counted(model['classes'], 'class', 'classes')}"
    notes = [text + (f", temperature {model['temperature']:.3g}" if model["temperature"] != 1 else "")]
    if model["classes"] == 1:
        notes.append("all labelled rows are of one class: uncertainty cannot be measured yet")
    return notes


def codes_among(classes: Sequence[str], names: Sequence[str], codes: NDArray[np.integer]) -> NDArray[np.int64]:
    """Return codes of ``names``, any shape, as codes of the given classes; -1 stays -1."""
    place = {name: code for code, name in enumerate(classes)}
    return np.asarray(np.array([*(place.get(name, -1) for name in names), -1], np.int64)[codes])


def codes_of(labels: Sequence[str | None]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the code of each label, -1 for None, and the classes in sorted order.

    >>> codes_of(["b", None, "a", "b"])
    (array([ 1, -1,  0,  1]), ('a', 'b'))
    """
    classes = tuple(sorted({label for label in labels if label is not None}))
    place = {name: code for code, name in enumerate(classes)}
    return np.array([-1 if label is None else place[label] for label in labels], np.int64), classes
