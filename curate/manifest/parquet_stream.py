"""Some columns of Parquet files as batches of bounded size, over any range of rows."""

import threading
from bisect import bisect_right
from collections.abc import Container, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from curate.manifest.classes import class_labels, class_lists, earlier_scores
from curate.manifest.contract import ReadError
from curate.manifest.failures import CredentialsError
from curate.manifest.footers import check_footers
from curate.manifest.layout import conformed, without_views
from curate.manifest.names import error_line
from curate.manifest.places import Place
from scoring.errors import InputError

BATCH_BYTES = 64 << 20  # bound on decoded bytes, by the file's totals
_WORST_BYTES = 256 << 20  # bound on rows x stored bytes, for encodings that repeat values
# Encodings in which a decoded page is no larger than its stated size. In the others (dictionary, shared
# prefixes) a long value may be repeated at a few bits per row: 52 kB can expand to a terabyte.
_PLAIN = {"PLAIN", "RLE", "BIT_PACKED", "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "BYTE_STREAM_SPLIT"}
_DICTIONARY = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}
_SMALL_CHUNK = 1 << 20


class BadGroup(Exception):
    """A row group cannot be read.

    Args:
        text: one sentence.
        start: first unreadable row.
        stop: the row after the row group.
    """

    def __init__(self, text: str, start: int, stop: int) -> None:
        super().__init__(text)
        self.start = start
        self.stop = stop


@dataclass(frozen=True)
class Group:
    """One row group: its file, its index there, its first row over all files, and the row after its last."""

    file: int
    number: int
    start: int
    stop: int


class ParquetFiles:
    """Parquet files of one schema, as one sequence of rows.

    Attributes:
        classes: class names by column, if the files list them.
        numbered: the part of ``classes`` for columns of class numbers.
        folders: values from partition folders (`label=cat/part-0.parquet`): column -> its text in each file, None for
            null; without columns that the files contain.

    Raises:
        InputError: if a file is not readable Parquet, or its columns differ from the first's.
    """

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.groups: list[Group] = []
        self.file_starts: list[int] = []
        self.n_rows = 0
        check_footers(places)
        for index, place in enumerate(places):
            with self._open(index) as file:
                self._add(index, file, place.name)
        self._starts = [group.start for group in self.groups]
        self.folders = {name: values for name, values in folder_values(places).items() if name not in self.schema.names}

    def _add(self, index: int, file: pq.ParquetFile, name: str) -> None:
        try:
            schema = without_views(pa.schema([field.remove_metadata() for field in file.schema_arrow]))
            classes, numbered = class_lists(file.schema_arrow, name), class_labels(file.schema_arrow)
        except UnicodeDecodeError:
            raise InputError(f"{name} is not readable Parquet: a column's name is not UTF-8; write it again") from None
        if index == 0:
            self.schema: pa.Schema = schema
            self.classes, self.numbered = classes, numbered
            self.earlier_scores = earlier_scores(file.schema_arrow)
        elif not schema.equals(self.schema):
            raise InputError(
                f"expected the same columns in every file, got {_difference(self.schema, schema)} in {name}; "
                f"score {name} on its own, or write the files with one schema"
            )
        elif (classes, numbered) != (self.classes, self.numbered):
            raise InputError(
                f"expected the same class names in every file, got others in {name} than in "
                f"{self.places[0].name}; write the files with one list of names"
            )
        self.file_starts.append(self.n_rows)
        for number in range(file.metadata.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if rows < 0:
                raise InputError(f"{name} is not readable Parquet: a row group of {rows} rows; write it again")
            if rows:
                self.groups.append(Group(index, number, self.n_rows, self.n_rows + rows))
                self.n_rows += rows

    def _open(self, index: int) -> pq.ParquetFile:
        place = self.places[index]
        source = place.uri if place.path == place.uri.encode("utf-8", "surrogateescape") else place.open()
        try:
            # A buffered stream: a column chunk is read page by page, never as one piece.
            return pq.ParquetFile(source, pre_buffer=False, buffer_size=1 << 20, page_checksum_verification=True)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise InputError(
                f"{place.name} is not readable Parquet: {error_line(error)}; write or fetch it again"
            ) from None

    def open(self, index: int) -> pq.ParquetFile:
        """Open a file again; InputError if it is missing or has another number of rows."""
        self.places[index].check_unchanged()
        file = self._open(index)
        stop = self.file_starts[index + 1] if index + 1 < len(self.places) else self.n_rows
        if file.metadata.num_rows != stop - self.file_starts[index]:
            file.close()
            raise InputError(f"{self.places[index].name} changed while it was being read; start again")
        return file

    def group_at(self, row: int) -> Group:
        """Return the row group that holds a row."""
        return self.groups[bisect_right(self._starts, row) - 1]

    def files_of(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """Yield the pieces of rows [start, stop) by file: its number, first row and the row after the last."""
        while start < stop:
            file = self.group_at(start).file
            later = self.file_starts[file + 1 :]
            end = min([stop, *later[:1]])
            yield file, start, end
            start = end


def folder_values(places: list[Place]) -> dict[str, list[str | None]]:
    """Return the columns in the names of partition folders right above the files, with one value per file."""
    file_pairs = [dict(_folder_pairs(place.uri)) for place in places]
    names = dict.fromkeys(name for pairs in file_pairs for name in pairs)
    return {name: [pairs.get(name) for pairs in file_pairs] for name in names}


def _folder_pairs(uri: str) -> Iterator[tuple[str, str | None]]:
    """Yield names and values of the folders `name=value` that a file is in, innermost first."""
    for folder in reversed(uri.split("?")[0].split("/")[:-1]):
        name, equal, value = folder.partition("=")
        if not (name and equal):
            return
        yield unquote(name), None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value)


def _difference(first: pa.Schema, other: pa.Schema) -> str:
    missing = sorted(set(first.names) - set(other.names))
    more = sorted(set(other.names) - set(first.names))
    if missing or more:
        parts = ([f"no {', '.join(missing)}"] if missing else []) + ([f"also {', '.join(more)}"] if more else [])
        return " and ".join(parts)
    for name in first.names:
        if first.field(name).type != other.field(name).type:
            return f"{name} of type {other.field(name).type} instead of {first.field(name).type}"
    return "another order or nullability of columns"


class RowStream:
    """Reads columns in row order; a call that continues the previous one reads no row group twice. Thread-safe.

    A row group can only be decoded from its first row, so a jump decodes the rows before it.

    Args:
        files: to read.
        columns: names of columns, or of fields inside structs (`image.bytes`).
        max_rows: bound on the rows of a batch; its bytes are bounded as well.
    """

    def __init__(self, files: ParquetFiles, columns: list[str], max_rows: int) -> None:
        self._files = files
        self._columns = columns
        self._max_rows = max_rows
        self._lock = threading.Lock()
        self._idle: _Cursor | None = None

    def batches(self, start: int, stop: int) -> Iterator[pa.RecordBatch]:
        """Yield rows [start, stop) as batches; raises BadGroup if a row group cannot be read."""
        with self._lock:
            cursor, self._idle = self._idle, None
        row = start
        while row < stop:
            group = self._files.group_at(row)
            if cursor is None or cursor.group != group or cursor.row > row:
                cursor = _Cursor(group, self._group_batches(group))
            batch = cursor.take(row, stop)
            row += batch.num_rows
            if row == stop:  # before the last piece is yielded, since callers may stop there
                with self._lock:
                    self._idle = cursor
            yield batch

    def _group_batches(self, group: Group) -> Iterator[pa.RecordBatch]:
        try:
            with self._files.open(group.file) as file:
                rows = self._batch_rows(file.metadata.row_group(group.number), self._files.places[group.file])
                for batch in file.iter_batches(batch_size=rows, row_groups=[group.number], columns=self._columns):
                    yield conformed(batch, without_views(batch.schema))
        except CredentialsError:
            raise
        except (pa.ArrowException, OSError, InputError, ReadError, ValueError) as error:
            name = self._files.places[group.file].name
            raise BadGroup(
                f"row group {group.number} of {name} cannot be read: {error_line(error)}", group.start, group.stop
            ) from None

    def _batch_rows(self, group: pq.RowGroupMetaData, place: Place) -> int:
        """Return the number of rows to decode at once, from the sizes and encodings stated in the file."""
        plain, worst, columns = 1, 1, set(self._columns)
        for index in range(group.num_columns):
            chunk = group.column(index)
            path = chunk.path_in_schema
            if not _is_part_of(path, columns):
                continue
            plain += max(chunk.total_uncompressed_size, 0)
            if not set(chunk.encodings) <= _PLAIN:
                worst += _largest_value(chunk, place)
        rows = min(self._max_rows, BATCH_BYTES * group.num_rows // plain, _WORST_BYTES // worst)
        return int(max(rows, 1))


def _is_part_of(path: str, columns: Container[str]) -> bool:
    """Return whether a column of the file is one of ``columns`` or a field of one."""
    stops = (dot for dot, letter in enumerate(path) if letter == ".")
    return path in columns or any(path[:dot] in columns for dot in stops)


def _largest_value(chunk: pq.ColumnChunkMetaData, place: Place) -> int:
    """Return a bound on the bytes of one value, which a few stored bytes may repeat many times.

    With a dictionary it is the dictionary's size in its page header; else the size of the chunk.
    """
    n_bytes = max(chunk.total_uncompressed_size, 1)
    if n_bytes <= _SMALL_CHUNK or not set(chunk.encodings) <= _PLAIN | _DICTIONARY or not chunk.has_dictionary_page:
        return int(n_bytes)
    with place.open() as file:
        file.seek(chunk.dictionary_page_offset)
        stated = dictionary_size(file.read(16))
    return int(n_bytes if stated is None else min(stated, n_bytes))


def dictionary_size(header: bytes) -> int | None:
    """Return the uncompressed size in bytes that the header of a dictionary page states, else None.

    Args:
        header: the page's first 16 bytes: Thrift's compact protocol, field 1 the kind of page (2 is a
            dictionary), field 2 the size, both 32-bit zigzag varints.

    Source: parquet.thrift (PageHeader) and the Thrift compact protocol specification.

    >>> dictionary_size(bytes([0x15, 0x04, 0x15, 0xC8, 0x01]))
    100
    """
    values, offset = [], 0
    for _ in range(2):
        if header[offset : offset + 1] != b"\x15":  # the next field, a 32-bit number
            return None
        number, shift, offset = 0, 0, offset + 1
        while offset < len(header):
            number |= (header[offset] & 0x7F) << shift
            shift, offset = shift + 7, offset + 1
            if header[offset - 1] < 0x80:
                break
        values.append((number >> 1) ^ -(number & 1))
    kind, size = values
    return size if kind == 2 and size > 0 else None


class _Cursor:
    """A position inside one row group."""

    def __init__(self, group: Group, batches: Iterator[pa.RecordBatch]) -> None:
        self.group = group
        self.row = group.start  # first remaining row
        self._batches = batches
        self._held: pa.RecordBatch | None = None  # starts at `row`

    def take(self, row: int, stop: int) -> pa.RecordBatch:
        """Return a batch that starts at ``row`` and ends at ``stop`` at the latest."""
        while True:
            if self._held is None or self._held.num_rows == 0:
                self._held = next(self._batches, None)
                if self._held is None:
                    raise BadGroup(
                        f"row group {self.group.number} has fewer rows than it states", self.row, self.group.stop
                    )
            skip = min(row - self.row, self._held.num_rows)
            count = min(stop - row, self._held.num_rows - skip)
            taken = self._held.slice(skip, count)
            self._held = self._held.slice(skip + count)
            self.row += skip + count
            if count:
                return taken
