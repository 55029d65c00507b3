"""``curate merge``: merge scored tables, or update the paths of moved images."""

from dataclasses import replace

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, suggest
from curate.fitting.options import MergeOptions


@command_of(MergeOptions)
def run(request: MergeOptions, output: Output) -> NextCommand:
    """Merge scored tables, or update the paths of moved images.

    Example:

        curate merge spring.parquet autumn.parquet -o all.parquet
        curate merge spring.parquet autumn.parquet --prefix -o all.parquet
        curate merge scores.parquet --root /mnt/new/photos -o moved.parquet

    Tables with another model or other settings are refused, as are keys that occur in two tables. Scores that compare
    an image with its dataset, such as unc_fitted, are fitted again to all rows. --root updates the paths of one table,
    whose keys must be paths below that folder.
    """
    from curate.fitting.merge import run_merge

    result = run_merge(replace(request, report=output.announce))
    if output.json:
        emit(result.to_json())
    else:
        for note in result.notes:
            output.note(note)
        if request.root is not None:
            output.note(f"{result.moved:,} of {result.rows:,} rows have a new path now")
        output.note(f"scores: {result.path}")
    return suggest("issues", result.path)
