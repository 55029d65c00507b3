"""Votes of annotators for classes by key, from a file of keys and labels, or a folder of rounds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, LABEL
from curate.tables.digests import RowDigest, tie_breaks
from curate.tables.known import Known, distinct, read_columns, refuse_unknown_keys
from curate.tables.rows import Rows
from scoring.errors import InputError
from scoring.lookup import Lazy, name_list

ANNOTATOR = "annotator"
NOBODY = ""  # who votes where a file does not say
MOST_VOTES = 1_000  # of one row

Vote = tuple[str, str, str]  # key, annotator, class
TEXTS = dict.fromkeys((KEY, ANNOTATOR, LABEL), pl.String)
# To read the votes of another kind of folder, add a line: the file by which it is known, and what reads it.
WHERE: dict[str, str] = {"round.json": "curate.rounds.labels:votes_in"}
FOLDERS: Mapping[str, Callable[[Path], list[Vote]]] = Lazy(WHERE)


@dataclass(frozen=True)
class Votes:
    """M votes, each of an annotator for a class of a key.

    Attributes:
        known: the distinct keys with votes.
        place: index of each vote's key, ascending, shape (M,).
        who: index into ``annotators``, shape (M,).
        code: index into ``classes``, shape (M,).
        annotators: names, sorted.
        classes: names, sorted.
        digest: of all votes, independent of their order.
    """

    known: Known
    place: NDArray[np.int64]
    who: NDArray[np.int64]
    code: NDArray[np.int64]
    annotators: list[str]
    classes: list[str]
    digest: str

    def of(self, rows: Rows, table: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the votes of each row, and their annotators, shape (N, V) each, V being the largest number of votes.

        Padded by -1 and 0. Rows are sorted by key hash. Raises InputError for keys that ``table`` lacks.
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
    """Read a folder of rounds, or a CSV, TSV, JSON lines or Parquet file of keys, labels and optional annotators.

    Args:
        path: a file has the columns ``key`` and ``label``, optionally ``annotator``; rows without a label are ignored.
        label: column of labels of a file; None for ``label``.

    Raises:
        InputError: if the file or a column is missing or unreadable, an annotator has two labels for a key, or there is
            no vote.
    """
    path = Path(path)
    of_folder = next((read(path) for name, read in FOLDERS.items() if (path / name).is_file()), None)
    votes = _votes_of_file(path, label) if of_folder is None else pl.DataFrame(of_folder, TEXTS, orient="row")
    if not len(votes):
        raise InputError(f"expected labels in {path}, got none on any key; pass another file as --labelled")
    votes = votes.cast({KEY: pl.Binary}).unique().sort(KEY, ANNOTATOR, LABEL)
    keys = votes.group_by(KEY, maintain_order=True).len()
    counts = keys["len"].to_numpy()
    if counts.max() > MOST_VOTES:
        raise InputError(f"expected at most {MOST_VOTES:,} labels a key in {path}, got {counts.max():,}; remove some")
    once = distinct(str(path), keys[KEY].to_list())
    (who, annotators), (code, classes) = _codes(votes[ANNOTATOR]), _codes(votes[LABEL])
    return Votes(once, np.repeat(np.arange(len(counts)), counts), who, code, annotators, classes, _digest(votes))


def _votes_of_file(path: Path, label: str | None) -> pl.DataFrame:
    column = label or LABEL
    keys, columns = read_columns(path, [column, ANNOTATOR])
    if column not in columns:
        raise InputError(
            f"{path} has no column {column!r} of classes (columns: {name_list(columns)}); choose it with --label"
        )
    names = pl.Series(ANNOTATOR, columns.get(ANNOTATOR) or [None] * len(keys), pl.String).fill_null(NOBODY)
    labels = pl.Series(LABEL, columns[column], pl.String)
    votes = pl.DataFrame([names, labels, pl.Series(KEY, keys, pl.Binary)]).drop_nulls(LABEL)
    first = votes.with_columns(first=pl.col(LABEL).first().over(KEY, ANNOTATOR))
    for who, then, key, now in first.filter(pl.col(LABEL) != pl.col("first")).head(1).iter_rows():
        of = f"{key.decode('utf-8', 'surrogateescape')!r}{f' by {who!r}' if who else ''}"
        raise InputError(
            f"expected one label a key and annotator in {path}, got {now!r} and {then!r} for {of}; keep one, "
            f"or add a column {ANNOTATOR!r} with who labelled it"
        )
    return votes


def _codes(texts: pl.Series) -> tuple[NDArray[np.int64], list[str]]:
    """Return the code of each text, in the natural order of the distinct texts."""
    names = texts.unique().sort()
    return texts.cast(pl.Enum(names)).to_physical().cast(pl.Int64).to_numpy(), names.to_list()


def _digest(votes: pl.DataFrame) -> str:
    schema = pa.schema([(name, pa.binary()) for name in TEXTS])
    columns = votes.select(pl.col(schema.names).cast(pl.Binary)).to_arrow().cast(schema)
    digest = RowDigest(schema)
    digest.update(tie_breaks(votes[KEY].to_list()), columns.combine_chunks().to_batches()[0])
    return digest.hexdigest()
