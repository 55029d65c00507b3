"""The table of a folder of rounds as arrays."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import EMBEDDING, KEY
from curate.rounds.files.settings import Guard, RoundSettings
from curate.tables.digests import plain, tie_breaks
from curate.tables.needs import EMBEDDINGS, Needs
from curate.tables.rows import Rows, read_rows
from curate.tables.signals import Signals, quality_signal, signal
from curate.tables.table import Table, open_table
from scoring.errors import InputError

Places = NDArray[np.int64]


@dataclass(frozen=True)
class TableRows:
    """The columns of a table that rounds need.

    Attributes:
        table: the opened table.
        rows: sorted by the hash of their keys.
        usable: mask of scored rows with a usable embedding, shape (N,).
    """

    table: Table
    rows: Rows
    usable: NDArray[np.bool_]

    @property
    def vectors(self) -> NDArray[np.floating]:
        """Unit rows, shape (N, D)."""
        return self.rows.array(EMBEDDING)

    def find(self, keys: Iterable[str]) -> Places:
        """Return the row of each key, shape (M,); InputError for a missing key."""
        key_list = list(keys)
        rows = self.rows.find(tie_breaks([key.encode("utf-8", "surrogateescape") for key in key_list]))
        if (rows < 0).any():
            lost = key_list[int(np.flatnonzero(rows < 0)[0])]
            raise InputError(
                f"expected the rows of these rounds in {self.table.path}, got no key {lost!r} "
                f"({int((rows < 0).sum()):,} are missing); pass the table that the folder was made from"
            )
        return rows

    def take(self, rows: Places, names: Iterable[str]) -> pa.Table:
        """Return columns of some rows, in the given order, without columns that the table lacks."""
        return self.table.take(self.rows.place[rows], [name for name in names if name in self.table.schema.names])

    def keys(self, rows: Places) -> list[str]:
        """Return the keys of some rows, as text."""
        column = plain(self.take(rows, [KEY])[KEY].combine_chunks())
        keys: list[str] = column.cast(pa.string()).to_pylist()
        return keys


def read_table(path: str | Path, numbers: tuple[str, ...] = ()) -> TableRows:
    """Read keys, statuses, embeddings and the strategy's numeric columns; InputError if missing or repeated."""
    table = open_table(path, require=[KEY])
    rows = read_rows(table, Needs(representations=EMBEDDINGS, numbers=numbers), by_hash=True)
    if not len(rows):
        raise InputError(f"expected a table with rows, got none in {table.path}; score some images")
    return TableRows(table, rows, rows.ok & (rows.embedding_problem == 0))


def signals_of(guard: Guard, table: Table) -> Signals:
    """Return the columns of score and quality; InputError if one is missing or has no known direction.

    Args:
        guard: the settings; a gate or discount without a quality column uses the default one.
        table: with the columns.
    """
    uses_quality = guard.quality or guard.gate or guard.discount or guard.noise_guard
    return Signals(
        score=signal(guard.score, table, certain_first=False, flag="--score") if guard.score else None,
        quality=quality_signal(guard.quality, table) if uses_quality else None,
    )


def table_of(settings: RoundSettings, folder: Path, path: str | Path | None = None) -> TableRows:
    """Read the table of a folder of rounds; InputError if it is missing, or has other keys or embeddings.

    Args:
        settings: of the folder.
        folder: for messages.
        path: present path of the table; None if not moved.
    """
    place = Path(settings.table if path is None else path)
    if not place.exists():
        raise InputError(f"expected the table of {folder} at {place}, which is missing; pass its place as --table")
    scored = read_table(place, signals_of(settings.guard, open_table(place, require=[KEY])).columns)
    refuse_another(settings, folder, scored)
    return scored


def refuse_another(settings: RoundSettings, folder: Path, scored: TableRows) -> None:
    """Raise InputError, with the difference, for a table other than the folder's."""
    if scored.rows.model != settings.model:
        models = [digest[:12] or "unknown" for digest in (settings.model, scored.rows.model)]
        raise InputError(
            f"{folder} holds rounds of {settings.table} (model {models[0]}), got embeddings of another model in "
            f"{scored.table.path} (model {models[1]}); pass the table that it was made from, or make another folder"
        )
    if scored.rows.digest != settings.digest:
        raise InputError(
            f"{folder} holds rounds of {settings.table} ({settings.n_rows:,} rows, digest {settings.digest[:12]}), got "
            f"other keys or embeddings in {scored.table.path} ({len(scored.rows):,} rows, digest "
            f"{scored.rows.digest[:12]}); pass the table that it was made from, or make another folder"
        )
