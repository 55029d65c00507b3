"""``curate cache``: features of every image in several epochs, for training heads without the images."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say, say_next
from curate.commands.progress import CacheBar


def run(
    data: Annotated[list[str], typer.Argument(help="Images, from anything that `curate score` reads.")],
    out: Annotated[Path, options.shared("--out", ": a folder")],
    model: Annotated[str, options.shared("--model", ", or timm:NAME", show_default=True)] = "world",
    epochs: Annotated[
        int,
        options.shared(
            "--epochs", ": the first of them as they are, then of views", min=1, max=100_000, show_default=True
        ),
    ] = 8,
    label: options.Label = "label",
    label_from_folder: options.LabelFromFolder = False,
    key: options.Key = None,
    path_column: options.PathColumn = None,
    image_column: options.ImageColumn = None,
    root: options.Root = None,
    loss_column: options.LossColumn = None,
    dtype: Annotated[str, options.shared("--dtype", show_default=True)] = "float16",
    batch_size: Annotated[int, options.shared("--batch-size", show_default=True)] = 256,
    set_: Annotated[
        list[str] | None, options.shared("--set", ": how views are drawn, such as jitter=0.4", metavar="NAME=VALUE")
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    white: options.White = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Cache the features of images, to train heads on.

    One Parquet file an epoch. Killed, the run goes on with the missing epochs when you repeat the command; a larger
    --epochs adds to a cache. Views are drawn as losspred draws them; `curate train` takes it with --cached.
    The help of a training method lists what --set sets of views.

    Example:

    \b
        curate cache labelled.parquet --model world --epochs 8 -o features/
        curate train losspred --cached features/ --backbone world -o two.safetensors
    """
    arguments = {**locals(), "white": options.white_argument(white)}
    from curate.manifest.names import some
    from curate.training.cache import cache
    from scoring.settings import parse_settings

    line = (lambda text: None) if quiet else say
    settings = parse_settings(set_ or [], example="jitter=0.4")
    with CacheBar("images", quiet=quiet) as bar:
        result = cache(
            **options.accepted(cache, {**arguments, "set": settings, "report": bar.update, "announce": line})
        )
    line(f"{some(result.epochs, 'epoch')} of {some(result.images, 'image')}: {out}")
    if not quiet:
        say_next(f"curate train METHOD --cached {shlex.quote(str(out))} -o model.safetensors")
    if json_:
        emit(result.to_json())
