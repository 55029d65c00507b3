"""The options of ``curate labels``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class LabelsOptions:
    """The options of ``curate labels``."""

    table: fields.Table
    out: Annotated[
        str | Path | None,
        shared("--out", ": the table with label_quality and suggestions, NAME.parquet", path="output"),
    ] = None
    label: Annotated[
        str | Sequence[str] | None,
        shared("--label", "; repeat it for several annotators. [default: label, if it exists]", metavar="COLUMN"),
    ] = None
    _: KW_ONLY
    labelled: Annotated[
        str | Path | None, shared("--labelled", ", or a folder of rounds: instead of a column of the table")
    ] = None
    drop_suspected: Annotated[bool, Option("Drop the rows whose label is suspected.")] = False
    relabel: Annotated[
        str | None, Option("New column: the suggested label instead of a suspected one.", metavar="NAME")
    ] = None
    below: Annotated[float, Option("Labels of lower quality are suspected.", metavar="X")] = 0.5
    review: Annotated[int | None, Option("Write N rows for a reviewer to judge.", metavar="N")] = None
    verdicts: fields.Verdicts = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    overwrite: fields.Overwrite = False
