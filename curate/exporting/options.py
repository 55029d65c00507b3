"""The options of ``curate export``."""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from curate.exporting.table import ALIASES, FORMATS
from curate.options import fields
from curate.options.option import Note, Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class ExportOptions:
    """The options of ``curate export``."""

    table: fields.Table
    out: Annotated[
        str | Path | None, shared("--out", ": a folder, or for csv, jsonl, coco, label-studio and paths a file")
    ] = None
    _: KW_ONLY
    to: Annotated[
        str,
        shared(
            "--to",
            ": " + ", ".join(FORMATS) + "; " + ", ".join(f"{other} is {name}" for other, name in ALIASES.items()),
            metavar="FORMAT",
        ),
    ]
    label: Annotated[str | None, shared("--label", "; by default label, if it exists")] = None
    classes: Annotated[
        str | Path | Sequence[str] | None,
        shared("--classes", "; by default the table's own list", metavar="NAMES|FILE|TABLE", path="name", commas=True),
    ] = None
    per: Annotated[
        str | None, shared("--per", ": folders of folder; train, val and test of yolo, imagefolder and huggingface")
    ] = None
    take: Annotated[
        str | Sequence[str] | None,
        Option(
            "Columns to export, a,b,c or 'kappa_*'; by default key and label if images are written, else all.",
            metavar="NAMES",
            commas=True,
        ),
    ] = None
    link: Annotated[str, shared("--link", metavar="HOW", default=True)] = "copy"
    resize: Annotated[int | None, Option("Maximum pixels of the short side.", metavar="SIDE")] = None
    encode: Annotated[
        str | None, Option("Encode images again: jpeg, png, webp, jpeg:QUALITY or webp:QUALITY.", metavar="KIND")
    ] = None
    shard: Annotated[
        str | None,
        Option(
            "Images per shard, or bytes such as 500MB; by default 10,000, and at most 1 GB if sizes are known.",
            metavar="SIZE",
        ),
    ] = None
    null: Annotated[bool, Option("With paths: end each with a NUL, for xargs -0.")] = False
    skip_missing: Annotated[bool, Option("Skip rows whose image is gone or changed; OUT.missing.csv lists them.")] = (
        False
    )
    source: fields.Source = None
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
    log: fields.Log = None
    report: Annotated[Callable[[Any], None] | None, Note("Called after each part with an ``ExportProgress``.")] = None
