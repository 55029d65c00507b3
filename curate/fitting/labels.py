"""Labels to learn from: a column of the table, a file of keys and classes, or a folder of rounds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.columns import LABEL
from curate.probes.probabilities import codes_of
from curate.rounds.files.folder import open_folder
from curate.rounds.files.settings import CONFIG
from curate.rounds.files.votes import label_table
from curate.tables.dataset import Dataset
from curate.tables.known import Known, known, read_known, refuse_unknown_keys
from curate.tables.needs import Needs, is_plain
from curate.tables.rows import Codes, read_rows
from curate.tables.spelling import spelled_as
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.relative.learn import check_labels
from scoring.relative.propagated import KnownLabels


@dataclass(frozen=True)
class LabelSource:
    """Labels of rows, and their source.

    Attributes:
        labels: of rows of the dataset; None without.
        source: their origin and digest, as JSON values.
        note: for the user; may be empty.
    """

    labels: KnownLabels | None = None
    source: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def labels_to_learn(dataset: Dataset, table: Table, label: str | None, labelled: str | Path | None) -> LabelSource:
    """Return the labels that a fit learns from; see ``label_source``.

    Raises:
        InputError: for keys that the table lacks, or unusable labels; see ``check_labels``.
    """
    source = label_source(dataset, table, label, labelled)
    if source.labels is not None:
        check_labels(source.labels)
    return source


def label_source(dataset: Dataset, table: Table, label: str | None, labelled: str | Path | None) -> LabelSource:
    """Return the labels of all or some rows of a dataset.

    Args:
        dataset: read with the column ``label``, if it is in the table.
        table: of the dataset.
        label: class column, in ``labelled`` if given.
        labelled: file of keys and classes, or a folder of rounds.

    Raises:
        InputError: for keys that the table lacks, or a file that cannot be used.
    """
    if label is None and labelled is None:
        return LabelSource()
    if labelled is None:
        return LabelSource(labels_in(dataset, dataset.rows.names[str(label)]), {"column": label})
    read = spelled_as(_read(labelled, label), table)
    rows = read.rows(dataset.rows)
    refuse_unknown_keys(read, rows, str(table.path))
    numbers, classes = codes_of(read.labels or [])
    labels = _labels(dataset, rows, numbers, classes)
    return LabelSource(
        labels, {"path": str(Path(labelled).resolve()), "column": label, "digest": read.digest}, read.note
    )


def _read(path: str | Path, label: str | None) -> Known:
    if (Path(path) / CONFIG).is_file():
        folder = open_folder(path)
        folder.check()
        back = label_table(folder.votes, folder.requested, folder.arms)
        return known(str(path), back["key"].to_pylist(), back["label"].to_pylist())
    read = read_known(path, label)
    if read.labels is None:
        raise InputError(f"{path} has no column {label or LABEL!r} of classes; choose one with --label")
    return read


def classes_in(dataset: Dataset, table: Table) -> Codes | None:
    """Return the classes of all rows: from the dataset, else from a column ``label``, or None."""
    if dataset.rows.names:
        return next(iter(dataset.rows.names.values()))
    if LABEL not in table.schema.names or not is_plain(table.schema.field(LABEL).type):
        return None
    codes = read_rows(table, Needs(names=(LABEL,), keys=False)).names[LABEL]
    return Codes(codes.codes[dataset.rows.place], codes.names)


def labels_in(dataset: Dataset, codes: Codes) -> KnownLabels:
    """Return the classes of the dataset's rows as labels."""
    return _labels(dataset, np.arange(len(dataset.rows)), codes.codes.astype(np.int64), tuple(codes.names))


def _labels(dataset: Dataset, rows: np.ndarray, codes: np.ndarray, classes: tuple[str, ...]) -> KnownLabels:
    """Return the labels of rows with a class and an embedding; of copies, only the first."""
    usable = (codes >= 0) & np.isin(rows, dataset.at)
    place, first = np.unique(dataset.copies.place[np.searchsorted(dataset.at, rows[usable])], return_index=True)
    present, numbers = np.unique(codes[usable][first], return_inverse=True)
    return KnownLabels(place, numbers.astype(np.int64), tuple(classes[code] for code in present.tolist()))
