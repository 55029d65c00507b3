"""The options of ``curate fit`` and ``curate merge``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class FitOptions:
    """The options of ``curate fit``."""

    table: fields.Table
    out: Annotated[str | Path | None, shared("--out", ": the model, NAME.safetensors, for later images")] = None
    _: KW_ONLY
    apply: fields.Apply = None
    fitted: Annotated[str | Path | None, shared("--fitted", ": a model", path="local")] = None
    model: Annotated[
        str | Path | None,
        shared(
            "--model", ", or timm:NAME: the one that scored the table; found automatically if it ships", path="name"
        ),
    ] = None
    label: Annotated[str | None, shared("--label", " to learn from, of the table or of --labelled", default=True)] = (
        None
    )
    labelled: Annotated[str | Path | None, shared("--labelled", ", or a folder of rounds: to learn from")] = None
    embedding: fields.Embedding = None
    seed: fields.Seed = 0
    source: fields.Source = None
    engine: fields.Engine = "local"
    overwrite: fields.Overwrite = False
    report: fields.Report = lambda text: None


@dataclass(frozen=True, eq=False, repr=False)
class MergeOptions:
    """The options of ``curate merge``."""

    tables: Annotated[
        Sequence[str | Path], Option("Scored tables of one model.", metavar="TABLE", path="table", argument=True)
    ]
    out: Annotated[str | Path, shared("--out", ": the table, NAME.parquet")]
    _: KW_ONLY
    prefix: Annotated[bool, Option("Prefix each key with the name of its table: photos/cat.jpg.")] = False
    root: Annotated[str | None, shared("--root", ": the folder where the images of one table are now")] = None
    overwrite: fields.Overwrite = False
    report: fields.Report = lambda text: None
