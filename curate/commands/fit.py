"""``curate fit``: a score that is fitted to the heap."""

from pathlib import Path
from typing import Annotated

from curate.commands import options
from curate.commands.printing import emit, print_lines, say, say_table


def run(
    table: options.Table,
    out: Annotated[
        Path | None, options.shared("--out", ": the model, NAME.safetensors, for images that come later")
    ] = None,
    apply: Annotated[Path | None, options.written_to("--apply")] = None,
    fitted: Annotated[
        Path | None, options.shared("--fitted", ": a model", parser=options.given_path, metavar="FILE")
    ] = None,
    model: Annotated[
        str | None,
        options.shared("--model", ", or timm:NAME: the one that scored the table; found by itself if it ships"),
    ] = None,
    label: Annotated[
        str | None, options.shared("--label", " to learn from, of the table or of --labelled", show_default=True)
    ] = None,
    labelled: Annotated[Path | None, options.shared("--labelled", ", or a folder of rounds: to learn from")] = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    engine: options.Engine = "local",
    address: options.Address = None,
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit a score to the heap that a table holds; no image is read.

    Example:

    \b
        curate fit scores.parquet --apply fitted.parquet
        curate fit scores.parquet -o fitted.safetensors
        curate fit scores.parquet --labelled labels.csv --apply fitted.parquet
        curate fit /nfs/scores --apply /nfs/fitted.parquet --engine ray --address auto
        curate score more/ --model fitted.safetensors -o more.parquet

    unc_fitted is high for junk, and below that for what the heap cannot tell: images far from all others that are no
    copies, among images of other kinds. sheet, select and filter --max go by it where it is there; filter --keep-top by
    unc_local, its rank among the nearest images. `curate score` ends with all this by itself; fit it here for a model
    that scores new images by the same heap, or with labels: from 50 up, they are spread over the heap, unless those
    that were held out speak against it.
    """
    from curate.fitting.fit import fit

    line = (lambda text: None) if quiet else say
    result = fit(
        table,
        out,
        apply=apply,
        fitted=fitted,
        model=model,
        label=label,
        labelled=labelled,
        embedding=embedding,
        seed=seed,
        engine=engine,
        address=address,
        overwrite=overwrite,
        report=line,
    )
    if json_:
        emit(result.to_json())
    elif not quiet:
        print_lines(result.lines(), say, say_table)
