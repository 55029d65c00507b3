"""`curate.cache`: features of every image over several epochs, for training heads without the images."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.options.function import callable_of
from curate.options.values import several
from curate.training.options import CacheOptions

if TYPE_CHECKING:
    from curate.engines.gone import WatchedReaders
    from curate.manifest.contract import Manifest
    from scoring.model import ScoringModel
    from trainers.extract import CacheRecipe
    from trainers.start import Start


@dataclass(frozen=True)
class CacheResult:
    """The result of writing a cache.

    Attributes:
        path: its folder.
        epochs: number of epochs in it.
        images: number of images per epoch.
        failures: status -> images that could not be read.
    """

    path: Path
    epochs: int
    images: int
    failures: dict[str, int]

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain JSON."""
        return {**asdict(self), "path": str(self.path)}


def run_cache(options: CacheOptions) -> CacheResult:
    """Write the features of every image, one Parquet file per epoch, for `curate.train` as ``cached``.

    A call that was stopped continues with the missing epochs when it is repeated; more ``epochs`` add to a cache.

    Raises:
        InputError: for an unusable option, image or output.
    """
    sources = [str(source) for source in several(options.data)]
    import torch

    from curate.engines.gone import WatchedReaders, folder_of
    from curate.training.dataset import open_source, report_failures, white_of
    from curate.training.recipe import ViewSettings, augmentation
    from scoring.atomic import require_folder
    from scoring.folded import for_inference
    from scoring.images.deep import WHITE
    from scoring.runner import select_device, select_precision
    from scoring.settings import with_settings
    from trainers.cache import read_about
    from trainers.cache_writer import make_cache
    from trainers.extract import CacheRecipe
    from trainers.methods.table import METHODS
    from trainers.start import find_start

    line, out = options.announce, Path(options.out)
    require_folder(out)
    where = select_device(options.device)
    drawn = with_settings(ViewSettings, options.set, name=str(out), what="cache")
    views = augmentation(METHODS["losspred"].defaults["augmentation"], vars(drawn))
    start = find_start(str(options.model))
    network = _network_of(start)
    exact = select_precision(options.precision, where, network.spec.cpu_precision)
    recipe = CacheRecipe(views, options.seed, options.dtype, options.batch_size, exact, where.type)
    manifest = open_source(sources, options)
    line(manifest.description)
    white_value = white_of(manifest, options.white, line)
    watched = WatchedReaders(manifest, folder_of(sources))
    images, columns = _images(watched, options.label, options.loss_column, white_value)
    if columns["label"] is None:
        line(f"no labels: there is no column {options.label!r}; methods that need them cannot use this cache")
    elif n_missing := images.labels.null_count:
        line(
            f"{n_missing:,} of {len(images.keys):,} images have no label; methods that need them cannot use this cache"
        )
    about = _about(start, recipe, manifest, columns, options) | ({} if white_value == WHITE else {"white": white_value})
    if where.type == "cpu":
        line("running on the CPU: this is slow")
    if where.type == "cuda" and exact == "fp32":
        torch.backends.cudnn.allow_tf32 = False  # else convolutions would use TF32 (10 instead of 23 bits)
    network = for_inference(network.to(where).to(memory_format=torch.channels_last).eval(), where, exact)
    failures = make_cache(out, about, images, network, recipe, report=options.report, announce=line)
    report_failures(failures, line)
    made = read_about(out) or about  # an existing folder may have more epochs than requested
    n = len(images.keys) - sum(failures.values())
    return CacheResult(out, int(made["epochs"]), n, failures)


cache = callable_of(CacheOptions, run_cache)


def _network_of(start: "Start") -> "ScoringModel":
    """Return the model whose features are cached; InputError for weights without a digest."""
    network = start.model
    if network is None:
        raise ValueError(f"a start with a digest ({start.backbone_digest}) has a model")
    return network


def _images(
    watched: "WatchedReaders", label: str, loss_column: str | None, white: int
) -> tuple[Any, dict[str, str | None]]:
    """Return the images to write, and which user columns they have."""
    from curate.training.dataset import class_column, losses_of, names_classes
    from trainers.extract import Images

    manifest = watched.manifest
    keys = manifest.rows(0, manifest.n_rows).column("key").to_pylist()
    labels = class_column(manifest, label) if names_classes(manifest, label) else None
    losses = None if loss_column is None else losses_of(manifest, loss_column, option="--loss-column")
    images = Images(watched.readers, keys, labels, losses, white, watched.check)
    return images, {"label": None if labels is None else label, "loss": loss_column}


def _about(
    start: "Start", recipe: "CacheRecipe", manifest: "Manifest", columns: dict[str, str | None], options: CacheOptions
) -> dict[str, Any]:
    from importlib.metadata import version

    from curate.version import __version__
    from trainers.cache import FORMAT

    network = _network_of(start)
    return {
        "kind": "cache",
        "format": FORMAT,
        "model": {"trunk": start.backbone_digest, "backbone": start.backbone},
        "made_from": {"name": str(options.model), "digest": start.about.get("digest")},
        "preprocessing": network.spec.preprocessing.to_json(),
        "width": network.width,
        "recipe": recipe.to_json(),
        "epochs": options.epochs,
        "data": manifest.description,
        "input": manifest.digest,
        "columns": columns,
        "versions": {"curate": __version__, "torch": version("torch"), "timm": version("timm")},
    }
