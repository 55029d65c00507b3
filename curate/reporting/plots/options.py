"""The options of ``curate plot``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared
from curate.reporting.plots.table import KINDS


@dataclass(frozen=True, eq=False, repr=False)
class PlotOptions:
    """The options of ``curate plot``."""

    table: fields.Table
    kind: Annotated[str, Option(", ".join(KINDS) + ".", argument=True)]
    _: KW_ONLY
    out: Annotated[str | Path | None, shared("--out", ": NAME.png, .svg or .pdf")] = None
    column: Annotated[
        str | Sequence[str] | None, shared("--column", " (repeatable). [default: every kappa_* and unc_*]")
    ] = None
    per: Annotated[str | None, shared("--per", ", each with its colour or line")] = None
    label: fields.LabelOfEither = None
    labelled: fields.Labelled = None
    right: Annotated[str | None, Option("Column of whether your prediction is right: 1 or 0.")] = None
    prediction: Annotated[
        str | None, Option("Classifier of labels: linear, neighbour or kNN. [default: the first available]")
    ] = None
    embedding: fields.Embedding = None
    title: Annotated[str, Option("Title above the chart; papers use captions instead.", default=False)] = ""
    width: Annotated[float, Option("Width in mm: 89 for a column of a journal, 183 for a page.")] = 89.0
    repeats: Annotated[int, shared("--repeats", ": bootstrap resamples of the bands", default=True)] = 1000
    sample: Annotated[int | None, shared("--sample")] = None
    overwrite: fields.Overwrite = False
    announce: fields.Announce = lambda text: None
