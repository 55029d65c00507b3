"""``curate cache``: features of every image in several epochs, for training heads without the images."""

import shlex
from dataclasses import replace

from curate.commands import options
from curate.commands.declared import command_of
from curate.commands.printing import emit, say, say_next
from curate.commands.progress import CacheBar
from curate.training.options import CacheOptions


@command_of(CacheOptions)
def run(
    request: CacheOptions,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Cache the features of images, to train heads on.

    Writes one Parquet file per epoch. Repeat the command to resume a killed run, or with a larger --epochs to extend
    the cache. Views are drawn as in losspred. `curate train` reads it with --cached. The help of a training method
    lists the parameters of views for --set.

    Example:

    \b
        curate cache labelled.parquet --model world --epochs 8 -o features/
        curate train losspred --cached features/ --backbone world -o two.safetensors
    """
    from curate.counted import counted
    from curate.training.cache import run_cache

    line = (lambda text: None) if quiet else say
    with CacheBar("images", quiet=quiet) as bar:
        result = run_cache(replace(request, report=bar.update, announce=line))
    line(f"{counted(result.epochs, 'epoch')} of {counted(result.images, 'image')}: {request.out}")
    if not quiet:
        say_next(f"curate train METHOD --cached {shlex.quote(str(request.out))} -o model.safetensors")
    if json_:
        emit(result.to_json())
