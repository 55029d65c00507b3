"""The options of ``curate review``."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared
from curate.reporting.options import Label, Points, PolicyResults, SortedBy


@dataclass(frozen=True, eq=False, repr=False)
class ReviewOptions:
    """The options of ``curate review``."""

    table: Annotated[
        str | Path,
        Option("Folder of curate clean, or a scored table: Parquet, or part-*.parquet.", path="table", argument=True),
    ]
    results: PolicyResults = None
    _: KW_ONLY
    browse: Annotated[bool, Option("Open the list of all images.")] = False
    verdicts: Annotated[
        str | Path | None,
        shared("--verdicts", "; new decisions are appended. [default: next to the table]", path="local"),
    ] = None
    reviewer: Annotated[str | None, Option("Name of the reviewer. [default: your user name]", metavar="NAME")] = None
    column: SortedBy = None
    label: Label = None
    source: fields.Source = None
    points: Points = 5_000
    port: Annotated[int, Option("Port to listen on; 0 for any free port.", least=0, most=65_535)] = 0
