"""Parquet tables with embedded images or with paths: read in bounded pieces, never whole."""

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from curate.counted import counted
from curate.manifest.classes import named, with_text
from curate.manifest.contract import HeldReader, Reader, SourceOptions, check_range, too_large
from curate.manifest.keys import UniqueCheck, check_keys, check_paths, check_text
from curate.manifest.layout import (
    Layout,
    find_layout,
    make_rows,
    resolve,
    text_of,
    uri_of_each_scheme,
    with_text_columns,
)
from curate.manifest.local import fail
from curate.manifest.memory import RowDigest, uri_reader, version_of, without
from curate.manifest.parquet_stream import BadGroup, Group, ParquetFiles, RowStream
from curate.manifest.places import Place
from curate.manifest.reach import Reach
from curate.manifest.schemes import SchemeCheck
from curate.manifest.text_tables import numbered_keys
from scoring.errors import InputError
from scoring.images.budget import BODIES

_IMAGE_ROWS = 256  # maximum images decoded from Parquet at once
_TEXT_ROWS = 65536
MAX_ROWS_BYTES = 2 << 30  # bound on the user's columns in one call of `rows`


class ParquetManifest:
    """Rows of Parquet files; see `Manifest` for the meaning of each member.

    A row's bytes are in the image column; if null or without such a column, in the file at its path. `uri` is null for
    rows with embedded bytes. Class numbers become names if the files list these.

    Args:
        places: the files, in order.
        options: all except the folder options are used.
        root: absolute path or URL to which relative paths refer.
        reach: where paths and URLs may lead.

    Raises:
        InputError: for unreadable files, no rows, no image or path column, null or repeated keys.
        MissingExtraError: if the driver of a URL's scheme is not installed.
    """

    def __init__(
        self,
        places: list[Place],
        options: SourceOptions,
        root: str,
        reach: Reach = Reach(),  # noqa: B008 (it is frozen)
    ) -> None:
        self._files = ParquetFiles(places)
        self._where = places[0].name if len(places) == 1 else f"{places[0].name} and {len(places) - 1} more"
        if self._files.n_rows == 0:
            raise InputError(f"expected at least one row in {self._where}, got none; add rows")
        options = replace(options, reserved=(*options.reserved, *self._files.earlier_scores))
        self._options, self._reach = options, reach
        self.connections = options.connections
        self._root = root
        layout = find_layout(with_text(self._files.schema, self._files.numbered), options, self._where)
        self._layout = layout = with_text_columns(layout, list(self._files.folders), options.reserved)
        self.n_rows: int = min(self._files.n_rows, options.limit or self._files.n_rows)
        self.schema: pa.Schema = self._layout.schema
        self.renamed = self._layout.renamed
        self.classes = {
            new: self._files.classes[name] for name, new in self._layout.user_columns if name in self._files.classes
        }
        inside = f"images in column {layout.image!r}" if layout.image else f"paths in column {layout.path!r}"
        self.description = f"Parquet {self._where}: {counted(self.n_rows, 'row')}, {inside}"
        if self._files.folders:
            self.description += f"; {', '.join(self._files.folders)} from the names of folders"
        self._row_stream = self._stream(_row_leaves(self._layout, self._files.schema), _TEXT_ROWS)
        leaves = [leaf for leaf in (layout.bytes_leaf, layout.path) if leaf is not None]
        self._image_stream = self._stream(leaves, _IMAGE_ROWS)
        self._nulls = None if layout.bytes_leaf is None else self._stream([layout.bytes_leaf], _IMAGE_ROWS)
        self._check()

    def _stream(self, leaves: list[str], max_rows: int) -> RowStream:
        return RowStream(self._files, leaves, max_rows)

    def rows(self, start: int, stop: int) -> pa.Table:
        """Return rows [start, stop); raises InputError if they cannot be read, or take more than `MAX_ROWS_BYTES`."""
        check_range(start, stop, self.n_rows)
        table = self._with_names(self._read(self._row_stream, start, stop), start)
        return make_rows(self._keys(table, start), self._uris(table, start, stop), table, self._layout)

    def columns(self, names: Sequence[str]) -> Iterator[pa.Table]:
        """Yield some of the user's columns in batches; raises as ``rows``."""
        sources = {new: name for name, new in self._layout.user_columns}
        in_file = [sources[name] for name in names]
        stream = self._stream([name for name in in_file if name not in self._files.folders], _TEXT_ROWS)
        for start in range(0, self.n_rows, _TEXT_ROWS):
            table = self._read(stream, start, min(start + _TEXT_ROWS, self.n_rows))
            yield self._with_names(table, start).select(in_file).rename_columns(list(names))

    def _with_names(self, table: pa.Table, start: int) -> pa.Table:
        """Return rows with class names instead of numbers, and with values from folder names."""
        for name, classes in self._files.numbered.items():
            if (index := table.schema.get_field_index(name)) >= 0:
                table = table.set_column(index, name, named(table[name], classes, name, self._where))
        pieces = list(self._files.files_of(start, start + table.num_rows)) if self._files.folders else []
        for name, values in self._files.folders.items():
            parts = [pa.repeat(pa.scalar(values[file], pa.string()), last - first) for file, first, last in pieces]
            table = table.append_column(name, pa.chunked_array(parts, pa.string()))
        return table

    def _read(self, stream: RowStream, start: int, stop: int) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        size = 0
        for batch in _batches(stream, start, stop):
            size += batch.nbytes
            if size > MAX_ROWS_BYTES:
                raise InputError(
                    f"expected the columns of {self._where} next to the image to fit into "
                    f"{MAX_ROWS_BYTES >> 30} GiB for {stop - start:,} rows, got more near row {start}; remove "
                    "the large column"
                )
            _check_values(batch, self._where, start)
            batches.append(batch)
        if batches:
            return pa.Table.from_batches(batches)
        first = self._read(stream, 0, 1)  # an empty range: the types of a real one
        return first.slice(0, 0)

    def _keys(self, table: pa.Table, start: int) -> pa.Array:
        if self._layout.key is not None:
            return text_of(table[self._layout.key])
        parts = []
        for file, row, end in self._files.files_of(start, start + table.num_rows):
            first = self._files.file_starts[file]
            parts.append(numbered_keys(self._files.places[file].name, row - first, end - first))
        return pa.concat_arrays(parts) if parts else pa.array([], pa.string())

    def _uris(self, table: pa.Table, start: int, stop: int) -> pa.Array:
        nulls = pa.nulls(stop - start, pa.string())
        if self._layout.path is None:
            return nulls
        inside = self._bytes_inside(start, stop)
        if inside is True:
            return nulls
        uris = resolve(text_of(_leaf(table, self._layout.path)), self._root)
        return uris if inside is False else pc.if_else(inside, pa.scalar(None, pa.string()), uris)

    def _bytes_inside(self, start: int, stop: int) -> bool | pa.Array:
        """Return which rows contain their bytes: all, none, or one boolean per row.

        Statistics in the file decide for most; only row groups with both kinds are read.
        """
        if self._nulls is None or self._layout.bytes_leaf is None:
            return False
        answers = {self._group_nulls[group] for group in self._groups(start, stop)}
        if answers == {"none"} or not answers:
            return True
        if answers == {"all"}:
            return False
        leaf = self._layout.bytes_leaf
        batches = _batches(self._nulls, start, stop)
        return pa.concat_arrays(
            [_leaf(pa.Table.from_batches([batch]), leaf).is_valid().combine_chunks() for batch in batches]
        )

    def _groups(self, start: int, stop: int) -> Iterator[Group]:
        while start < stop:
            group = self._files.group_at(start)
            yield group
            start = group.stop

    @cached_property
    def _group_nulls(self) -> dict[Group, str]:
        """Return for each row group whether "none", "all" or "some" (or unknown) of its images are null."""
        answers: dict[Group, str] = {}
        for index in sorted({group.file for group in self._files.groups}):
            with self._files.open(index) as file:
                for group in (group for group in self._files.groups if group.file == index):
                    answers[group] = _nulls_of(file.metadata.row_group(group.number), self._layout.bytes_leaf)
        return answers

    def readers(self, start: int, stop: int) -> Iterator[Reader]:
        """Yield one reader per row.

        Each holds its batch of images (about 64 MB) until it is dropped. If a row group cannot be read, the readers of
        its remaining rows raise `ReadError`.
        """
        check_range(start, stop, self.n_rows)
        return self._readers(start, stop)

    def _readers(self, start: int, stop: int) -> Iterator[Reader]:
        row = start
        while row < stop:
            batches = self._image_stream.batches(row, stop)
            while row < stop:
                try:
                    batch = next(batches)
                except BadGroup as error:
                    end = min(error.stop, stop)
                    yield from (partial(fail, "io_error", str(error)) for _ in range(row, end))
                    row = end
                    break
                yield from self._batch_readers(pa.Table.from_batches([batch]))
                row += batch.num_rows

    def _batch_readers(self, table: pa.Table) -> Iterator[Reader]:
        layout = self._layout
        images = _leaf(table, layout.bytes_leaf).combine_chunks() if layout.bytes_leaf else None
        uris = resolve(text_of(_leaf(table, layout.path)), self._root) if layout.path else None
        for index in range(table.num_rows):
            if images is not None and images[index].is_valid:
                yield HeldReader(partial(_inside, images, index, self._options.max_bytes))
            else:
                uri = uris[index].as_py() if uris is not None else None
                yield uri_reader(uri, self._options.max_bytes, self._reach)

    def _check(self) -> None:
        """Check keys and paths once: present, short, unique, of a supported scheme."""
        layout = self._layout
        leaves = sorted({leaf for leaf in (layout.key, layout.path) if leaf is not None})
        if not leaves:
            return
        unique, row = UniqueCheck(), 0
        schemes = SchemeCheck()
        for batch in _batches(self._stream(leaves, _TEXT_ROWS), 0, self.n_rows):
            self._check_batch(pa.Table.from_batches([batch]), row, unique, schemes)
            row += batch.num_rows
        schemes.finish()
        if layout.key is not None:
            unique.finish(partial(self._take_keys, layout.key), layout.key, self._where)

    def _check_batch(self, table: pa.Table, row: int, unique: UniqueCheck, schemes: SchemeCheck) -> None:
        layout = self._layout
        if layout.path is not None:
            paths = text_of(_leaf(table, layout.path))
            if not row and layout.image is None:
                check_paths(paths, self._root, layout.path, self._where)
            check_text(paths, row, layout.path, self._where)
            if layout.image is None:
                for uri in uri_of_each_scheme(resolve(paths, self._root)):
                    schemes.add(uri)
        if layout.key is not None:
            keys = text_of(table[layout.key])
            check_keys(keys, row, layout.key, self._where)
            unique.add(keys)

    def _take_keys(self, column: str, rows: np.ndarray) -> list[str]:
        """Return the keys of some rows, in a second pass over the column."""
        keys: list[str] = []
        first = 0
        for batch in self._stream([column], _TEXT_ROWS).batches(0, self.n_rows):
            low, high = np.searchsorted(rows, [first, first + batch.num_rows])
            keys += text_of(batch.column(0).take(pa.array(rows[low:high] - first))).to_pylist()
            first += batch.num_rows
        return keys

    @cached_property
    def digest(self) -> str:
        """Hex sha256 over the names, sizes and times of the files, the layout, and the files at the paths."""
        return self.digest_without(frozenset())

    def files(self, start: int, stop: int) -> Iterable[tuple[int, int]]:
        """Return size and mtime of the file at each row's path; -1 if it does not exist."""
        return map(version_of, self.rows(start, stop).column("uri").to_pylist())

    def digest_without(self, absent: Set[int]) -> str:
        """Return the `digest` as if the files of these rows were missing."""
        layout = self._layout
        identity = ["parquet", *(place.identity for place in self._files.places)]
        identity += [repr((layout.key, layout.path, layout.image, self.n_rows))]
        identity += [repr(self._files.folders)] if self._files.folders else []
        digest = RowDigest(identity, self.schema)
        if layout.path is None:
            return digest.hexdigest()
        stream = self._stream([layout.path], _TEXT_ROWS)
        for start in range(0, self.n_rows, _TEXT_ROWS):
            stop = min(start + _TEXT_ROWS, self.n_rows)
            if self._bytes_inside(start, stop) is True:
                continue
            uris = self._uris(self._read(stream, start, stop), start, stop).to_pylist()
            digest.add([""] * len(uris), uris, without(absent, start, map(version_of, uris)))
        return digest.hexdigest()


def _batches(stream: RowStream, start: int, stop: int) -> Iterator[pa.RecordBatch]:
    """Yield rows [start, stop) as batches; InputError if they cannot be read."""
    try:
        yield from stream.batches(start, stop)
    except BadGroup as error:
        raise InputError(f"{error}; write or fetch the file again") from None


def _row_leaves(layout: Layout, schema: pa.Schema) -> list[str]:
    """Return the columns that `rows` reads: key, path and the user's, without the bytes."""
    names = {leaf for leaf in (layout.key, layout.path) if leaf is not None}
    for name, _ in layout.user_columns:
        if name == layout.image:
            names |= {f"{name}.{part.name}" for part in schema.field(name).type if part.name != "bytes"}
        elif name in schema.names:  # else from the name of a folder
            names.add(name)
    return sorted(names)


def _leaf(table: pa.Table, leaf: str) -> pa.ChunkedArray:
    """Return a column, or a field of a struct column, by its path; a null struct has null fields."""
    if leaf in table.column_names:
        return table[leaf]
    name, _, part = leaf.rpartition(".")
    return pc.struct_field(table[name], part)


def _nulls_of(group: pq.RowGroupMetaData, leaf: str | None) -> str:
    for index in range(group.num_columns):
        chunk = group.column(index)
        if chunk.path_in_schema == leaf:
            known = chunk.statistics is not None and chunk.statistics.has_null_count
            if known and chunk.statistics.null_count == 0:
                return "none"
            return "all" if known and chunk.statistics.null_count == group.num_rows else "some"
    return "some"


def _inside(images: pa.Array, index: int, max_bytes: int) -> bytes:
    """Return the bytes of one row of a batch."""
    value = images[index].as_buffer()
    if value.size > max_bytes:
        raise too_large(value.size, max_bytes)
    BODIES.take(value.size)
    data: bytes = value.to_pybytes()
    return data


def _check_values(batch: pa.RecordBatch, where: str, row: int) -> None:
    """Refuse text that is not UTF-8, which Arrow's Parquet reader accepts but no writer does."""
    for name, values in zip(batch.schema.names, batch.columns, strict=True):
        try:
            values.validate(full=True)
        except pa.ArrowInvalid as error:
            raise InputError(
                f"the column {name!r} of {where} is damaged near row {row:,} ({str(error).splitlines()[0]}); "
                "write or fetch the file again, or remove the column"
            ) from None
