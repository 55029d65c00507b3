"""Keys in a user's file, with or without labels, and votes of annotators by key."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import KEY, LABEL
from curate.counted import counted
from curate.manifest.classes import missing_note
from curate.manifest.file_set import local_copy
from curate.manifest.store_path import AnyPath, path_to_read
from curate.manifest.text import decoded, read_bytes
from curate.manifest.text_tables import MAX_TABLE_BYTES, read_csv, read_jsonl
from curate.tables.arrays import texts
from curate.tables.digests import RowDigest, key_bytes, tie_breaks
from curate.tables.rows import Rows
from curate.tables.table import open_table
from scoring.errors import InputError
from scoring.lookup import Lazy, name_list, require_known

TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")
N_NAMED = 3


@dataclass(frozen=True)
class Known:
    """Keys of a file, in order.

    Attributes:
        path: of the file.
        keys: distinct keys.
        hashes: of the keys, shape (M,) uint64.
        labels: class of each as text, or None; None if the file has no labels.
        digest: of keys and labels, independent of their order.
        n_in_table: number of keys in the table; see ``spelling.spelled_as``.
        note: on keys converted to the table's spelling, and on suspicious labels.
        hint: possible meaning of a key that is not in the table.
    """

    path: str
    keys: list[bytes]
    hashes: NDArray[np.uint64]
    labels: list[str | None] | None
    digest: str
    n_in_table: int = 0
    note: str = ""
    hint: str = ""

    def rows(self, rows: Rows) -> NDArray[np.int64]:
        """Return the row of each key, shape (M,); -1 if the table has none."""
        return rows.find(self.hashes)


def read_known(path: str | AnyPath, label: str | None = None, *, labels: bool = True) -> Known:
    """Read a CSV, TSV, JSON lines or Parquet file with a column ``key``, or a text file with one key per line.

    Rows with a blank label are skipped.

    Args:
        path: of the file, or a folder of ``part-*.parquet``; on a disk or in a store.
        label: column of labels; None for ``label``, if it exists.
        labels: whether to read labels.

    Raises:
        InputError: if the file or a column is missing or unreadable, or a key has two labels.
    """
    column = label or LABEL
    keys, columns = read_columns(path, [column] if labels else [])
    values = columns.get(column) if labels else None
    if values is None:
        return distinct(str(path), keys)
    labelled = [at for at, value in enumerate(values) if value is not None]
    known = distinct(str(path), [keys[at] for at in labelled], [values[at] for at in labelled])
    return replace(known, note=missing_note(known.labels or (), f"column {column!r} of {path}"))


def read_columns(
    path: str | AnyPath, text_columns: Sequence[str]
) -> tuple[list[bytes], dict[str, list[str | None] | None]]:
    """Return the keys of a file, and its columns by name: texts of ``text_columns``, None for the others.

    Args:
        path: of a CSV, TSV, JSON lines or Parquet file, or a folder of ``part-*.parquet``, with a column ``key``.
        text_columns: columns to read, if present.

    Raises:
        InputError: if the file or its keys are missing or unreadable.
    """
    path = path_to_read(path)
    if not path.is_dir() and (path.suffix.lower() in TEXT_SUFFIXES or not path.exists()):
        table = _read_text(path)
        names = table.schema.names
        require_known(KEY, names, f"{path} has no column", "columns", "rename the column of keys")
    else:
        opened = open_table(path, require=[KEY])
        names = opened.schema.names
        table = opened.read([KEY, *(name for name in text_columns if name in names and name != KEY)])
    keys = key_bytes(table.column(KEY).combine_chunks(), path)
    return keys, {name: _texts(path, table.column(name)) if name in text_columns else None for name in names}


def known(path: str, keys: Sequence[str], labels: Sequence[str | None] | None = None) -> Known:
    """Return given keys and labels; ``path`` is their origin for messages; InputError if a key has two labels."""
    return distinct(path, [key.encode("utf-8", "surrogateescape") for key in keys], list(labels) if labels else None)


def _read_text(path: AnyPath) -> pa.Table:
    if not path.is_file():
        raise InputError(f"{path} does not exist; pass a CSV or Parquet file with a column {KEY!r}")
    if path.stat().st_size > MAX_TABLE_BYTES:
        raise InputError(
            f"{path} has {path.stat().st_size:,} bytes, more than {MAX_TABLE_BYTES:,}; convert it to Parquet"
        )
    with local_copy(path) as local:
        data = read_bytes(local, what="text with keys")
    if path.suffix.lower() == ".txt":
        lines = decoded(data, what="text with keys", where=str(path)).replace("\r\n", "\n").split("\n")
        return pa.table({KEY: pa.array([line for line in lines if line.strip()], pa.string())})
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return read_jsonl(decoded(data, what="text with keys", where=str(path)).encode(), str(path))
    return read_csv(data, str(path), expects={KEY}, names_only={KEY})


def _texts(path: AnyPath, column: pa.ChunkedArray) -> list[str | None]:
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        raise InputError(f"expected labels as names or numbers in {path}, got {column.type}; choose another column")
    return list(texts(column.combine_chunks()).to_pylist())


def distinct(path: str, keys: list[bytes], labels: list[str | None] | None = None) -> Known:
    """Return distinct keys with their labels; ``path`` is their origin; InputError if a key has two labels."""
    seen: dict[bytes, str | None] = {}
    for at, key in enumerate(keys):
        label = labels[at] if labels else None
        if key in seen and labels and seen[key] != label:
            name = key.decode("utf-8", "replace")
            raise InputError(
                f"expected one label a key in {path}, got {seen[key]!r} and {label!r} for {name!r}; keep one"
            )
        seen[key] = label
    once = list(seen)
    schema = pa.schema([(KEY, pa.binary()), (LABEL, pa.string())] if labels else [(KEY, pa.binary())])
    digest = RowDigest(schema)
    columns = {KEY: once, **({LABEL: list(seen.values())} if labels else {})}
    hashes = tie_breaks(once)
    digest.update(hashes, pa.RecordBatch.from_pydict(columns, schema=schema))
    texts = list(seen.values()) if labels is not None else None
    return Known(path, once, hashes, texts, digest.hexdigest())


def refuse_unknown_keys(known: Known, rows: NDArray[np.int64], table: str) -> None:
    """Raise InputError for labelled keys that a table lacks: under another spelling they would be picked again."""
    lost = np.flatnonzero(rows < 0)
    if len(lost):
        named = ", ".join(repr(known.keys[at].decode("utf-8", "replace")) for at in lost[:N_NAMED].tolist())
        keys = counted(len(known.keys), "labelled key")
        raise InputError(
            f"expected the labelled keys of {known.path} in {table}, got {len(lost):,} of {keys} not there, such as "
            f"{named}{f' ({known.hint})' if known.hint else ''}; write them as the table does, or remove them"
        )


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
