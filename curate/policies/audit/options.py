"""The options of ``curate review plan`` and ``curate review verdicts``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class ReviewPlanOptions:
    """The options of ``curate review plan``."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": NAME.audit.csv")] = None
    column: Annotated[str | None, shared("--column", ", by which rows will be cut")] = None
    _: KW_ONLY
    max_bad_rate: Annotated[
        str | float, Option("Upper limit for the share of bad rows: 2%.", metavar="SHARE", default=False)
    ]
    confidence: fields.Confidence = "95%"
    keep: Annotated[str | float, Option("Draw only among this many of the most certain rows.", metavar="AMOUNT")] = (
        "100%"
    )
    expected: Annotated[
        str | float | None,
        Option("Assumed share of bad rows in the better half. [default: a quarter of --max-bad-rate]", metavar="SHARE"),
    ] = None
    images: Annotated[int | None, Option("Number to draw. [default: enough in most cases]", metavar="N")] = None
    label: Annotated[
        str | None, shared("--label", ", shown with each image: bad is a wrong label", metavar="COLUMN")
    ] = None
    seed: fields.Seed = 0
    overwrite: fields.Overwrite = False


@dataclass(frozen=True, eq=False, repr=False)
class ReviewVerdictsOptions:
    """The options of ``curate review verdicts``."""

    answers: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "With the answers filled in: NAME.audit.csv of curate review plan or of curate dedup --audit, or "
            "NAME.review.csv of curate labels --review.",
            argument=True,
        ),
    ]
    _: KW_ONLY
    target_precision: Annotated[
        float | None, Option("For pairs: also suggest the loosest threshold with this precision.", metavar="SHARE")
    ] = None
    confidence: fields.Confidence = "95%"
    judges: fields.Judges = "any"
