"""``curate models convert``: third-party weights -> a checkpoint."""

from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say


def run(
    file: Annotated[Path, typer.Argument(help="A .pth.tar, .pth or .safetensors file of weights.")],
    out: Annotated[Path, options.shared("--out", ": the checkpoint, NAME.safetensors")],
    backbone: Annotated[
        str | None, typer.Option(help="timm's name of the model, where the file does not say it.", show_default=False)
    ] = None,
    licence: options.Licence = "not stated",
    overwrite: options.Overwrite = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Convert third-party weights into a checkpoint; no code in them is run.

    Reads the published pretrained visual uncertainties (.pth.tar), whose head becomes the column unc_losspred, and the
    weights of any timm model, for --backbone of `curate train` and `curate cache`. Preprocessing is as in timm.

    Example:

    \b
        curate models convert vit_base_uncertainty.pth.tar -o uncertain.safetensors
        curate models convert weights.pth --backbone vit_small_patch16_224 -o small.safetensors
    """
    arguments = dict(locals())
    from curate.training.convert import models_convert

    result = models_convert(**options.accepted(models_convert, arguments))
    if json_:
        emit(result.to_json())
    elif not quiet:
        head = f"with the head {result.head}" if result.head else "without a head: `curate train --freeze` adds one"
        say(f"{result.facts['architecture']} at {result.size} pixels, {head}")
        say(f"model {result.digest[:12]}: {out}")
