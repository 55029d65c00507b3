"""``curate export``: a subset as another tool takes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from curate.commands import options
from curate.commands.printing import DRY_RUN, emit, printers
from curate.commands.progress import ExportBar
from curate.counted import counted
from curate.exchange.table import ALIASES, FORMATS

if TYPE_CHECKING:
    from curate.exchange.subset import ExportResult

To = Annotated[
    str,
    options.shared(
        "--to",
        ": " + ", ".join(FORMATS) + "; " + ", ".join(f"{other} is {name}" for other, name in ALIASES.items()),
        metavar="FORMAT",
    ),
]
Out = Annotated[
    Path | None, options.shared("--out", ": a folder, or for csv, jsonl, coco, label-studio, cvat and paths a file")
]
Take = Annotated[
    str | None,
    typer.Option(
        "--take",
        help="Columns to export, a,b,c or 'kappa_*'; by default key and label where images are written, else all.",
        metavar="NAMES",
        show_default=False,
    ),
]
Resize = Annotated[
    int | None,
    typer.Option("--resize", help="Most pixels of an image's short side.", metavar="SIDE", show_default=False),
]
Encode = Annotated[
    str | None,
    typer.Option(
        "--encode",
        help="Encode images again: jpeg, png, webp, jpeg:QUALITY or webp:QUALITY.",
        metavar="KIND",
        show_default=False,
    ),
]
ShardSize = Annotated[
    str | None,
    typer.Option(
        "--shard",
        help="Images a shard, or bytes such as 500MB; by default 10,000, and at most 1 GB where sizes are known.",
        metavar="SIZE",
        show_default=False,
    ),
]
Null = Annotated[bool, typer.Option("--null", help="End each of paths with a NUL, for xargs -0.")]
SkipMissing = Annotated[
    bool, typer.Option("--skip-missing", help="Leave rows out whose image cannot be had; OUT.missing.csv lists them.")
]


def run(
    table: options.Table,
    to: To,
    out: Out = None,
    label: Annotated[str | None, options.shared("--label", "; by default label, where there is one")] = None,
    classes: Annotated[
        str | None, options.shared("--classes", "; by default the table's own list", metavar="NAMES|FILE|TABLE")
    ] = None,
    per: Annotated[
        str | None,
        options.shared("--per", ": folders of folder; train, val and test of yolo, imagefolder and huggingface"),
    ] = None,
    take: Take = None,
    link: options.Link = "copy",
    resize: Resize = None,
    encode: Encode = None,
    shard: ShardSize = None,
    null: Null = False,
    skip_missing: SkipMissing = False,
    source: options.Source = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    log: options.Log = None,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a subset for another tool: its images, labels and scores.

    Example:

    \b
        curate export subset.parquet --to pytorch --link hard -o training
        curate export subset.parquet --to webdataset --resize 512 --shard 500MB -o shards
        curate export subset.parquet --to parquet --source photos.parquet -o dataset
        curate export subset.parquet --to coco --label species -o subset.json
        curate export subset.parquet --to paths --null -o subset.txt

    Any scored table will do. Every row is written under its own key; rows whose image could not be scored are left out.
    What was interrupted goes on where it was: until all is written and checked, it is in OUT.part.
    """
    arguments = dict(locals())
    from curate.exchange.subset import export

    with ExportBar("images", quiet=quiet or json_) as bar:
        result = export(**options.accepted(export, {**arguments, "report": bar.update}))
    if json_:
        emit({**result.to_json(), "notes": _notes(result)})
    if json_ or quiet:
        return
    say, _ = printers(requested=dry_run)
    for note in _notes(result):
        say(note)
    size = f", {result.n_bytes:,} bytes" if result.paths else ""
    say(f"{counted(result.rows, 'image')}, {result.labelled:,} with a label, as {result.to}{size}")
    if dry_run:
        say(DRY_RUN)
    for path in result.paths:
        say(f"written: {path}")
    for line in result.load:
        say(f"load it: {line}")


def _notes(result: "ExportResult") -> list[str]:
    """Return notes for the user: rows that are left out, and notes of the format."""
    notes = []
    if result.left_out:
        notes.append(f"{counted(result.left_out, 'row')} left out, whose image could not be scored")
    if result.missing:
        notes.append(f"{counted(result.missing, 'row')} left out, whose image cannot be had: {result.paths[-1]}")
    if 0 < result.resumed < result.rows:
        notes.append(f"{counted(result.resumed, 'image')} of an earlier run")
    return [*notes, *result.notes]
