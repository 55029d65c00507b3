"""Labels to learn from: a column of the table, a file of keys and classes, or what came back to a folder of rounds."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from curate.columns import LABEL
from curate.probes.chances import codes_of
from curate.rounds.files.folder import open_folder
from curate.rounds.files.settings import CONFIG
from curate.rounds.files.votes import label_table
from curate.tables.heap import Heap
from curate.tables.known import Known, known, read_known, refuse_strangers
from curate.tables.needs import Needs, is_plain
from curate.tables.rows import Codes, read_rows
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.heap.learn import check_labels
from scoring.heap.taught import Labels


@dataclass(frozen=True)
class Given:
    """What labels were given.

    Attributes:
        labels: of rows of the heap; None without.
        source: where they are from, and their digest, as plain JSON.
    """

    labels: Labels | None = None
    source: dict[str, Any] = field(default_factory=dict)


def given_labels(heap: Heap, table: Table, label: str | None, labelled: str | Path | None) -> Given:
    """Return the labels that a fit learns from; see ``read_given``.

    Raises:
        InputError: for keys that the table lacks, or labels that teach nothing; see ``check_labels``.
    """
    given = read_given(heap, table, label, labelled)
    if given.labels is not None:
        check_labels(given.labels)
    return given


def read_given(heap: Heap, table: Table, label: str | None, labelled: str | Path | None) -> Given:
    """Return the labels of rows of a heap, many or few.

    Args:
        heap: read with the column ``label``, where that is one of the table.
        table: that it is of.
        label: column of classes, in ``labelled`` where that is given.
        labelled: file of keys and classes, or a folder of rounds.

    Raises:
        InputError: for keys that the table lacks, or a file that cannot be used.
    """
    if label is None and labelled is None:
        return Given()
    if labelled is None:
        return Given(labels_in(heap, heap.rows.names[str(label)]), {"column": label})
    read = _read(labelled, label)
    rows = read.rows(heap.rows)
    refuse_strangers(read, rows, str(table.path))
    numbers, classes = codes_of(read.labels or [])
    found = _labels(heap, rows, numbers, classes)
    return Given(found, {"path": str(Path(labelled).resolve()), "column": label, "digest": read.digest})


def _read(path: str | Path, label: str | None) -> Known:
    if (Path(path) / CONFIG).is_file():
        folder = open_folder(path)
        folder.check()
        back = label_table(folder.votes, folder.asked, folder.arms)
        return known(str(path), back["key"].to_pylist(), back["label"].to_pylist())
    read = read_known(path, label)
    if read.labels is None:
        raise InputError(f"{path} has no column {label or LABEL!r} of classes; name it with --label")
    return read


def classes_in(heap: Heap, table: Table) -> Codes | None:
    """Return the classes of all rows: those that the heap was read with, else those of a column ``label``, or None."""
    if heap.rows.names:
        return next(iter(heap.rows.names.values()))
    if LABEL not in table.schema.names or not is_plain(table.schema.field(LABEL).type):
        return None
    codes = read_rows(table, Needs(names=(LABEL,), keys=False)).names[LABEL]
    return Codes(codes.codes[heap.rows.place], codes.names)


def labels_in(heap: Heap, codes: Codes) -> Labels:
    """Return the classes of rows of the heap as labels."""
    return _labels(heap, np.arange(len(heap.rows)), codes.codes.astype(np.int64), tuple(codes.names))


def _labels(heap: Heap, rows: np.ndarray, codes: np.ndarray, classes: tuple[str, ...]) -> Labels:
    """Return the labels of rows of the table that have a class and an embedding; of copies the first that has one."""
    usable = (codes >= 0) & np.isin(rows, heap.at)
    place, first = np.unique(heap.copies.place[np.searchsorted(heap.at, rows[usable])], return_index=True)
    present, numbers = np.unique(codes[usable][first], return_inverse=True)
    return Labels(place, numbers.astype(np.int64), tuple(classes[code] for code in present.tolist()))
