"""The rows of a table and newly scored rows, merged in the order of the source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from curate.columns import CUSTOM as NOT_OURS
from curate.columns import ERROR, FRAMES, GONE, KEY, MTIME, N_BYTES, STATUS, URI, describe
from curate.engines.adding.compare import UNKNOWN, Comparison, as_stored, wider
from curate.engines.source import ManifestRows
from curate.manifest.contract import Manifest
from curate.tables.needs import SHA256
from curate.tables.table import Table

# Columns kept, with the user's, in a row of a removed image; it has no scores.
OF_FILE = {KEY, URI, "width", "height", N_BYTES, "format", FRAMES, SHA256, MTIME, STATUS, ERROR}
NO_LONGER = "the source no longer has it"
STEP = 32_768  # rows per row group


@dataclass(frozen=True)
class Order:
    """The origin of each of L rows of a new table.

    Attributes:
        old: row of the previous table, shape (L,); -1 for none.
        source: row of the source, shape (L,); -1 for a removed image.
        scored: row among the newly scored ones, shape (L,); -1 for none.
    """

    old: NDArray[np.int64]
    source: NDArray[np.int64]
    scored: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.old)

    @classmethod
    def of(cls, comparison: Comparison, scored: NDArray[np.int64]) -> "Order":
        """Return the order of the source; a removed row stays after its predecessor.

        ``scored`` are rows of the source in scoring order.
        """
        n, n_old = len(comparison.at), int(max(comparison.at.max(initial=-1), comparison.gone.max(initial=-1))) + 1
        place = np.full(n_old, -1)  # position in the source of each row of the table
        known = comparison.at >= 0
        place[comparison.at[known]] = np.flatnonzero(known)
        last_known = np.where(place >= 0, np.arange(n_old), -1)
        before = np.maximum.accumulate(last_known)[comparison.gone] if n_old else comparison.gone
        anchor = np.where(before >= 0, place[before.clip(0)], -1) if n_old else comparison.gone
        order = np.lexsort((np.r_[np.full(n, -1), comparison.gone], np.r_[np.arange(n), anchor]))
        of_source = np.full(n, -1)
        of_source[scored] = np.arange(len(scored))
        source = np.r_[np.arange(n), np.full(len(comparison.gone), -1)][order]
        is_scored = np.r_[of_source, np.full(len(comparison.gone), -1)][order]
        old = np.where(is_scored >= 0, -1, np.r_[comparison.at, comparison.gone][order])
        return cls(
            old, np.where(np.r_[comparison.absent, np.zeros(len(comparison.gone), bool)][order], -1, source), is_scored
        )


class Merged:
    """A table being written: unchanged rows, newly scored rows, and rows of removed images.

    Args:
        table: the previous one.
        part: newly scored rows; None for none.
        columns: of these rows, in addition to its files: name -> one value per row.
        order: of the rows.
        comparison: of the table with its source.
        manifest: the source.
        without: omitted columns of the previous table.

    Attributes:
        schema: of the new table.
        lacking: columns of the previous table that new rows lack, if types do not show it.

    Raises:
        InputError: for a user column that changed its type.
    """

    def __init__(
        self,
        table: Table,
        part: Table | None,
        columns: Mapping[str, pa.Array],
        order: Order,
        comparison: Comparison,
        manifest: Manifest,
        without: Sequence[str] = (),
    ) -> None:
        self._table, self._part, self._columns, self._order = table, part, columns, order
        self._comparison, self._manifest, times = comparison, manifest, comparison.times
        stored = table.stored.schema
        fields = [wider(field, manifest.schema) for field in stored]
        fields = [field if field.name == KEY else field.with_nullable(True) for field in fields]
        fields = [field for field in fields if field.name not in without]
        self._kept = [field.name for field in fields]
        new = [field.with_nullable(True) for field in manifest.schema if field.name not in stored.names]
        after_user = self._kept.index("width") if "width" in self._kept else len(fields)
        fields[after_user:after_user] = new
        if MTIME not in stored.names and (times != UNKNOWN).any():
            names = [field.name for field in fields]
            after = names.index(N_BYTES) + 1 if N_BYTES in names else len(fields)
            fields.insert(after, pa.field(MTIME, pa.int64()))
        self.schema = pa.schema(fields, table.file_metadata)
        has_values = {*(part.schema.names if part is not None else []), *columns, MTIME}
        self.lacking = [name for name in self.schema.names if part is not None and name not in has_values]

    def batches(self, step: int = STEP) -> Iterator[pa.Table]:
        """Yield the rows in batches."""
        for start in range(0, len(self._order), step):
            yield self._rows(slice(start, min(start + step, len(self._order))))

    def _rows(self, span: slice) -> pa.Table:
        old, scored, source = self._order.old[span], self._order.scored[span], self._order.source[span]
        is_old = old >= 0
        is_gone = source < 0
        before = self._table.stored.take(old[is_old], self._kept)
        added = None if self._part is None else self._scored(scored[~is_old])
        place = np.empty(len(old), np.int64)
        place[is_old] = np.arange(is_old.sum())
        place[~is_old] = is_old.sum() + np.arange((~is_old).sum())
        is_other = ~is_gone & (self._comparison.renamed | self._comparison.edited)[source]
        others = ManifestRows(self._manifest, source[is_other]).rows(0, int(is_other.sum()))
        all_rows, scores = pa.array(place), pa.array(place, mask=is_gone)
        of_source = pa.array(np.where(is_other, len(place) + np.cumsum(is_other) - 1, place))
        arrays = []
        for field in self.schema:
            if field.name == MTIME:
                arrays.append(self._mtimes(before, is_old, is_gone, source))
                continue
            pieces = [
                *(
                    as_stored(before.column(field.name), field, self._table).chunks
                    if field.name in self._kept
                    else [pa.nulls(len(before), field.type)]
                ),
                *(added.column(field.name).chunks if added is not None else []),
            ]
            if field.name in others.column_names:
                pieces += as_stored(others.column(field.name), field, self._table).chunks
            values = pa.chunked_array(pieces, field.type)
            if field.name in others.column_names:
                values = values.take(of_source)
            else:
                keeps = field.name in OF_FILE or describe(field.name) is NOT_OURS
                values = values.take(all_rows if keeps else scores)
            if is_gone.any() and field.name in (STATUS, ERROR):
                values = _marked(values, is_gone, GONE if field.name == STATUS else NO_LONGER)
            if field.name == URI and (uris := self._comparison.uris) is not None:
                values = pc.coalesce(uris.take(pa.array(source, mask=is_gone)).cast(field.type), values)
            arrays.append(values)
        return pa.Table.from_arrays(arrays, schema=self.schema.remove_metadata())

    def _scored(self, rows: NDArray[np.int64]) -> pa.Table:
        """Return some of the newly scored rows, with the columns and types of the table."""
        if self._part is None:
            raise ValueError("nothing was scored")
        scored_names = set(self._part.schema.names)
        taken = self._part.take(rows, [name for name in self.schema.names if name in scored_names])
        arrays = []
        for field in self.schema:
            if field.name in scored_names:
                arrays.append(as_stored(taken.column(field.name), field, self._table))
            elif field.name in self._columns:
                arrays.append(as_stored(self._columns[field.name].take(pa.array(rows)), field, self._table))
            else:
                arrays.append(pa.nulls(len(rows), field.type))
        return pa.table(arrays, names=self.schema.names)

    def _mtimes(
        self, before: pa.Table, is_old: NDArray[np.bool_], is_gone: NDArray[np.bool_], source: NDArray[np.int64]
    ) -> pa.Array:
        """Return the current times of files, and the previous times of removed files."""
        times = self._comparison.times
        now = np.where(is_gone, UNKNOWN, times[source.clip(0)] if len(times) else UNKNOWN)
        if MTIME in before.column_names:
            was = before.column(MTIME).cast(pa.int64()).fill_null(UNKNOWN).to_numpy()
            now[is_old] = np.where(now[is_old] == UNKNOWN, was, now[is_old])
        return pa.array(now, mask=now == UNKNOWN).cast(self.schema.field(MTIME).type)


def _marked(values: pa.ChunkedArray, is_gone: NDArray[np.bool_], text: str) -> pa.Array:
    texts = values.to_pylist()
    for row in np.flatnonzero(is_gone).tolist():
        texts[row] = text
    return pa.array(texts, values.type)
