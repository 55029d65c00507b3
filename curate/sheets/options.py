"""The options of ``curate sheet``."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class SheetOptions:
    """The options of ``curate sheet``."""

    table: fields.Table
    out: Annotated[str | Path, shared("--out", ": the image, NAME.png")]
    _: KW_ONLY
    source: fields.Source = None
    column: Annotated[
        str | None, shared("--column", " to sort by; by default unc_fitted, else the column of the model's method")
    ] = None
    top: Annotated[int, shared("--top", ": images", least=0, default=True)] = 30
    bottom: Annotated[int, Option("Images with the lowest values.", least=0)] = 30
    decisions: Annotated[
        str | Path | None,
        Option("Draw both sides of the cut, from NAME.decisions.parquet of curate filter: kept green, dropped red."),
    ] = None
    overwrite: fields.Overwrite = False
