"""The options of ``curate calibrate``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class CalibrateOptions:
    """The options of ``curate calibrate``."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": the calibration, NAME.json, for tables of the same model")] = (
        None
    )
    _: KW_ONLY
    apply: fields.Apply = None
    fitted: Annotated[str | Path | None, shared("--fitted", ": a calibration", path="local")] = None
    column: Annotated[
        str | None, shared("--column", ", or max:COLUMN, min:COLUMN for scores of certainty; by default the audit's")
    ] = None
    bad: Annotated[str | None, Option("True of bad rows, false of good ones.", metavar="CONDITION")] = None
    audit: Annotated[
        str | Path | Sequence[str | Path] | None, shared("--audit", ": NAME.audit.csv, or key and answer (repeatable)")
    ] = None
    judges: fields.Judges = "any"
    label: Annotated[str | None, shared("--label", ": the probability is of a nearest neighbour of another class")] = (
        None
    )
    labelled: Annotated[str | Path | None, shared("--labelled", ", or a folder of rounds, for --label")] = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    overwrite: fields.Overwrite = False
    repeats: Annotated[int, Note("Bootstrap resamples of the intervals.")] = 1000
    report: fields.Report = lambda text: None
