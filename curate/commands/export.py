"""``curate export``: a subset as another tool takes it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.commands import options
from curate.commands.printing import DRY_RUN, emit, printers
from curate.counted import counted

if TYPE_CHECKING:
    from curate.export.subset import ExportResult


def run(
    table: options.Table,
    format_: Annotated[str, options.shared("--format", metavar="NAME")],
    out: Annotated[Path | None, options.shared("--out", ": a folder, or for csv, coco and label-studio a file")] = None,
    label: Annotated[str | None, options.shared("--label", "; by default label, where there is one")] = None,
    link: options.Link = False,
    source: options.Source = None,
    key: options.SourceKey = None,
    path_column: options.SourcePathColumn = None,
    image_column: options.SourceImageColumn = None,
    root: options.SourceRoot = None,
    dry_run: options.DryRun = False,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Write a subset for another tool: its images, labels and scores.

    Example:

    \b
        curate export subset.parquet --format imagefolder -o images
        curate export subset.parquet --format imagefolder --source photos.parquet -o images
        curate export scores.parquet --format fiftyone --link -o dataset
        curate export subset.parquet --format coco --label species -o subset.json

    Any scored table will do. Every row goes out under its own key; rows whose image could not be scored stay behind.
    imagefolder and fiftyone hold the images, copied or linked; label-studio holds those that no browser can reach; csv
    and coco name them.
    """
    given = dict(locals())
    from curate.export.subset import export
    from curate.manifest import SourceOptions

    where = SourceOptions(key=key, path_column=path_column, image_column=image_column, root=root)
    result = export(**options.given_to(export, {**given, "format": format_, "options": where}))
    if json_:
        emit({**result.to_json(), "notes": _notes(result)})
    if json_ or quiet:
        return
    say, _ = printers(asked=dry_run)
    for note in _notes(result):
        say(note)
    say(f"{counted(result.rows, 'image')}, {result.labelled:,} with a label, as {result.format}")
    if dry_run:
        say(DRY_RUN)
    for path in result.paths:
        say(f"written: {path}")


def _notes(result: "ExportResult") -> list[str]:
    """Return what is to be said beside the counts: rows that stay behind, and what the format says."""
    left_out = f"{counted(result.left_out, 'row')} left out, whose image could not be scored"
    return [*([left_out] if result.left_out else []), *result.notes]
