"""``curate cache``: features of every image in several epochs, for training heads without the images."""

from dataclasses import replace
from pathlib import Path

from curate.commands.declared import command_of
from curate.commands.printing import NextCommand, Output, emit, to_train
from curate.commands.progress import CacheBar
from curate.training.options import CacheOptions


@command_of(CacheOptions)
def run(request: CacheOptions, output: Output) -> NextCommand:
    """Cache the features of images, to train heads on.

    Writes one Parquet file per epoch. Repeat the command to resume a killed run, or with a larger --epochs to extend
    the cache. Views are drawn as in losspred. `curate train` reads it with --cached. The help of a training method
    lists the parameters of views for --set.

    Example:

        curate cache labelled.parquet --model world --epochs 8 -o features/
        curate train losspred --cached features/ --backbone world -o two.safetensors
    """
    from curate.counted import counted
    from curate.training.cache import run_cache
    from trainers.cache import read_about

    with CacheBar("images", quiet=output.quiet) as bar:
        result = run_cache(replace(request, report=bar.update, announce=output.note))
    output.note(f"{counted(result.epochs, 'epoch')} of {counted(result.images, 'image')}: {request.out}")
    if output.json:
        emit(result.to_json())
    return to_train(request.out, read_about(Path(request.out)) or {})
