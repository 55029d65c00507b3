"""The options of ``curate report``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared

Results = str | Path | Sequence[str | Path] | None
PolicyResults = Annotated[
    Results, Option("Outputs of policies: subsets, decisions, receipts, or the folder of a pipeline.", argument=True)
]
SortedBy = Annotated[
    str | None, shared("--column", " that rows are sorted by; by default unc_fitted, else the model's own")
]
Label = Annotated[str | None, shared("--label", "; by default label, if it exists")]
Points = Annotated[int, Option("Rows on the map, which needs the extra map; 0: no map.", least=0)]


@dataclass(frozen=True, eq=False, repr=False)
class ReportOptions:
    """The options of ``curate report``."""

    table: fields.Table
    results: PolicyResults = None
    out: Annotated[str | Path | None, shared("--out", ": the page, NAME.html")] = None
    _: KW_ONLY
    column: SortedBy = None
    label: Label = None
    source: fields.Source = None
    sample: Annotated[int, shared("--sample", " (listed on the page)", least=1, default=True)] = 20_000
    thumbs: Annotated[int, Option("Maximum number of thumbnails.", least=0)] = 1_000
    points: Points = 5_000
    measured: Annotated[str | Path | None, Option("Also show the results of curate evaluate -o.")] = None
    findings: Annotated[
        str | Path | None,
        Option(
            "Also write kept rows with a finding, by kind, the most serious first: a CSV and contact sheets.",
            metavar="FOLDER",
        ),
    ] = None
    overwrite: fields.Overwrite = False
