"""``curate train``: fit a model that ``curate score`` can use."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from curate.commands import options
from curate.commands.printing import emit, say, say_next
from curate.commands.progress import TrainBar
from trainers.methods.table import WHERE


def run(
    method: Annotated[
        str,
        typer.Argument(help=f"{', '.join(WHERE)}; --help after its name shows its settings and paper."),
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
    recipe: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Take what is left out from a paper's recipe, such as cifar10; help lists METHOD's.",
            show_default=False,
        ),
    ] = None,
    backbone: options.Backbone = None,
    backbone_set: options.BackboneSet = None,
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
    lr: Annotated[float | None, typer.Option(help="Learning rate.", show_default=False)] = None,
    set_: Annotated[
        list[str] | None,
        options.shared(
            "--set", " of the method, its views or its steps; METHOD --help lists them", metavar="NAME=VALUE"
        ),
    ] = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    devices: Annotated[
        int, typer.Option(metavar="N", help="GPUs, one process each; with --device cpu, processes.")
    ] = 1,
    precision: Annotated[
        str,
        options.shared("--precision", "; or fp16, for GPUs without bfloat16: the loss is scaled", show_default=True),
    ] = "auto",
    compile: Annotated[
        bool,
        typer.Option("--compile", help="Compile the network, which takes a minute or more; for long runs on a GPU."),
    ] = False,
    stream: Annotated[
        bool | None,
        typer.Option(
            "--stream/--no-stream",
            help="Cut views from whole images, which are read again in each epoch; by default where squares of --size "
            "do not fit in memory.",
            show_default=False,
        ),
    ] = None,
    half: Annotated[bool, typer.Option(help="Store the weights as float16.")] = False,
    licence: options.Licence = "not stated",
    note: Annotated[str, typer.Option(help="A sentence for the model card.")] = "",
    limit: options.Limit = None,
    white: options.White = None,
    course: Annotated[
        Path | None,
        typer.Option(
            help="Folder for the course of the run: course.csv, and TensorBoard if it is installed.",
            metavar="FOLDER",
            show_default=False,
        ),
    ] = None,
    measure_on: Annotated[
        str | None,
        typer.Option(
            help="Labelled images to measure on as it learns: kNN, R@1, R-AUROC.", metavar="DATA", show_default=False
        ),
    ] = None,
    every: Annotated[int, typer.Option(help="Epochs between two measurements on --measure-on.")] = 1,
    save_best: Annotated[
        str | None,
        typer.Option(
            help="Keep the best model so far, NAME.best.safetensors, by knn, recall_at_1 or r_auroc.",
            metavar="MEASURE",
            show_default=False,
        ),
    ] = None,
    keep_state: Annotated[
        bool, typer.Option("--keep-state", help="Keep the training state, to go on with more --epochs.")
    ] = False,
    overwrite: options.Overwrite = False,
    quiet: options.Quiet = False,
    json_: options.Json = False,
) -> None:
    """Train a model, or a head on a model that you trust.

    --set sets the method, its views and its steps: curate train METHOD --help shows what, and the method's paper.
    What you leave out is as in that paper. Killed, the run goes on when you repeat the command, from a state of at
    most a minute before. `curate plot FOLDER course` draws what --course wrote. For small images or a CPU, start from
    a backbone that learned from labels. --devices 4 trains on 4 GPUs.

    Example:

    \b
        curate train visimsiam photos/ -o mine.safetensors --backbone resnet18 --epochs 200
        curate train simsiam cifar10.parquet -o four.safetensors --recipe cifar10
        curate train supervised photos/ --label-from-folder -o trunk.safetensors --size 64 --epochs 16
        curate train visimsiam photos/ -o one.safetensors --set small_size=32 --backbone trunk.safetensors --freeze
        curate train losspred labelled.parquet -o two.safetensors --backbone one.safetensors --freeze --set folds=3
        curate train mcinfonce --cached features/ -o three.safetensors --backbone two.safetensors
    """
    arguments = {**locals(), "white": options.white_argument(white)}
    from curate.training.launch import is_launcher, is_silent, launch
    from curate.training.train import train
    from scoring.settings import parse_settings

    if (data is None) == (cached is None):
        raise typer.BadParameter("give images to train on, or --cached FOLDER, and not both")
    if is_launcher(devices):
        return launch(devices)
    quiet = quiet or is_silent()
    line = (lambda text: None) if quiet else say
    settings = parse_settings(set_ or [], example="folds=3")
    of_network = parse_settings(backbone_set or [], flag="--backbone-set", example="drop_path_rate=0.1")
    with TrainBar(quiet=quiet) as bar:
        arguments |= {"set": settings, "backbone_set": of_network, "report": bar.update, "announce": line}
        result = train(**options.accepted(train, arguments))
    line(", ".join(f"{name} {value:.4g}" for name, value in result.metrics.items()))
    line(f"model {result.model[:12]}: {out}")
    if not quiet:
        say_next(f"curate score photos/ --model {shlex.quote(str(out))} -o scores.parquet")
    if json_ and not is_silent():
        emit(result.to_json())
