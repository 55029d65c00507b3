"""The options of ``curate select``."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared
from curate.selectors.table import SELECTORS


@dataclass(frozen=True)
class SelectParameters:
    """The options of ``curate select`` that the receipt records."""

    strategy: Annotated[str, shared("--strategy", f": {', '.join(SELECTORS)}", metavar="NAME", default=True)] = "auto"
    budget: Annotated[
        str | int | float, shared("--budget", " to pick: 500, or a share: 0.1, 10%", metavar="AMOUNT", required=True)
    ] = 100
    _: KW_ONLY
    labelled: Annotated[str | Path | None, shared("--labelled", path="table")] = None
    labelled_where: Annotated[
        str | None, Option("Rows of the table that are labelled: 'label is not null'.", metavar="CONDITION")
    ] = None
    label: Annotated[
        str | None,
        shared("--label", ", in --labelled or in the table. [default: label, if it exists]", metavar="COLUMN"),
    ] = None
    exclude: Annotated[str | Path | None, Option("CSV, list or table whose keys are never picked.", path="table")] = (
        None
    )
    allow_unmatched: fields.AllowUnmatched = False
    per: Annotated[str | None, shared("--per", ": the budget in each", metavar="COLUMN")] = None
    balance: Annotated[
        str | None, Option("Share the budget equally among the values of a column.", metavar="COLUMN")
    ] = None
    min_distance: Annotated[
        float | None,
        Option(
            "Stop at the first pick closer than D to another or to a labelled row, between unit embeddings: "
            "0.32 is a cosine of 0.95.",
            metavar="D",
        ),
    ] = None
    noise_guard: fields.NoiseGuard = False
    gate: fields.Gate = 0.0
    discount: fields.Discount = False
    quality: fields.Quality = None
    score: fields.Score = None
    holdout_loss: Annotated[
        str | None, Option("small-loss: column of losses of a model trained on other rows.", metavar="COLUMN")
    ] = None
    seed: fields.Seed = 0


@dataclass(frozen=True, eq=False, repr=False)
class SelectOptions(SelectParameters, fields.TableOptions):
    """The options of ``curate select``."""

    out: Annotated[str | Path | None, shared("--out", ": the batch, such as batch.parquet", path="output")] = None
    _: KW_ONLY
    set: fields.Settings = None
    embedding: fields.Embedding = None
    engine: fields.Engine = "local"
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
    picked: Annotated[
        Callable[[int, int], None], Note("Called with rows picked, of all, if they are picked one after another.")
    ] = lambda done, total: None
    announce: fields.Announce = lambda text: None
