"""``curate cache``: features of every image in several epochs, for training heads without the images."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import emit, say
from curate.commands.progress import CacheBar

if TYPE_CHECKING:
    from curate.manifest import Manifest
    from scoring.model import ScoringModel
    from trainers.extract import CacheRecipe
    from trainers.start import Start


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
    scale: options.Scale = None,
    jitter: options.Jitter = None,
    gray: options.Gray = None,
    blur: options.Blur = None,
    blur_sigma: options.BlurSigma = None,
    corrupt: options.Corrupt = None,
    damage: options.Damage = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    precision: options.Precision = "auto",
    limit: options.Limit = None,
    white: options.White = "auto",
    workers: options.Workers = None,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Cache the features of images, to train heads on.

    One Parquet file an epoch. Killed, the run goes on with the missing epochs when you repeat the command; a larger
    --epochs adds to a cache. Views are drawn as losspred draws them; `curate train` takes it with --cached.

    Example:

    \b
        curate cache labelled.parquet --model world --epochs 8 -o features/
        curate train losspred --cached features/ --backbone world -o two.safetensors
    """
    typed = {**locals(), "white": options.given_white(white)}
    import torch

    from curate.manifest.names import some
    from curate.training.dataset import open_source, say_failures, white_of
    from curate.training.recipe import augmentation
    from scoring.atomic import require_folder
    from scoring.folded import for_inference
    from scoring.images.deep import WHITE
    from scoring.runner import select_device, select_precision
    from trainers.cache import read_about
    from trainers.cache_writer import make_cache
    from trainers.extract import CacheRecipe
    from trainers.methods.table import METHODS
    from trainers.start import find_start

    line = (lambda text: None) if quiet else say
    require_folder(out)
    where = select_device(device)
    views = augmentation(METHODS["losspred"].defaults["augmentation"], typed)
    start = find_start(model)
    network = _network_of(start)
    exact = select_precision(precision, where, network.spec.cpu_precision)
    recipe = CacheRecipe(views, seed, dtype, batch_size, exact, where.type)
    manifest = open_source(data, typed)
    line(manifest.description)
    found_white = white_of(manifest, typed, line)
    images, columns = _images(manifest, label, loss_column, found_white)
    if columns["label"] is None:
        line(f"no labels: there is no column {label!r}; methods that need them cannot use this cache")
    about = _about(start, recipe, manifest, columns, typed) | ({} if found_white == WHITE else {"white": found_white})
    if where.type == "cpu":
        line("running on the CPU: this is slow")
    with CacheBar("images", quiet=quiet) as bar:
        if where.type == "cuda" and exact == "fp32":
            torch.backends.cudnn.allow_tf32 = False  # or convolutions would keep 10 bits of 23, and say fp32
        network = for_inference(network.to(where).to(memory_format=torch.channels_last).eval(), where, exact)
        failures = make_cache(out, about, images, network, recipe, workers=workers, report=bar.update, announce=line)
    say_failures(failures, line)
    made = read_about(out) or about  # a folder that was there may hold more epochs than were asked for
    n = len(images.keys) - sum(failures.values())
    line(f"{some(made['epochs'], 'epoch')} of {some(n, 'image')}: {out}")
    if json_:
        emit({"path": str(out), "epochs": made["epochs"], "images": n, "failures": failures})


def _network_of(start: "Start") -> "ScoringModel":
    """Return the model whose features are cached; InputError for weights that no digest names."""
    trunk, network = start.trunk, start.model
    if network is None:
        raise ValueError(f"a start with a digest ({trunk}) has a model")
    return network


def _images(manifest: "Manifest", label: str, loss_column: str | None, white: int) -> tuple[Any, dict[str, str | None]]:
    """Return what the writer reads, and which of the user's columns are in it."""
    from curate.manifest.ahead import ahead
    from curate.training.dataset import class_column, losses_of
    from trainers.extract import Images

    keys = manifest.rows(0, manifest.n_rows).column("key").to_pylist()
    labels = class_column(manifest, label) if label in manifest.schema.names else None
    losses = None if loss_column is None else losses_of(manifest, loss_column, option="--loss-column")
    readers = partial(manifest.readers, 0, manifest.n_rows)
    images = Images(lambda: ahead(readers(), manifest.connections), keys, labels, losses, white)
    return images, {"label": None if labels is None else label, "loss": loss_column}


def _about(
    start: "Start",
    recipe: "CacheRecipe",
    manifest: "Manifest",
    columns: dict[str, str | None],
    typed: dict[str, Any],
) -> dict[str, Any]:
    from importlib.metadata import version

    from curate.version import __version__
    from trainers.cache import FORMAT

    network = _network_of(start)
    return {
        "kind": "cache",
        "format": FORMAT,
        "model": {"trunk": start.trunk, "backbone": start.backbone},
        "made_from": {"name": typed["model"], "digest": start.about.get("digest")},
        "preprocessing": network.spec.preprocessing.to_json(),
        "width": network.width,
        "recipe": recipe.to_json(),
        "epochs": typed["epochs"],
        "data": manifest.description,
        "input": manifest.digest,
        "columns": columns,
        "versions": {"curate": __version__, "torch": version("torch"), "timm": version("timm")},
    }
