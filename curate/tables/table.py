"""The one way to read and write a Parquet table: streamed, checked, and written whole or not at all."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate import columns
from curate.manifest.names import is_image_name
from scoring.errors import InputError
from scoring.lookup import closest as closest_hint

METADATA_KEY = b"curate"
PART_FILES = "part-*.parquet"
BATCH_BYTES = 64 << 20  # a batch holds at most about this much, unless a single row is larger
FROM_FOLDERS = "; where classes are folders, score again with --label-from-folder"
LOOKED_AT = 1000  # files of a folder that is no table, among which an image is looked for
READ_BUFFER = 1 << 20  # column chunks are read piece by piece: a row group may be larger than memory


class Table:
    """A Parquet file, or a folder of ``part-*.parquet`` that share one schema, read in order.

    Attributes:
        path: what the user named.
        files: the Parquet files, sorted by name.
        schema: Arrow schema without its metadata; views of text and bytes are read as large text and bytes.
        file_metadata: every key of the first file's metadata, as bytes.
        metadata: the JSON under the key ``curate``; empty when absent.
        n_rows: rows over all files.
    """

    def __init__(self, path: Path, files: Sequence[Path]) -> None:
        self.path = path
        self.files = list(files)
        self.n_rows = 0
        for index, file in enumerate(self.files):
            with _named_errors(file), _open(file) as parquet:
                schema = _without_views(parquet.schema_arrow)
                self.n_rows += parquet.metadata.num_rows
            if index == 0:
                self.schema = schema.remove_metadata()
                self.file_metadata: dict[bytes, bytes] = dict(schema.metadata or {})
                self.metadata = _curate_metadata(file, self.file_metadata)
            elif schema.remove_metadata() != self.schema:
                raise InputError(
                    f"{file} has other columns or types than {self.files[0].name}; "
                    "expected one schema in all parts: take out the parts that belong to another table"
                )
        repeated = sorted({name for name in self.schema.names if self.schema.names.count(name) > 1})
        if repeated:
            raise InputError(f"{path} has several columns named {repeated[0]!r}; rename them so that each differs")

    def require(self, names: Sequence[str]) -> None:
        """Raise ``InputError`` for the first name that is not a column; the text holds the closest one."""
        for name in names:
            if name not in self.schema.names:
                raise InputError(
                    f"{self.path} has no column {name!r}{closest_hint(name, self.schema.names)} "
                    f"(columns: {', '.join(self.schema.names)}){FROM_FOLDERS if name == 'label' else ''}"
                )

    def batches(self, columns: Sequence[str] | None = None, rows: int = 65536) -> Iterator[pa.RecordBatch]:
        """Yield the table in order, in pieces of at most ``rows`` rows and about 64 MB.

        Args:
            columns: which, in this order; all when None; may be empty (batches then only have a length).
            rows: the most rows a batch may have, >= 1.

        Yields:
            Record batches with the types of ``schema``; none for a table without rows.

        Raises:
            InputError: for an unknown column, or a file that is damaged (page checksums are verified).
        """
        wanted = list(self.schema.names if columns is None else columns)
        self.require(wanted)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        for file in self.files:
            yield from _file_batches(file, schema, rows)

    def read(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the named columns as one table in memory; raises as ``batches``."""
        wanted = list(self.schema.names if columns is None else columns)
        self.require(wanted)
        schema = pa.schema([self.schema.field(name) for name in wanted])
        return pa.Table.from_batches(self.batches(wanted), schema)

    def take(self, rows: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
        """Return the named columns of some rows, in the order given.

        Args:
            rows: row numbers, from 0; a row may come twice.
            columns: which, in this order.

        Raises:
            IndexError: for a row that is not there.
            InputError: as ``batches``.
        """
        asked = np.asarray(rows, np.int64)
        wanted = np.unique(asked)
        if len(wanted) and not 0 <= wanted[0] <= wanted[-1] < self.n_rows:
            raise IndexError(f"rows of {self.path} are numbered 0 to {self.n_rows - 1}, got {wanted[0]}, {wanted[-1]}")
        parts: list[pa.RecordBatch] = []
        start = n_found = 0
        for batch in self.batches(columns) if len(wanted) else ():
            last = int(np.searchsorted(wanted, start + batch.num_rows))
            if last > n_found:
                parts.append(batch.take(pa.array(wanted[n_found:last] - start)))
            start, n_found = start + batch.num_rows, last
            if n_found == len(wanted):
                break
        if n_found < len(wanted):
            raise InputError(f"{self.path} changed while it was being read; run the command again")
        found = pa.Table.from_batches(parts, pa.schema([self.schema.field(name) for name in columns]))
        return found.take(pa.array(np.searchsorted(wanted, asked)))


def open_table(path: str | Path, *, require: Sequence[str] = ()) -> Table:
    """Open a Parquet file, or a folder of ``part-*.parquet``; only footers are read.

    Args:
        path: file or folder.
        require: columns that must exist, such as ``["key"]``.

    Raises:
        InputError: for a path that does not exist, a folder without parts, a file that is not Parquet, parts
            of different schema, or a missing column.
    """
    if not str(path):
        raise InputError(f"expected a Parquet file or a folder of {PART_FILES}, got an empty text; name the table")
    path = Path(path)
    if path.is_dir():
        files = sorted(path.glob(PART_FILES))
        if not files:
            if any(is_image_name(each.name) for each in islice(path.rglob("*"), LOOKED_AT)):
                raise InputError(
                    f"expected a scored table, and {path} holds images; run: curate score {path} -o NAME.parquet"
                )
            raise InputError(f"expected {PART_FILES} in the folder {path}, found none; give a table that curate wrote")
    elif path.is_file():
        files = [path]
    elif path.exists():
        raise InputError(f"expected a Parquet file or a folder of them, got {path}, which is neither")
    else:
        raise InputError(f"{path} does not exist; give a Parquet file or a folder of {PART_FILES}")
    table = Table(path, files)
    table.require(require)
    return table


@contextmanager
def _named_errors(file: Path) -> Iterator[None]:
    """Turn what pyarrow and the system say about a file into one line that names it."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error).splitlines()[0].strip() if str(error) else type(error).__name__
        if "magic bytes" in text or "file size is 0" in text or "smaller than" in text:
            raise InputError(f"{file} is not a Parquet file; expected a table that curate score or you wrote") from None
        if isinstance(error, PermissionError):
            raise InputError(f"{file} cannot be read: permission denied; check who owns it") from None
        raise InputError(f"{file} is damaged or cannot be read ({text}); write it again or take a copy") from None


def _open(file: Path, *, dictionary: Sequence[str] = ()) -> pq.ParquetFile:
    return pq.ParquetFile(
        file,
        buffer_size=READ_BUFFER,
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=list(dictionary),
    )


def _curate_metadata(file: Path, metadata: dict[bytes, bytes]) -> dict[str, Any]:
    try:
        value = json.loads(metadata.get(METADATA_KEY, b"{}"))
    except ValueError:
        raise InputError(f"{file} has metadata under 'curate' that is not JSON; write the table again") from None
    return value if isinstance(value, dict) else {}


def _file_batches(file: Path, schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of one file, with dictionary pages kept compact until it is known how large they unfold."""
    with _named_errors(file):
        with _open(file) as parquet:
            dictionary, row_bytes = _layout(parquet, schema)
        parquet = _open(file, dictionary=dictionary)
    with parquet:
        if not schema.names:
            yield from _empty_batches(parquet.metadata.num_rows, rows)
            return
        size = max(1, min(rows, BATCH_BYTES // max(1, row_bytes)))
        with _named_errors(file):
            stream = parquet.iter_batches(batch_size=size, columns=schema.names, use_threads=False)
        while True:
            with _named_errors(file):
                batch = next(stream, None)
                if batch is None:
                    return
                pieces = _unfold(batch.select(schema.names), schema)
            yield from pieces


def _empty_batches(n_rows: int, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, n_rows, rows):
        length = min(rows, n_rows - start)
        yield pa.RecordBatch.from_struct_array(pa.array([{}] * length, pa.struct([])))


def _layout(parquet: pq.ParquetFile, schema: pa.Schema) -> tuple[list[str], int]:
    """Return the text columns stored with a dictionary, and bytes a row by the fullest row group."""
    texts = [field.name for field in schema if is_flat_text(field.type)]
    dictionary: set[str] = set()
    row_bytes = 0
    for index in range(parquet.metadata.num_row_groups):
        group = parquet.metadata.row_group(index)
        row_bytes = max(row_bytes, group.total_byte_size // max(1, group.num_rows))
        if not texts:
            continue
        # pyarrow aborts the process when Python asks for a damaged column header; reading a row finds it in peace.
        next(parquet.iter_batches(batch_size=1, row_groups=[index], columns=texts, use_threads=False), None)
        leaves = _leaves(parquet, texts)
        dictionary.update(name for name, number in leaves.items() if group.column(number).has_dictionary_page)
    return sorted(dictionary), row_bytes


def _leaves(parquet: pq.ParquetFile, names: Sequence[str]) -> dict[str, int]:
    """The numbers of the Parquet columns that hold these flat Arrow columns."""
    paths = {parquet.schema.column(number).path: number for number in range(len(parquet.schema))}
    return {name: paths[name] for name in names if name in paths}


def _without_views(schema: pa.Schema) -> pa.Schema:
    """The schema with ``large_string`` and ``large_binary`` in place of views, which few functions of Arrow take."""
    kinds = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
    return pa.schema([field.with_type(kinds.get(field.type, field.type)) for field in schema], schema.metadata)


def is_flat_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text or bytes that Parquet may store with a dictionary."""
    return pa.types.is_string(kind) or pa.types.is_binary(kind)


def _unfold(batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Slices of ``batch`` with the types of ``schema``, cut so that repeated text does not outgrow memory."""
    other = [i for i, field in enumerate(schema) if batch.column(i).type != field.type]
    if not other:
        yield batch
        return
    per_row = np.zeros(batch.num_rows, np.int64)
    for i in (i for i in other if pa.types.is_dictionary(batch.column(i).type)):
        lengths = pc.binary_length(batch.column(i).dictionary).take(batch.column(i).indices)
        per_row += lengths.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    piece = np.cumsum(per_row) // BATCH_BYTES
    cuts = [0, *(np.flatnonzero(np.diff(piece)) + 1).tolist(), batch.num_rows]
    for start, stop in pairwise(cuts):
        part = batch.slice(start, stop - start)
        arrays = [part.column(i).cast(field.type) if i in other else part.column(i) for i, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def embedding_field(width: int, dtype: str = "float16") -> pa.Field:
    """Return the Arrow field of an ``embedding`` column: a fixed-size list of non-null elements.

    Args:
        width: D, >= 1.
        dtype: ``float16`` or ``float32``.
    """
    kinds = {"float16": pa.float16(), "float32": pa.float32()}
    if dtype not in kinds or width < 1:
        raise ValueError(f"an embedding is float16 or float32 of width >= 1, got {dtype} of width {width}")
    return pa.field(columns.EMBEDDING, pa.list_(pa.field("element", kinds[dtype], nullable=False), width))


def embedding_matrix(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """Return an embedding column as a matrix; a null row (an image that failed) becomes NaN.

    Args:
        column: N fixed-size lists of D floats, or lists that all have D.

    Returns:
        shape (N, D), the float type of the column; a view without copying when it is one chunk of fixed-size
        lists without nulls (then read-only).

    Raises:
        InputError: if the column does not hold lists of floats of one length.
    """
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    kind = column.type
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not pa.types.is_floating(kind.value_type):
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
