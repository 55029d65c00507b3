"""The options of ``curate split``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class SplitOptions:
    """The options of ``curate split``."""

    table: fields.Table
    out: Annotated[
        str | Path | None, shared("--out", ": the table with a column split, such as split.parquet", path="output")
    ] = None
    _: KW_ONLY
    train: Annotated[str | float | None, shared("--train", ": a share, 80% or 0.8", metavar="SHARE")] = None
    val: Annotated[str | float | None, Option("Share of the side val.", metavar="SHARE")] = None
    test: Annotated[str | float | None, shared("--test", ": the side test", metavar="SHARE")] = None
    side: Annotated[str | Sequence[str] | None, Option("A side with any name (repeatable).", metavar="NAME=SHARE")] = (
        None
    )
    per: Annotated[
        str | Sequence[str] | None,
        shared("--per", ": the shares hold in each combination (repeatable)", metavar="COLUMN"),
    ] = None
    group: Annotated[str | None, shared("--group", ": rows with the same value stay on one side", metavar="COLUMN")] = (
        None
    )
    exact: Annotated[bool, Option("Meet the shares to within a row, also without --per.")] = False
    finder: fields.Finder = None
    mirrored: fields.Mirrored = False
    duplicates: Annotated[bool, Option("Whether to search for copies.", name="--duplicates/--no-duplicates")] = True
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
