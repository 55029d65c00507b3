"""``curate fit``: scores fitted to a dataset."""

from dataclasses import replace

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, print_lines, say, say_table, suggest
from curate.fitting.options import FitOptions


@command_of(FitOptions)
def run(request: FitOptions, output: Output) -> NextCommand:
    """Fit scores to the dataset of a table.

    Example:

        curate fit scores.parquet --apply fitted.parquet
        curate fit scores.parquet -o fitted.safetensors
        curate fit scores.parquet --labelled labels.csv --apply fitted.parquet
        curate fit /nfs/scores --apply /nfs/fitted.parquet --engine ray:auto
        curate score more/ --model fitted.safetensors -o more.parquet

    unc_fitted equals p_junk if that is above 0.5; lower values rank how ambiguous an image is within the dataset.
    filter --keep-top ranks by unc_local, which drops the least certain of similar images first. `curate score` computes
    these columns, too. Use this command to write a model that scores new images, or to fit with at least 50 labels.
    Images are read only if the table has no p_junk.
    """
    from curate.fitting.fit import run_fit

    result = run_fit(replace(request, report=output.note))
    if output.json:
        emit(result.to_json())
    elif not output.quiet:
        print_lines(result.lines(), say, say_table)
    return suggest("verify", request.out) if request.apply is None else suggest("issues", request.apply)
