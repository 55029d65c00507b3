"""What ``curate diff`` can be given."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True)
class DiffOptions:
    """The options of ``curate diff``."""

    table: Annotated[
        str | Path,
        Option("A subset, its receipt or its decisions; or any table of keys.", path="table", argument=True),
    ]
    other: Annotated[str | Path, Option("The table to compare it with.", path="table", argument=True)]
    _: KW_ONLY
    root: Annotated[
        str | Path | Sequence[str | Path] | None,
        shared("--root", ": files that moved are found below it, by their digest"),
    ] = None
    out: Annotated[
        str | Path | None, shared("--out", ": every row that only one of them holds, and why, NAME.parquet")
    ] = None
    overwrite: fields.Overwrite = False
