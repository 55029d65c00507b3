"""Writing of Parquet tables: validated, and renamed when complete."""

import base64
import io
import json
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from curate import columns
from curate.tables.batches import BATCH_BYTES, is_flat_text
from curate.tables.digests import value_type
from curate.tables.table import METADATA_KEY
from curate.version import __version__
from scoring.atomic import AtomicFile

ROW_GROUP_ROWS = 32_768
# No dictionary where nearly every value differs: it would only be built and thrown away.
PLAIN_COLUMNS = frozenset({columns.KEY, columns.URI, "sha256", "reason"})


class TableWriter:
    """Writes one Parquet file with page checksums and fixed settings, and renames it when complete.

    Equal rows give equal bytes, independent of the split into calls, if row groups (32,768 rows) stay under 64 MB;
    larger ones are closed early, at the end of a call.

    Args:
        path: the final name; missing folders above it are created.
        schema: Arrow schema; its metadata is kept in addition to ours, except pandas' index.
        metadata: JSON values: ``kind`` is required; ``curate`` (version) and ``columns`` are filled in.
        overwrite: replace an existing file.

    Raises:
        InputError: if the path exists or cannot be written; see ``AtomicFile``.
    """

    def __init__(
        self, path: str | Path, schema: pa.Schema, metadata: dict[str, Any], *, overwrite: bool = False
    ) -> None:
        described = {"curate": __version__, "columns": columns.describe_all(schema.names), **metadata}
        if "kind" not in described:
            raise ValueError("metadata needs a 'kind', such as 'scores'")
        kept = {key: value for key, value in (schema.metadata or {}).items() if key not in (b"pandas", METADATA_KEY)}
        text = json.dumps(described, sort_keys=True, ensure_ascii=False)
        self.schema = schema.with_metadata({**kept, METADATA_KEY: text.encode()})
        self.n_rows = 0
        self.file = AtomicFile(path, overwrite=overwrite)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        self._n_waiting = self._bytes_waiting = 0

    def write(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Append rows whose columns have the names, order and types of ``schema``; ValueError otherwise.

        Text may be dictionaries, in all calls or in none, which is faster; it is read back as text. Raises InputError
        if the file cannot be written.
        """
        table = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
        bare = table.schema.remove_metadata()
        if self.schema.remove_metadata() not in (bare, _decoded(bare)):
            raise ValueError(f"rows have the schema {table.schema}, expected {self.schema}")
        self.n_rows += table.num_rows
        self._waiting.append(table)
        self._n_waiting += table.num_rows
        self._bytes_waiting += table.nbytes
        if self._n_waiting >= ROW_GROUP_ROWS or self._bytes_waiting >= BATCH_BYTES:
            self._write_groups(everything=False)

    def _write_groups(self, *, everything: bool) -> None:
        table = pa.concat_tables(self._waiting) if self._waiting else self.schema.empty_table()
        large = table.nbytes >= BATCH_BYTES and table.num_rows <= ROW_GROUP_ROWS
        n_now = table.num_rows if everything or large else table.num_rows // ROW_GROUP_ROWS * ROW_GROUP_ROWS
        if n_now:
            rows = table.slice(0, n_now)
            if any(column.num_chunks > 1 for column in rows.columns):
                rows = rows.combine_chunks()
            self._open(rows.schema).write_table(rows, row_group_size=ROW_GROUP_ROWS)
        rest = table.slice(n_now)
        self._waiting = [rest] if rest.num_rows else []
        self._n_waiting, self._bytes_waiting = rest.num_rows, rest.nbytes

    def _open(self, schema: pa.Schema) -> pq.ParquetWriter:
        """Return the Parquet writer, created with the first rows, since it must know which text is in dictionaries."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.file, schema.remove_metadata(), **_settings(self.schema))
            plain = base64.b64encode(self.schema.serialize().to_pybytes())
            self._writer.add_key_value_metadata({**self.schema.metadata, b"ARROW:schema": plain})  # read as text again
        return self._writer

    def seal(self) -> None:
        """Write buffered rows and the footer, and flush to the disk; ``commit_together`` renames the file."""
        if self._writer is None or self._writer.is_open:
            self._write_groups(everything=True)
            self._open(self.schema).close()
        self.file.seal()

    def discard(self) -> None:
        """Remove what was written; the final name is not touched."""
        self._waiting = []
        if self._writer is not None:
            self._writer.is_open = False  # or its destructor would write a footer to a closed file
        self.file.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self.seal()
                self.file.publish()
        finally:
            self.discard()


def write_table(path: str | Path, table: pa.Table, metadata: dict[str, Any], *, overwrite: bool = False) -> None:
    """Write a table in memory as a Parquet file; see ``TableWriter``."""
    with TableWriter(path, table.schema, metadata, overwrite=overwrite) as writer:
        writer.write(table)


def _decoded(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the types of values instead of dictionaries of them."""
    return pa.schema([each.with_type(value_type(each.type)) for each in schema])


def _settings(schema: pa.Schema) -> dict[str, Any]:
    """Return fixed Parquet settings: zstd for all but embeddings, dictionaries only for text that may repeat."""
    buffer = io.BytesIO()
    pq.write_table(schema.empty_table(), buffer)
    leaves = pq.ParquetFile(buffer).schema
    paths = [leaves.column(i).path for i in range(len(leaves))]
    repeats = [f.name for f in schema if is_flat_text(f.type) and f.name not in PLAIN_COLUMNS]
    packed = {field.name for field in schema if pa.types.is_fixed_size_list(field.type)}
    wide = [field.name for field in schema if field.type == pa.float64()]  # often float32, whose last bytes are zero
    return {
        "version": "2.6",
        "compression": {path: "NONE" if path.split(".", 1)[0] in packed else "ZSTD" for path in paths},
        "compression_level": {
            path: 1 if path in ("reason", *wide) else 3 for path in paths if path.split(".", 1)[0] not in packed
        },
        "use_dictionary": repeats or False,
        "column_encoding": dict.fromkeys(wide, "BYTE_STREAM_SPLIT") or None,
        "write_statistics": [path for path in paths if path.split(".", 1)[0] not in {*packed, *repeats, "reason"}],
        "data_page_size": 1 << 20,
        "data_page_version": "1.0",
        "write_page_checksum": True,
        "write_page_index": False,
        "store_schema": False,  # `_open` does
    }
