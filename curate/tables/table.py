"""Reading of Parquet tables: streamed and validated."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from errno import ENAMETOOLONG
from fnmatch import fnmatch
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import EMBEDDING, FOLDER, KEY, LABEL, URI
from curate.counted import reading, repeated
from curate.manifest.layout import without_views
from curate.manifest.names import is_image_name
from curate.manifest.store_path import UNFINISHED, StorePath, path_to_read, subset_at
from curate.tables.batches import file_batches, named_errors, open_parquet
from curate.tables.digests import is_list
from curate.tables.moved import Moved, folders_of, has_text_keys, moved_with
from curate.tables.user_embeddings import as_embeddings, unit_field
from scoring.errors import InputError
from scoring.lookup import closest as closest_hint
from scoring.lookup import name_list

METADATA_KEY = b"curate"
PART_FILES = "part-*.parquet"
HINTS = {  # on a column that is missing
    KEY: "; images that a table holds are scored first, with curate score",
    LABEL: f"; if folders are classes, use the column {FOLDER}",
    FOLDER: ", and no key starts with a folder of the source",
}
LOOKED_AT = 1000  # files of a folder that is no table, among which an image is looked for
SHOW_A_MOVE = 8  # first rows that show whether the images moved


class Table:
    """A Parquet file, or a folder of ``part-*.parquet`` that share one schema, read in order.

    Attributes:
        path: as given by the user.
        files: the Parquet files, sorted by name.
        schema: Arrow schema without its metadata; text and byte views are read as large text and bytes.
        file_metadata: metadata of the first file, as bytes.
        metadata: the JSON under the key ``curate``; empty when absent.
        n_rows: rows over all files.
        embedding_column: the user's column that is read as ``embedding``; None for the stored one. ``schema`` and
            ``batches`` use that name, and ``stored`` is the table as in its files, from which outputs are written. The
            same for ``folder``, if requested.
    """

    embedding_column: str | None = None

    def __init__(self, path: Path | StorePath, files: Sequence[Path | StorePath]) -> None:
        self.path = path
        self.files = list(files)
        self._dictionaries: dict[int, dict[str, bool]] = {}  # by file: text columns that were looked at
        self._groups: list[tuple[int, int, int]] = []  # of each row group: file, number there, rows
        for index, file in enumerate(self.files):
            with named_errors(file), open_parquet(file) as parquet:
                schema, footer = without_views(parquet.schema_arrow), parquet.metadata
                rows = [footer.row_group(at).num_rows for at in range(footer.num_row_groups)]
                if min(rows, default=0) < 0 or sum(rows) != footer.num_rows:
                    raise InputError(f"{file} is damaged: its footer has two row counts; restore it from a backup")
                self._groups += [(index, at, n) for at, n in enumerate(rows)]
            if index == 0:
                self.schema = schema.remove_metadata()
                self.file_metadata: dict[bytes, bytes] = dict(schema.metadata or {})
                self.metadata = noted_in(file, self.file_metadata)
            elif schema.remove_metadata() != self.schema:
                raise InputError(
                    f"{file} has other columns or types than {self.files[0].name}; "
                    "expected one schema in all parts: remove the parts that belong to another table"
                )
        self.n_rows = sum(n for _, _, n in self._groups)
        self.stored = self
        if twice := repeated(self.schema.names):
            raise InputError(f"{path} has several columns named {twice[0]!r}; give each its own name")

    @cached_property
    def moved(self) -> Moved | None:
        """The present location of its images, if they moved together with it."""
        names = [URI, "sha256"]
        if not set(names) <= set(self.schema.names):
            return None
        some = self.take(range(min(SHOW_A_MOVE, self.n_rows)), names)
        return moved_with(self.path, *(some.column(name).to_pylist() for name in names))

    def noted(self, *names: str) -> dict[str, Any]:
        """Return an object of the metadata, such as of ``fit``, ``junk`` in ``fit``; empty if absent."""
        value: Any = self.metadata
        for name in names:
            value = value.get(name) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    def by(self, embedding_column: str | None) -> "Table":
        """Return the table with a user column read as ``embedding``, each row at unit length; InputError if unusable.

        The column has lists of float16, float32 or float64; None, or ``embedding``, for the table as stored.
        """
        if embedding_column is None:
            return self if self.embedding_column is None else self.stored
        self.stored.require([embedding_column])
        if embedding_column == EMBEDDING:
            return self.stored
        field = unit_field(self.stored.schema.field(embedding_column), self.path)
        table = copy.copy(self.stored)
        table.embedding_column = embedding_column
        table.schema = pa.schema([*(each for each in self.stored.schema if each.name != field.name), field])
        if FOLDER in self.schema.names:
            table.derive_folder()
        return table

    def require(self, names: Sequence[str]) -> None:
        """Raise ``InputError``, with the closest name, for the first name that is not a column.

        ``folder`` becomes a column if the table has none of that name: the folder of each image, by its key.
        """
        if FOLDER in names:
            self.derive_folder()
        known = set(self.schema.names)
        for name in names:
            if name not in known:
                raise InputError(
                    f"{self.path} has no column {name!r}{closest_hint(name, self.schema.names)} "
                    f"(columns: {name_list(self.schema.names, name)}){HINTS.get(name, '')}"
                )

    def derive_folder(self) -> None:
        """Add the folder of each image as a column, if any key has one and the name is free, not to ``stored``."""
        if FOLDER in self.schema.names or not has_text_keys(self.schema):
            return
        if all(folders_of(batch.column(0)).null_count == batch.num_rows for batch in self.batches([KEY])):
            return
        if self.stored is self:
            self.stored = copy.copy(self)
            self.stored.stored = self.stored
        self.schema = self.schema.append(pa.field(FOLDER, pa.string()))

    def batches(
        self,
        columns: Sequence[str] | None = None,
        rows: int = 65536,
        only: Mapping[int, Sequence[int]] | None = None,
        *,
        compact: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the table in order, in batches of at most ``rows`` rows and about 64 MB.

        Args:
            columns: names, in this order; None for all; may be empty (batches then only have a length).
            rows: maximal rows per batch, >= 1.
            only: index of a file -> its row groups to read; None for all.
            compact: keep text as dictionaries if stored so, which may change between batches.

        Yields:
            Record batches with the types of ``schema``; none for a table without rows.

        Raises:
            InputError: for an unknown column, or a damaged file (page checksums are verified).
        """
        names = list(self.schema.names if columns is None else columns)
        self.require(names)
        if FOLDER in names and FOLDER not in self.stored.schema.names:
            others = list(dict.fromkeys([KEY, *(name for name in names if name != FOLDER)]))
            for batch in self.batches(others, rows, only, compact=compact):
                yield batch.append_column(FOLDER, folders_of(batch.column(KEY))).select(names)
            return
        if self.embedding_column is not None and EMBEDDING in names:
            stored = list(dict.fromkeys(self.embedding_column if name == EMBEDDING else name for name in names))
            yield from as_embeddings(
                self.stored.batches(stored, rows, only, compact=compact),
                names,
                self.embedding_column,
                self.schema.field(EMBEDDING),
                self.path,
            )
            return
        schema = pa.schema([self.schema.field(name) for name in names])
        with reading(self.path.name, self.n_rows) as progress:
            for index, file in enumerate(self.files):
                if only is None or index in only:
                    known = self._dictionaries.setdefault(index, {})
                    groups = None if only is None else only[index]
                    for batch in file_batches(file, schema, rows, groups, known, compact=compact):
                        yield batch
                        progress.done += batch.num_rows

    def numbered(
        self, columns: Sequence[str] | None = None, rows: int = 65536, *, compact: bool = False
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield each of ``batches`` with the number of its first row."""
        start = 0
        for batch in self.batches(columns, rows, compact=compact):
            yield start, batch
            start += batch.num_rows

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the named columns as one table in memory; InputError as ``batches``."""
        names = list(self.schema.names if columns is None else columns)
        self.require(names)
        schema = pa.schema([self.schema.field(name) for name in names])
        return pa.Table.from_batches(self.batches(names), schema)

    def take(self, rows: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return the named columns of rows, in the given order; only their row groups are read.

        Args:
            rows: indices, from 0; may repeat.
            columns: names, in this order.

        Raises:
            IndexError: for a missing row.
            InputError: as ``batches``.
        """
        row_numbers = np.asarray(rows, np.int64)
        distinct = np.unique(row_numbers)
        if len(distinct) and not 0 <= distinct[0] <= distinct[-1] < self.n_rows:
            raise IndexError(
                f"rows of {self.path} are numbered 0 to {self.n_rows - 1}, got {distinct[0]}, {distinct[-1]}"
            )
        only, places = self._groups_of(distinct)
        parts: list[pa.RecordBatch] = []
        start = n_taken = 0
        for batch in self.batches(columns, only=only):
            last = int(np.searchsorted(places, start + batch.num_rows))
            if last > n_taken:
                parts.append(batch.take(pa.array(places[n_taken:last] - start)))
            start, n_taken = start + batch.num_rows, last
            if n_taken == len(distinct):
                break
        if n_taken < len(distinct):
            raise InputError(f"{self.path} changed while it was being read; run the command again")
        table = pa.Table.from_batches(parts, pa.schema([self.schema.field(name) for name in columns]))
        return table.take(pa.array(np.searchsorted(distinct, row_numbers)))

    def _groups_of(self, rows: NDArray[np.int64]) -> tuple[dict[int, list[int]], NDArray[np.int64]]:
        """Return the row groups of M ascending rows, by file, and the index of each row in them."""
        sizes = np.array([n for _, _, n in self._groups], np.int64)
        starts = np.cumsum(sizes) - sizes
        group = np.searchsorted(starts, rows, side="right") - 1
        held = np.unique(group)
        only: dict[int, list[int]] = {}
        for number in held.tolist():
            index, at, _ = self._groups[number]
            only.setdefault(index, []).append(at)
        before = np.zeros(len(sizes), np.int64)
        before[held] = np.cumsum(sizes[held]) - sizes[held]
        return only, rows - starts[group] + before[group]


def open_table(path: str | Path | StorePath, *, require: Sequence[str] = (), embedding: str | None = None) -> Table:
    """Open a Parquet file, or a folder of ``part-*.parquet``; only footers are read.

    Args:
        path: of a file or folder, on a disk or by URL in a store; a folder of ``curate clean`` stands for its subset.
        require: required columns, such as ``["key"]``.
        embedding: user column to read as ``embedding``; see ``Table.by``.

    Raises:
        InputError: for a path that does not exist, a folder without parts, a file that is not Parquet, parts
            of different schema, or a missing column.
    """
    if not str(path):
        raise InputError(f"expected a Parquet file or a folder of {PART_FILES}, got an empty text; pass a table")
    path = subset_at(path_to_read(path))
    table = Table(path, _stored_files(path) if isinstance(path, StorePath) else _local_files(path))
    table.require(require)
    return table.by(embedding)


def _local_files(path: Path) -> list[Path]:
    """Return the files of a table on a disk."""
    try:
        is_file = path.is_file()
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            raise
        raise InputError(f"no file has a name as long as {str(path)[:40]}...; pass a Parquet file") from None
    if is_file:
        return [path]
    if not path.is_dir():
        if path.exists():
            raise InputError(f"expected a Parquet file or a folder of them, got {path}, which is neither")
        raise InputError(f"{path} does not exist; pass a Parquet file or a folder of {PART_FILES}")
    if files := sorted(path.glob(PART_FILES)):
        return files
    if any(is_image_name(each.name) for each in islice(path.rglob("*"), LOOKED_AT)):
        raise InputError(f"expected a scored table, and {path} holds images; run: curate score {path} -o NAME.parquet")
    raise InputError(f"expected {PART_FILES} in the folder {path}, got none; pass a table that curate wrote")


def _stored_files(path: StorePath) -> list[StorePath]:
    """Return the files of a table in a store."""
    names = [file.name for file in path.files()]
    if UNFINISHED in names:
        raise InputError(f"{path} is being written, or was interrupted; repeat the command that writes it")
    if parts := [path / name for name in names if fnmatch(name, PART_FILES)]:
        return parts
    if path.is_file():
        return [path]
    raise InputError(f"{path} does not exist; pass a Parquet file or a folder of {PART_FILES}")


def noted_in(file: Path | StorePath, metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Return curate's metadata of a Parquet file; empty without any; InputError if it is not JSON."""
    try:
        value = json.loads(metadata.get(METADATA_KEY, b"{}"))
    except (ValueError, RecursionError):
        raise InputError(f"{file} has metadata under 'curate' that is not JSON; write the table again") from None
    return value if isinstance(value, dict) else {}


def embedding_field(width: int, dtype: str = "float16") -> pa.Field:
    """Return the Arrow field of an ``embedding`` column: a fixed-size list of non-null elements.

    Args:
        width: D, >= 1.
        dtype: ``float16`` or ``float32``.
    """
    kinds = {"float16": pa.float16(), "float32": pa.float32()}
    if dtype not in kinds or width < 1:
        raise ValueError(f"an embedding is float16 or float32 of width >= 1, got {dtype} of width {width}")
    return pa.field(EMBEDDING, pa.list_(pa.field("element", kinds[dtype], nullable=False), width))


def embedding_matrix(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return an embedding column of N lists of D floats as a matrix (N, D) of its float type; null becomes NaN.

    A read-only view if it is one chunk of fixed-size lists without nulls. Raises InputError if the column does not have
    lists of floats of one length.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    kind = column.type
    if not is_list(kind) or not pa.types.is_floating(kind.value_type):
        raise InputError(f"expected an embedding column (lists of float16 or float32), got {kind}")
    if not pa.types.is_fixed_size_list(kind):
        widths = pc.unique(pc.list_value_length(column).drop_null()).to_pylist()
        if len(widths) > 1:
            raise InputError(f"expected embeddings of one length, got lengths {sorted(widths)[:5]}")
        column = column.cast(pa.list_(kind.value_type, widths[0] if widths else 0))
    width = column.type.list_size
    values = column.values.slice(column.offset * width, len(column) * width)
    matrix: np.ndarray = values.to_numpy(zero_copy_only=False).reshape(len(column), width)
    if column.null_count:
        matrix = matrix.copy()
        matrix[column.is_null().to_numpy(zero_copy_only=False)] = np.nan
    return matrix
