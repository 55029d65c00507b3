"""The request of a scoring run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curate.engines.options import ScoreOptions
    from curate.manifest import SourceOptions
    from curate.manifest.store_path import AnyPath
    from curate.tables.table import Table


@dataclass(frozen=True)
class ScoreRequest:
    """The request of a scoring run.

    Attributes:
        options: as given; the other fields are derived from them.
        out: path of the table.
        model: a shipped model's name, or a checkpoint.
        reading: how the source is read.
        retry: statuses of the rows that are read again.
        table: at ``out``, to which rows are added; None for a new table.
    """

    options: "ScoreOptions"
    out: "AnyPath"
    model: str | Path
    reading: "SourceOptions"
    retry: frozenset[str]
    table: "Table | None" = None
