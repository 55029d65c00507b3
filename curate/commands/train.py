"""``curate train``: fit a model that ``curate score`` can use."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from curate.commands.progress import TrainBar
from curate.commands.report import say

OWN = "by default the method's own"


def run(
    method: Annotated[str, typer.Argument(help="visimsiam, simsiam, or supervised (cross-entropy on labels).")],
    data: Annotated[list[str], typer.Argument(help="Images, from anything that `curate score` reads.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The checkpoint to write, NAME.safetensors.")],
    backbone: Annotated[
        str | None, typer.Option(help="Any timm model; by default resnet18, or what --init holds.", show_default=False)
    ] = None,
    pretrained: Annotated[bool, typer.Option(help="Start from the weights that timm publishes.")] = False,
    init: Annotated[
        str | None, typer.Option(help="Start from the backbone of this checkpoint.", show_default=False)
    ] = None,
    label: Annotated[str, typer.Option(help="Column with the class, for supervised training.")] = "label",
    label_from_folder: Annotated[
        bool, typer.Option("--label-from-folder", help="Take the first sub-folder's name as the class.")
    ] = False,
    size: Annotated[int, typer.Option(help="Side of a view in pixels, and of what the model scores.")] = 224,
    small_size: Annotated[int, typer.Option(help="Side of a low-resolution view in pixels.")] = 96,
    n_small: Annotated[int, typer.Option(min=0, help="Low-resolution views an image.")] = 6,
    epochs: Annotated[int, typer.Option(help="Passes over the images.")] = 100,
    batch_size: Annotated[int, typer.Option(help="Images a step.")] = 512,
    lr: Annotated[float | None, typer.Option(help=f"Learning rate; {OWN}.", show_default=False)] = None,
    schedule: Annotated[str | None, typer.Option(help=f"constant or cosine; {OWN}.", show_default=False)] = None,
    warmup: Annotated[
        float | None, typer.Option(help=f"Share of all steps over which the rate rises; {OWN}.", show_default=False)
    ] = None,
    latent_dim: Annotated[int, typer.Option(help="Width of the space in which views predict one another.")] = 2048,
    hidden_dim: Annotated[int, typer.Option(help="Width of the hidden layer of projector and predictor.")] = 512,
    predictor: Annotated[str, typer.Option(help="direct (DirectPred) or mlp (SimSiam).")] = "direct",
    predictor_every: Annotated[int, typer.Option(help="Steps between two decompositions for a direct predictor.")] = 10,
    freeze: Annotated[
        str, typer.Option(help="nothing, batchnorm (its statistics) or trunk (the backbone).")
    ] = "nothing",
    trunk_lr: Annotated[float, typer.Option(help="The backbone's rate as a share of --lr.")] = 1.0,
    scale: Annotated[
        float | None, typer.Option(help="Least share of the area in a standard view.", show_default=False)
    ] = None,
    blur_sigma: Annotated[
        float | None, typer.Option(help="Most blur, in pixels on a side of 224.", show_default=False)
    ] = None,
    corrupt: Annotated[
        float | None, typer.Option(help="Chance of noise, and of a grey box, on a view.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed gives the same model.")] = 0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    precision: Annotated[str, typer.Option(help="auto, fp32 or bf16.")] = "auto",
    compile: Annotated[
        bool | None,
        typer.Option(
            "--compile/--no-compile", help="Compile the network; by default on a GPU alone.", show_default=False
        ),
    ] = None,
    half: Annotated[bool, typer.Option(help="Store the weights as float16.")] = False,
    licence: Annotated[str, typer.Option(help="Licence of the training data, for the model card.")] = "not stated",
    note: Annotated[str, typer.Option(help="A sentence for the model card.")] = "",
    limit: Annotated[int | None, typer.Option(help="Use the first N images only.", show_default=False)] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace an existing checkpoint.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only errors.")] = False,
) -> None:
    """Train a model on your own images.

    Killed, the run goes on when you repeat the command, from a state of at most a minute before. Defaults are
    those of the VI-SimSiam paper (appendix B). For small images or a CPU, use smaller sizes and --init.

    Example:

    \b
        curate train visimsiam photos/ -o mine.safetensors --backbone resnet18 --epochs 200
        curate train supervised photos/ --label-from-folder -o trunk.safetensors --size 64 --epochs 16
        curate train visimsiam photos/ -o mine.safetensors --size 64 --small-size 32 --init trunk.safetensors
    """
    import torch

    from scoring.atomic import require_folder
    from scoring.checkpoint import load_model, save_checkpoint
    from scoring.errors import InputError
    from scoring.lookup import lookup
    from scoring.runner import select_device, select_precision
    from trainers.config import TrainConfig
    from trainers.loop import build, train
    from trainers.methods import METHODS

    kind = lookup(METHODS, method, kind="method")
    if out.exists() and not overwrite:
        raise InputError(f"{out} exists already; choose another name, or replace it with --overwrite")
    if out.suffix != ".safetensors":
        raise InputError(f"expected a checkpoint name that ends in .safetensors, got {out}")
    require_folder(out)
    if init is not None and pretrained:
        raise InputError("--init and --pretrained are two places to start from; give one")
    beginning = None if init is None else load_model(init)
    held = None if beginning is None else beginning[0].spec.backbone
    where = select_device(device)
    given = {"lr": lr, "schedule": schedule, "warmup": warmup}
    own: dict[str, Any] = {**kind.defaults, **{name: value for name, value in given.items() if value is not None}}
    own["augmentation"] = _augmentation(own, scale, blur_sigma, corrupt)
    config = TrainConfig(
        method=method,
        backbone=backbone or held or "resnet18",
        size=size,
        small_size=small_size,
        n_small=n_small,
        epochs=epochs,
        batch_size=batch_size,
        latent_dim=latent_dim,
        hidden_dim=hidden_dim,
        predictor=predictor,
        predictor_every=predictor_every,
        freeze=freeze,
        trunk_lr=trunk_lr,
        seed=seed,
        precision=select_precision(precision, where),
        **own,
    )
    line = (lambda text: None) if quiet else say
    if where.type == "cpu":
        line("training on the CPU: this is slow; small images, a small backbone and --init help")
    build(config, 2, init=beginning and beginning[0])  # what cannot be built says so before an hour of decoding
    images, manifest = _load(data, label if kind.needs_labels else None, size, limit, label_from_folder, line)
    made_of = {"data": manifest.description, "images": len(images.pixels), "recipe": config.to_json(), "note": note}
    origin = {"data": manifest.digest, "init": None, "pretrained": pretrained}
    if beginning is not None:
        made_of["init"] = {name: beginning[1][name] for name in ("method", "digest", "training")}
        origin["init"] = beginning[1]["digest"]
    start = build(config, len(images.classes), init=beginning and beginning[0], pretrained=pretrained)
    state = out.with_name(f".{out.name}.state")
    if state.exists():
        line(f"going on from {state}")
    with TrainBar(quiet=quiet) as bar:
        model, measures = train(
            config,
            images,
            state=state,
            device=where,
            start=start,
            origin=origin,
            compiled=where.type == "cuda" if compile is None else compile,
            report=bar.update,
        )
    card = {"method": method, "training": made_of, "metrics": measures, "data_licence": licence}
    digest = save_checkpoint(out, model, card, dtype=torch.float16 if half else torch.float32)
    state.unlink(missing_ok=True)
    line(", ".join(f"{name} {value:.4g}" for name, value in measures.items()))
    line(f"model {digest[:12]}: {out}")


def _augmentation(own: dict[str, Any], scale: float | None, blur_sigma: float | None, corrupt: float | None) -> Any:
    from dataclasses import replace

    from trainers.config import Augmentation

    recipe = own.get("augmentation", Augmentation())
    if scale is not None:
        recipe = replace(recipe, scale=(scale, 1.0))
    if blur_sigma is not None:
        recipe = replace(recipe, blur_sigma=(0.1, blur_sigma))
    return recipe if corrupt is None else replace(recipe, corrupt=corrupt)


def _load(
    data: list[str],
    label: str | None,
    size: int,
    limit: int | None,
    label_from_folder: bool,
    line: Callable[[str], None],
) -> tuple[Any, Any]:
    from curate.manifest import SourceOptions, open_manifest
    from curate.manifest.names import some
    from scoring.errors import InputError
    from trainers.data import load_training_set

    manifest = open_manifest(
        data[0] if len(data) == 1 else data, SourceOptions(limit=limit, label_from_folder=label_from_folder)
    )
    line(manifest.description)
    labels = None
    if label is not None:
        if label not in manifest.schema.names:
            columns = ", ".join(manifest.schema.names)
            raise InputError(
                f"supervised training needs labels, and there is no column {label!r} (columns: {columns}); "
                "name one with --label, or use --label-from-folder"
            )
        labels = manifest.rows(0, manifest.n_rows).column(label).to_pylist()
        if all(value is None for value in labels):
            raise InputError(
                f"supervised training needs labels, and none of {len(labels):,} images has one in {label!r}; "
                "expected a sub-folder for each class, or another column (--label)"
            )
    images = load_training_set(manifest.readers(0, manifest.n_rows), labels, n=manifest.n_rows, size=size)
    if images.failures:
        kinds = ", ".join(f"{n:,} {status}" for status, n in sorted(images.failures.items()))
        line(f"left out {some(sum(images.failures.values()), 'image')} that cannot be read: {kinds}")
    return images, manifest
