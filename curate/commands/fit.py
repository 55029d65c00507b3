"""``curate fit``: a score that is fitted to the dataset."""

import shlex
from pathlib import Path
from typing import Annotated

from curate.commands import options
from curate.commands.printing import emit, print_lines, say, say_next, say_table


def run(
    table: options.Table,
    out: Annotated[
        Path | None, options.shared("--out", ": the model, NAME.safetensors, for images that come later")
    ] = None,
    apply: Annotated[Path | None, options.written_to("--apply")] = None,
    fitted: Annotated[
        Path | None, options.shared("--fitted", ": a model", parser=options.path_argument, metavar="FILE")
    ] = None,
    model: Annotated[
        str | None,
        options.shared("--model", ", or timm:NAME: the one that scored the table; found automatically if it ships"),
    ] = None,
    label: Annotated[
        str | None, options.shared("--label", " to learn from, of the table or of --labelled", show_default=True)
    ] = None,
    labelled: Annotated[Path | None, options.shared("--labelled", ", or a folder of rounds: to learn from")] = None,
    embedding: options.Embedding = None,
    seed: options.Seed = 0,
    source: options.Source = None,
    engine: options.Engine = "local",
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Fit scores to the dataset that a table holds.

    Example:

    \b
        curate fit scores.parquet --apply fitted.parquet
        curate fit scores.parquet -o fitted.safetensors
        curate fit scores.parquet --labelled labels.csv --apply fitted.parquet
        curate fit /nfs/scores --apply /nfs/fitted.parquet --engine ray:auto
        curate score more/ --model fitted.safetensors -o more.parquet

    unc_fitted is above 0.5 for unusable images, by p_junk, and below that the higher the more ambiguous an image is
    within the dataset. filter --keep-top ranks by unc_local, its rank among the nearest images. `curate score` does all
    this at the end. Fit here for a model that scores new images, or with labels, from 50 up. Images are read only
    where the table has no p_junk.
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
        source=source,
        engine=engine,
        overwrite=overwrite,
        report=line,
    )
    if json_:
        emit(result.to_json())
    elif not quiet:
        print_lines(result.lines(), say, say_table)
        say_next(
            f"curate score more/ --model {shlex.quote(str(out))} -o more.parquet"
            if apply is None
            else f"curate issues {shlex.quote(str(apply))}"
        )
