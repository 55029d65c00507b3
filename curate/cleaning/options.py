"""The options of ``curate clean``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class CleanOptions:
    """The options of ``curate clean``."""

    source: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "Folder, list (.txt), CSV, JSONL, Parquet, WebDataset .tar, or URL (s3://...); several are read as one.",
            path="name",
            argument=True,
        ),
    ]
    out: Annotated[str | Path, shared("--out", ": a folder, such as cleaned", path="local")]
    _: KW_ONLY
    model: Annotated[str | Path, shared("--model", " (see `curate models`)", path="name", default=True)] = "world"
    label: Annotated[
        str | None, shared("--label", ", to find wrong labels. [default: label, if it exists]", metavar="COLUMN")
    ] = None
    label_from_folder: Annotated[bool, shared("--label-from-folder", ", to find wrong labels")] = False
    key: fields.Key = None
    path_column: fields.PathColumn = None
    image_column: fields.ImageColumn = None
    root: fields.Root = None
    against: Annotated[
        str | Path | None,
        shared("--against", ", or images: rows in both are kept, and listed as leaks", metavar="SOURCE", path="name"),
    ] = None
    export: Annotated[
        str | None, Option("Also write the subset for another tool, as curate export --to does.", metavar="FORMAT")
    ] = None
    dry_run: fields.DryRun = False
    overwrite: fields.Overwrite = False
    announce: fields.Announce = lambda text: None
