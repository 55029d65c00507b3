"""Votes for classes by key, of one annotator or many: a file of keys and labels, or what came back to rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, LABEL
from curate.tables.digests import RowDigest, tie_breaks
from curate.tables.known import Known, known, read_columns, refuse_unknown_keys
from curate.tables.rows import Rows
from scoring.errors import InputError
from scoring.lookup import Lazy, name_list

ANNOTATOR = "annotator"
NOBODY = ""  # who votes where a file does not say
MOST_VOTES = 1_000  # of one row

Vote = tuple[str, str, str]  # key, annotator, class
# To read the votes of another kind of folder, add a line: the file by which it is known, and what reads it.
WHERE: dict[str, str] = {"round.json": "curate.rounds.labels:votes_in"}
FOLDERS: Mapping[str, Callable[[Path], list[Vote]]] = Lazy(WHERE)


@dataclass(frozen=True)
class Votes:
    """M votes, each of an annotator for a class of a key.

    Attributes:
        known: the keys that have votes, each once.
        place: which of them each vote is for, ascending, shape (M,).
        who: a place in ``annotators``, shape (M,).
        code: a place in ``classes``, shape (M,).
        annotators: names, in their own order.
        classes: names, in their own order.
        digest: of all votes, whatever their order.
    """

    known: Known
    place: NDArray[np.int64]
    who: NDArray[np.int64]
    code: NDArray[np.int64]
    annotators: list[str]
    classes: list[str]
    digest: str

    def of(self, rows: Rows, table: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the classes that each row got, and by whom, shape (N, V) each: as many as the most of one row.

        Both are -1, and 0, where a row has fewer votes.

        Args:
            rows: N, in the order of the hashes of their keys.
            table: whose rows they are, for messages.

        Raises:
            InputError: for keys that the table lacks.
        """
        row = self.known.rows(rows)
        refuse_unknown_keys(self.known, row, table)
        count = np.bincount(self.place, minlength=len(row))
        slot = np.arange(len(self.place)) - np.repeat(np.cumsum(count) - count, count)
        shape = len(rows), max(1, int(count.max(initial=0)))
        classes, who = np.full(shape, -1), np.zeros(shape, np.int64)
        classes[row[self.place], slot], who[row[self.place], slot] = self.code, self.who
        return classes, who


def read_votes(path: str | Path, label: str | None = None) -> Votes:
    """Read a folder of rounds, or a CSV, TSV, JSON lines or Parquet file of keys, labels and perhaps annotators.

    Args:
        path: a file has the columns ``key`` and ``label``, and may have ``annotator``; a vote without a label is not
            one.
        label: column of labels of a file; None for ``label``.

    Raises:
        InputError: if the file or a column is missing or cannot be read, one annotator says two things of a key, or
            there is no vote at all.
    """
    path = Path(path)
    votes = next((read(path) for name, read in FOLDERS.items() if (path / name).is_file()), None)
    votes = _of_file(path, label) if votes is None else votes
    if not votes:
        raise InputError(f"expected labels in {path}, got none on any key; name another file with --labelled")
    votes = sorted(votes)
    keys = known(str(path), [key for key, _, _ in votes])
    counts = np.bincount(_codes([key for key, _, _ in votes])[0])
    if counts.max() > MOST_VOTES:
        raise InputError(
            f"expected at most {MOST_VOTES:,} labels a key in {path}, got {counts.max():,}; leave some out"
        )
    who, annotators = _codes([who for _, who, _ in votes])
    code, classes = _codes([label for _, _, label in votes])
    return Votes(keys, np.repeat(np.arange(len(counts)), counts), who, code, annotators, classes, _digest(votes))


def _of_file(path: Path, label: str | None) -> list[Vote]:
    column = label or LABEL
    keys, columns = read_columns(path, [column, ANNOTATOR])
    if column not in columns:
        raise InputError(
            f"{path} has no column {column!r} of classes (columns: {name_list(columns)}); name it with --label"
        )
    said: dict[tuple[str, str], str] = {}
    texts = [key.decode("utf-8", "surrogateescape") for key in keys]
    for key, who, name in zip(texts, columns.get(ANNOTATOR) or [None] * len(keys), columns[column] or (), strict=True):
        if name is not None and said.setdefault((key, who or NOBODY), name) != name:
            of, first = f"{key!r}{f' by {who!r}' if who else ''}", said[key, who or NOBODY]
            raise InputError(
                f"expected one label a key and annotator in {path}, got {first!r} and {name!r} for {of}; decide for "
                f"one, or name who said it in a column {ANNOTATOR!r}"
            )
    return [(key, who, name) for (key, who), name in said.items()]


def _codes(texts: Sequence[str]) -> tuple[NDArray[np.int64], list[str]]:
    """Return the place of each text among the texts that there are, in their own order."""
    names = sorted(set(texts))
    place = {name: code for code, name in enumerate(names)}
    return np.array([place[text] for text in texts], np.int64), names


def _digest(votes: Sequence[Vote]) -> str:
    schema = pa.schema([(KEY, pa.binary()), (ANNOTATOR, pa.binary()), (LABEL, pa.binary())])
    keys, who, labels = (
        [each.encode("utf-8", "surrogateescape") for each in part] for part in zip(*votes, strict=True)
    )
    digest = RowDigest(schema)
    digest.update(
        tie_breaks(keys),
        pa.RecordBatch.from_arrays([pa.array(each, pa.binary()) for each in (keys, who, labels)], schema=schema),
    )
    return digest.hexdigest()
