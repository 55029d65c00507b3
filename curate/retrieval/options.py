"""The options of ``curate retrieve``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class RetrieveOptions:
    """The options of ``curate retrieve``."""

    table: fields.Table
    queries: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "Keys of the table, images, folders of images, or scored tables.",
            metavar="QUERY...",
            path="name",
            argument=True,
            python="One or several: keys of rows, images, folders of images, or other scored tables. A row is not "
            "its own answer.",
        ),
    ]
    _: KW_ONLY
    out: Annotated[str | Path | None, shared("--out", ": the answers, NAME.parquet, .csv or .jsonl")] = None
    top: Annotated[int | None, shared("--top", ": rows of each query, by cosine. [default: 10, or all inside]")] = None
    credible: Annotated[
        float | None,
        Option(
            (
                "Return all rows in the region that contains a query's nearest match with this probability: "
                "more for uncertain queries."
            ),
            metavar="SHARE",
            python="Probability, in (0, 1), with which what a query shows lies inside its region; the rows inside "
            "are given.",
        ),
    ] = None
    calibrate: Annotated[
        str | None,
        Option(
            "Classes on which these regions are calibrated: the probability holds for a row of the query's class.",
            metavar="COLUMN",
            python="Column of classes, on whose rows the regions are calibrated: they then hold the nearest row of "
            "a query's class with that probability, whatever the certainty is. Needed where the certainty "
            "is no concentration around the embeddings, as of the models that ship.",
        ),
    ] = None
    reject: Annotated[
        str | float | None,
        Option(
            "Do not answer queries less certain than this share of the table (10%), or than a value.",
            metavar="CUT",
            python='Queries less certain than this are not answered: ``"10%"``, less than the least certain tenth '
            "of the table, or a value of the column.",
        ),
    ] = None
    certainty: Annotated[
        str | None,
        Option(
            "Column of certainty: kappa_*, unc_*, or max:COLUMN, min:COLUMN. [default: "
            "unc_fitted for rows of the table, or with a fitted --model; else the model's own]",
            metavar="COLUMN",
        ),
    ] = None
    model: Annotated[
        str | Path | None, shared("--model", ", for images: the table's, or what curate fit made of it", path="name")
    ] = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    overwrite: fields.Overwrite = False
    announce: fields.Announce = lambda text: None
