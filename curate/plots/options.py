"""The options of ``curate plot``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared
from curate.plots.table import KINDS


@dataclass(frozen=True, eq=False, repr=False)
class PlotOptions:
    """The options of ``curate plot``."""

    table: fields.Table
    kind: Annotated[
        str,
        Option(", ".join(KINDS) + ".", argument=True),
    ]
    _: KW_ONLY
    out: Annotated[str | Path | None, shared("--out", ": NAME.png, .svg or .pdf")] = None
    column: Annotated[
        str | Sequence[str] | None, shared("--column", " (repeatable). [default: every kappa_* and unc_*]")
    ] = None
    per: Annotated[str | None, shared("--per", ", each with its colour or line")] = None
    label: fields.LabelOfEither = None
    labelled: fields.Labelled = None
    right: Annotated[str | None, Option("Column that says whether your own prediction is right: 1 or 0.")] = None
    prediction: Annotated[
        str | None, Option("What predicts labels: linear, neighbour or kNN. [default: the first that there is]")
    ] = None
    embedding: fields.Embedding = None
    title: Annotated[str, Option("Over the image; papers say it beneath.", default=False)] = ""
    width: Annotated[float, Option("In mm: a column of a journal has 89, its page 183.")] = 89.0
    repeats: Annotated[int, shared("--repeats", ": bootstrap resamples of the bands", default=True)] = 1000
    sample: Annotated[int | None, shared("--sample")] = None
    overwrite: fields.Overwrite = False
    announce: fields.Announce = lambda text: None
