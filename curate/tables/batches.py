"""Batches of a Parquet file: validated, bounded in memory, and with errors that name the file."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.manifest.store_path import StorePath
from scoring.errors import InputError

BATCH_BYTES = 64 << 20  # a batch holds at most about this much, unless a single row is larger
READ_BUFFER = 1 << 20  # column chunks are read piece by piece: a row group may be larger than memory
LEAST_BUFFER = 1 << 14  # of a column, where they are thousands


@contextmanager
def named_errors(file: Path | StorePath) -> Iterator[None]:
    """Turn errors of pyarrow and the system into an InputError that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = str(error).splitlines()[0].strip() if str(error) else type(error).__name__
        if "magic bytes" in text or "file size is 0" in text or "smaller than" in text:
            raise InputError(f"{file} is not a Parquet file; expected a table that curate score or you wrote") from None
        if isinstance(error, PermissionError):
            raise InputError(f"{file} cannot be read: permission denied; check who owns it") from None
        raise InputError(
            f"{file} is damaged or cannot be read ({text}); write it again, or restore it from a backup"
        ) from None


def open_parquet(file: Path | StorePath, *, dictionary: Sequence[str] = (), n_columns: int = 1) -> pq.ParquetFile:
    """Return the open file with page checksums verified, and text columns ``dictionary`` as dictionaries."""
    share = max(LEAST_BUFFER, BATCH_BYTES // max(1, n_columns))
    return pq.ParquetFile(
        file if isinstance(file, Path) else file.open(),
        buffer_size=min(READ_BUFFER, share) if isinstance(file, Path) else READ_BUFFER,  # of a store: few requests
        pre_buffer=False,
        page_checksum_verification=True,
        read_dictionary=list(dictionary),
    )


def file_batches(
    file: Path | StorePath,
    schema: pa.Schema,
    rows: int,
    groups: Sequence[int] | None = None,
    known: dict[str, bool] | None = None,
    *,
    compact: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of a file, with dictionary pages kept compact until their decoded size is known.

    Args:
        file: to read.
        schema: of the columns to read.
        rows: maximal rows per batch.
        groups: row groups to read, ascending; None for all.
        known: text column -> whether it has a dictionary in the file; extended by what is found.
        compact: keep text as dictionaries if stored so, unless a batch could decode to 64 MB.
    """
    known = known if known is not None and groups is None else {}
    with named_errors(file):
        with open_parquet(file) as parquet:
            groups = range(parquet.metadata.num_row_groups) if groups is None else groups
            row_bytes = _layout(parquet, schema, groups, known)
        dictionary = [name for name in schema.names if known.get(name)]
        parquet = open_parquet(file, dictionary=dictionary, n_columns=len(schema.names))
    with parquet:
        if not schema.names:
            n_rows = sum(parquet.metadata.row_group(each).num_rows for each in groups)
            for start in range(0, n_rows, rows):
                empty = pa.array([{}] * min(rows, n_rows - start), pa.struct([]))
                yield pa.RecordBatch.from_struct_array(empty)
            return
        size = max(1, min(rows, BATCH_BYTES // max(1, row_bytes)))
        batches = _checked_batches(parquet, schema, size, groups, compact=compact)
        while True:
            with named_errors(file):
                batch = next(batches, None)
            if batch is None:
                return
            yield batch


def _checked_batches(
    parquet: pq.ParquetFile, schema: pa.Schema, rows: int, groups: Sequence[int], *, compact: bool
) -> Iterator[pa.RecordBatch]:
    """Yield validated batches: without page checksums, damage only shows as text that is not UTF-8."""
    n = 0
    for batch in parquet.iter_batches(
        batch_size=rows, row_groups=list(groups), columns=schema.names, use_threads=False
    ):
        for piece in _unfold(batch.select(schema.names), schema, compact=compact):
            piece.validate(full=True)
            n += piece.num_rows
            yield piece
    expected = sum(parquet.metadata.row_group(each).num_rows for each in groups)
    if n != expected:
        raise pa.ArrowInvalid(f"{n:,} rows of the {expected:,} that its footer counts")


def _layout(parquet: pq.ParquetFile, schema: pa.Schema, groups: Sequence[int], known: dict[str, bool]) -> int:
    """Return the bytes per row of the largest row group, and add to ``known`` which text has a dictionary."""
    texts = [field.name for field in schema if is_flat_text(field.type) and field.name not in known]
    has_dictionary = dict.fromkeys(texts, False)
    leaf_of = {parquet.schema.column(at).path: at for at in range(len(parquet.schema))}
    row_bytes = 0
    for index in groups:
        group = parquet.metadata.row_group(index)
        row_bytes = max(row_bytes, group.total_byte_size // max(1, group.num_rows))
        if not texts:
            continue
        # pyarrow aborts the process when Python asks for a damaged column header; reading a row finds it in peace.
        next(parquet.iter_batches(batch_size=1, row_groups=[index], columns=texts, use_threads=False), None)
        coded = [name for name in texts if name in leaf_of and group.column(leaf_of[name]).has_dictionary_page]
        has_dictionary.update(dict.fromkeys(coded, True))
    known.update(has_dictionary)
    return row_bytes


def is_flat_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is text or bytes that Parquet may store with a dictionary."""
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _unfold(batch: pa.RecordBatch, schema: pa.Schema, *, compact: bool) -> Iterator[pa.RecordBatch]:
    """Yield slices of ``batch`` with the types of ``schema``, small enough that decoded text fits in memory."""
    other = [i for i, field in enumerate(schema) if batch.column(i).type != field.type]
    encoded = [batch.column(i) for i in other if pa.types.is_dictionary(batch.column(i).type)]
    lengths = [pc.binary_length(column.dictionary) for column in encoded]
    cuts = [0, batch.num_rows]
    if batch.num_rows * sum(pc.max(each).as_py() or 0 for each in lengths) >= BATCH_BYTES:
        per_row = np.zeros(batch.num_rows, np.int64)
        for column, each in zip(encoded, lengths, strict=True):
            per_row += each.take(column.indices).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        cuts[1:1] = (np.flatnonzero(np.diff(np.cumsum(per_row) // BATCH_BYTES)) + 1).tolist()
    elif compact:
        kinds = [batch.column(i).type for i in other]
        is_coded = [pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type) for kind in kinds]
        other = [i for i, has_codes in zip(other, is_coded, strict=True) if not has_codes]
    if not other:
        yield batch
        return
    kinds = [field.type if i in other else batch.column(i).type for i, field in enumerate(schema)]
    schema = pa.schema([field.with_type(kind) for field, kind in zip(schema, kinds, strict=True)])
    for start, stop in pairwise(cuts):
        part = batch.slice(start, stop - start)
        arrays = [part.column(i).cast(field.type) if i in other else part.column(i) for i, field in enumerate(schema)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
