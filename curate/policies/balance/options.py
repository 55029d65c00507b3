"""The options of ``curate balance``."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared

To = str | Path | Sequence[str] | Mapping[str, object] | None  # type of the target


@dataclass(frozen=True, eq=False, repr=False)
class BalanceOptions:
    """The options of ``curate balance``."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": the subset, such as balanced.parquet", path="output")] = None
    _: KW_ONLY
    per: Annotated[
        str, shared("--per", " (cells), or clusters for clusters of k-means", metavar="COLUMN", default=True)
    ] = "label"
    to: Annotated[
        To,
        shared(
            "--to",
            ": uniform, square-root, a .csv or .json of classes and shares, or CLASS=SHARE (repeatable). "
            "[default: uniform]",
            metavar="TARGET",
            python='``"uniform"`` (the default), ``"square-root"``, a CSV or JSON file of classes and shares, '
            'texts like ``"cat=30%"``, or a mapping of class -> share.',
            offers=False,
        ),
    ] = None
    alpha: Annotated[
        float | None, Option("Instead of --to: shares proportional to size to this power, 0 to 1.", metavar="A")
    ] = None
    rows: Annotated[
        str | int | float | None,
        Option("Total rows: 1000 or 20%. [default: as many as the shares allow]", metavar="AMOUNT"),
    ] = None
    within: Annotated[str, Option("Rows to prefer within a group: random, certain or typical.")] = "random"
    column: Annotated[
        str | None,
        shared("--column", " of --within certain; max:COLUMN, min:COLUMN. [default: the table's own]", metavar="NAME"),
    ] = None
    clusters: Annotated[
        int | None, shared("--clusters", ", of --per clusters. [default: 100, or a tenth of the rows]", metavar="K")
    ] = None
    nearest: Annotated[bool, Option("Approximate shares that cannot be met exactly.")] = False
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
