"""``curate train``: fit a model that ``curate score`` can use."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from curate.commands import options
from curate.commands.printing import emit, say
from curate.commands.progress import TrainBar
from trainers.methods.table import METHODS

if TYPE_CHECKING:
    from curate.training.dataset import Inputs
    from scoring.marks import Marks
    from scoring.model import ScoringModel
    from trainers.cache import CachedFeatures
    from trainers.config import TrainConfig
    from trainers.start import Start
    from trainers.work import TrainingFolder

Line = Callable[[str], None]


def method_option(help: str, **named: Any) -> Any:
    """Return an option whose default is the method's own; the help names it where the methods agree."""
    return typer.Option(help=f"{help}.", show_default=False, **named)


def run(
    method: Annotated[
        str,
        typer.Argument(help=f"{', '.join(METHODS)}; --help after its name shows its settings and paper."),
    ],
    *,
    data: Annotated[
        list[str] | None,
        typer.Argument(help="Images, from anything that `curate score` reads; none with --cached.", show_default=False),
    ] = None,
    cached: Annotated[
        Path | None, typer.Option(help="Train from this `curate cache`, on its frozen backbone.", show_default=False)
    ] = None,
    out: Annotated[Path, options.shared("--out", ": the checkpoint, NAME.safetensors")],
    backbone: options.Backbone = None,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Train the head alone: embeddings and the heads there are stay as they are."),
    ] = False,
    freeze_batchnorm: Annotated[
        bool, typer.Option("--freeze-batchnorm", help="Hold the backbone's batch statistics; its weights move.")
    ] = False,
    label: options.Label = "label",
    label_from_folder: options.LabelFromFolder = False,
    key: options.Key = None,
    path_column: options.PathColumn = None,
    image_column: options.ImageColumn = None,
    root: options.Root = None,
    size: Annotated[
        int | None,
        typer.Option(help="Side of a view in pixels; by default the backbone's, or 224.", show_default=False),
    ] = None,
    epochs: Annotated[int | None, options.shared("--epochs", " (100)")] = None,
    batch_size: Annotated[int | None, options.shared("--batch-size", ", a step (512)")] = None,
    optimizer: Annotated[str | None, method_option("sgd or adamw")] = None,
    lr: Annotated[float | None, method_option("Learning rate")] = None,
    schedule: Annotated[str | None, method_option("constant or cosine")] = None,
    warmup: Annotated[float | None, method_option("Share of all steps over which the rate rises")] = None,
    weight_decay: Annotated[float | None, method_option("Weight decay (1e-4)")] = None,
    trunk_lr: Annotated[float | None, method_option("The backbone's rate as a share of --lr (1)")] = None,
    set_: options.Settings = None,
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
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Compile the network; by default on a GPU alone.", show_default=False
        ),
    ] = None,
    half: Annotated[bool, typer.Option(help="Store the weights as float16.")] = False,
    licence: options.Licence = "not stated",
    note: Annotated[str, typer.Option(help="A sentence for the model card.")] = "",
    limit: options.Limit = None,
    white: options.White = "auto",
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a model, or a head on a model that you trust.

    A method has settings of its own (--set): curate train METHOD --help shows them, and the method's paper. What you
    leave out is as in that paper. Killed, the run goes on when you repeat the command, from a state of at most a minute
    before. For small images or a CPU, start from a backbone that learned from labels.

    Example:

    \b
        curate train visimsiam photos/ -o mine.safetensors --backbone resnet18 --epochs 200
        curate train supervised photos/ --label-from-folder -o trunk.safetensors --size 64 --epochs 16
        curate train visimsiam photos/ -o one.safetensors --set small_size=32 --backbone trunk.safetensors --freeze
        curate train losspred labelled.parquet -o two.safetensors --backbone one.safetensors --freeze --set folds=3
        curate train mcinfonce --cached features/ -o three.safetensors --backbone two.safetensors
    """
    typed = {**locals(), "white": options.given_white(white)}
    if (data is None) == (cached is None):
        raise typer.BadParameter("give images to train on, or --cached FOLDER, and not both")
    from scoring.atomic import refuse_existing
    from trainers.work import TrainingFolder, sweep_finished

    line = (lambda text: None) if quiet else say
    if out.is_file() and not overwrite:
        sweep_finished(out)
    check_out(out, overwrite)
    with TrainingFolder(out) as work:
        refuse_existing(out, overwrite=overwrite)  # another process may have been at its end
        said = _trained(typed, work, line)
    line(", ".join(f"{name} {value:.4g}" for name, value in said["metrics"].items()))
    line(f"model {said['model'][:12]}: {out}")
    if json_:
        emit(said)


def _trained(typed: dict[str, Any], work: "TrainingFolder", line: Line) -> dict[str, Any]:
    """Train what was typed, write the checkpoint, and return what there is to say of it."""
    from curate.training.amount import fitted
    from curate.training.recipe import recipe_of
    from scoring.marks import Marks
    from scoring.runner import select_device, select_precision
    from trainers.build import build
    from trainers.loop import train

    where = select_device(typed["device"])
    cache, start = _start(typed["cached"], typed["backbone"], typed["size"])
    config = recipe_of(typed, start, cache, precision=select_precision(typed["precision"], where))
    _say_start(config, start, slow=where.type == "cpu" and cache is None, line=line)
    fresh, asks = build(config, 2, init=start.model)  # what cannot be built says so before an hour of decoding
    if cache is None and asks.n_small and asks.small_size > config.size:
        line(
            f"the low-resolution views, of {asks.small_size} pixels, are larger than the others, of {config.size}, and "
            f"cost more: --set small_size={max(1, config.size // 2)}, or --set n_small=0"
        )
    _say_heads(config, start, fresh, line)
    with Marks(work.folder) as marks:  # until the end: a run that goes on decodes again
        inputs = _inputs(config, typed, cache, fresh, marks, line)
        config = fitted(config, inputs.data.n, typed, line)
        if work.state.exists():
            line(f"going on from {work.state}")
        with TrainBar(quiet=typed["quiet"]) as bar:
            model, measures = train(
                config,
                inputs.data,
                state=work.state,
                device=where,
                start=build(config, len(inputs.data.classes), init=start.model, n=inputs.data.n),
                origin={"data": inputs.digest, "start": start.about.get("digest", start.about)},
                compiled=where.type == "cuda" if typed["compile"] is None else typed["compile"],
                report=bar.update,
            )
    made_of = _made_of(config, inputs, start, cache=cache is not None) | {"note": typed["note"]}
    card = {"method": config.method, "training": made_of, "metrics": measures, "data_licence": typed["licence"]}
    exact = exact_parts(config, model) if typed["half"] else None
    digest = _save(work, model, card, exact=exact, overwrite=typed["overwrite"], line=line)
    work.finish()
    about = {"path": str(work.out), "model": digest, "method": config.method}
    return about | {"images": inputs.data.n, "metrics": measures}


def _inputs(
    config: "TrainConfig",
    typed: dict[str, Any],
    cache: "CachedFeatures | None",
    fresh: "ScoringModel",
    marks: "Marks",
    line: Line,
) -> "Inputs":
    """Return what the run is trained on: images, decoded as the model is to see them, or features of a cache."""
    from curate.training.dataset import cached_inputs, image_inputs

    if cache is not None:
        return cached_inputs(config, cache, line)
    return image_inputs(config, typed, fresh.spec.preprocessing, line, marks)


def _say_start(config: "TrainConfig", start: "Start", *, slow: bool, line: Line) -> None:
    """Say what makes a run slow, or of little use, before it begins."""
    if slow:
        line("training on the CPU: this is slow; small images, a small backbone and --backbone CHECKPOINT help")
    if start.model is None and config.freeze == "trunk":
        line(f"{start.backbone} has random weights, and --freeze keeps them: a head on it learns little (--backbone)")


def _made_of(config: "TrainConfig", inputs: "Inputs", start: "Start", *, cache: bool) -> dict[str, Any]:
    """Return what a model is trained from, for its card."""
    of_cache = {"cache": inputs.digest} if cache else {}
    return {
        "data": inputs.description,
        "images": inputs.data.n,
        "recipe": config.to_json(),
        "start": start.about,
        **of_cache,
    }


def _save(
    work: "TrainingFolder",
    model: "ScoringModel",
    card: dict[str, Any],
    *,
    exact: list[str] | None,
    overwrite: bool,
    line: Line,
) -> str:
    """Write the checkpoint, as float16 but for the weights that begin with ``exact`` where that is a list."""
    import torch

    from scoring.checkpoint import save_checkpoint
    from scoring.stored import stored_names

    stored = stored_names(model)
    trunk = [value for name, value in model.named_parameters() if name in stored and name.startswith("backbone.")]
    if exact and not all(torch.equal(v.half().float(), v.float()) for v in trunk):
        line("the backbone is stored as float32: as float16 it would give other embeddings")
    dtype = torch.float32 if exact is None else torch.float16
    kept = exact or []
    return save_checkpoint(work.out, model, card, dtype=dtype, exact=kept, foretell=work.foretell, overwrite=overwrite)


def _start(cached: Path | None, backbone: str | None, size: int | None) -> "tuple[CachedFeatures | None, Start]":
    """Return the cache, if there is one, and where the run starts; of a cache that must be the model it was made by."""
    from trainers.cache import open_cache
    from trainers.start import find_start, start_of

    if cached is None:
        return None, find_start(backbone, size=size)
    cache = open_cache(cached)
    return cache, start_of(cache, backbone)


def check_out(out: Path, overwrite: bool) -> None:
    """Raise ``InputError`` unless a checkpoint can be written there."""
    from scoring.atomic import refuse_existing, require_folder
    from scoring.errors import InputError

    refuse_existing(out, overwrite=overwrite)
    if out.suffix != ".safetensors":
        raise InputError(f"expected a checkpoint name that ends in .safetensors, got {out}")
    require_folder(out)


def exact_parts(config: "TrainConfig", model: "ScoringModel") -> list[str]:
    """Return the prefixes of the weights that must be stored without loss: those that were not to change."""
    if config.freeze != "trunk":
        return []
    return ["backbone.", *(f"heads.{name}." for name in model.heads if name != config.method)]


def _say_heads(config: "TrainConfig", start: "Start", model: "ScoringModel", line: Line) -> None:
    """Say which heads of the start stay and which do not."""
    before = [] if start.model is None else list(start.model.spec.heads)
    kept = [name for name in before if name in model.heads and name != config.method]
    if kept:
        line(f"kept as they are: {', '.join(kept)}")
    if config.freeze == "trunk" and config.method in before:
        line(f"the head {config.method} is trained anew")
    gone = [name for name in before if name not in kept and name != config.method]
    if gone:
        line(f"left behind, since the backbone moves: {', '.join(gone)}; --freeze keeps them")
