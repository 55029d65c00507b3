"""``curate export``: a subset for another tool."""

from dataclasses import replace
from typing import TYPE_CHECKING

from curate.commands.declared import command_of
from curate.commands.printing import DRY_RUN, NextCommand, Output, emit, on_terminal, printers, rerun, suggest
from curate.commands.progress import ExportBar
from curate.counted import counted
from curate.exporting.options import ExportOptions

if TYPE_CHECKING:
    from curate.exporting.subset import ExportResult


@command_of(ExportOptions)
def run(request: ExportOptions, output: Output) -> NextCommand:
    """Write a subset for another tool: its images, labels and scores.

    Example:

        curate export subset.parquet --to pytorch --link hard -o training
        curate export subset.parquet --to webdataset --resize 512 --shard 500MB -o shards
        curate export subset.parquet --to parquet --source photos.parquet -o dataset
        curate export subset.parquet --to coco --label species -o subset.json
        curate export subset.parquet --to paths --null -o subset.txt

    Exports any scored table, each row under its key; rows whose image could not be scored are left out. Files are
    written to OUT.part until everything is checked. Repeat an interrupted command to resume.
    """
    from curate.exporting.subset import run_export
    from curate.manifest.store_path import path_to_read, subset_at
    from curate.policies.receipts import receipt_beside

    with ExportBar("images", quiet=output.silent) as bar:
        result = run_export(replace(request, report=bar.update))
    if output.json:
        emit({**result.to_json(), "notes": _notes(result)})
    if not output.silent:
        _report(result, request.dry_run)
    if request.dry_run:
        return rerun()
    receipt = receipt_beside(subset_at(path_to_read(request.table)))
    return suggest("verify", receipt) if on_terminal() and receipt.is_file() else suggest("info", request.table)


def _report(result: "ExportResult", dry_run: bool) -> None:
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
    """Return notes on rows left out, and notes of the format."""
    notes = []
    if result.left_out:
        notes.append(f"{counted(result.left_out, 'row')} left out, because the image could not be scored")
    if result.missing:
        notes.append(f"{counted(result.missing, 'row')} left out, because the image cannot be read: {result.paths[-1]}")
    if 0 < result.resumed < result.rows:
        notes.append(f"{counted(result.resumed, 'image')} of an earlier run")
    return [*notes, *result.notes]
