"""The options of ``curate train``, ``curate cache`` and ``curate models convert``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated, Any

from curate.options import fields
from curate.options.option import Note, Option, shared
from trainers.methods.table import WHERE


@dataclass(frozen=True, eq=False, repr=False)
class TrainOptions:
    """The options of ``curate train``."""

    method: Annotated[
        str, Option(f"{', '.join(WHERE)}; --help after its name shows its settings and paper.", argument=True)
    ]
    data: Annotated[
        str | Path | Sequence[str | Path] | None,
        Option("Images, from anything that `curate score` reads; none with --cached.", path="name", argument=True),
    ] = None
    _: KW_ONLY
    cached: Annotated[
        str | Path | None,
        Option(
            "Train on features of `curate cache`, with its frozen backbone.",
            python="Folder that `curate.cache` wrote, whose features are trained on.",
        ),
    ] = None
    out: Annotated[str | Path, shared("--out", ": the checkpoint, NAME.safetensors")]
    recipe: Annotated[
        str | None,
        Option(
            "Use a paper's settings for a dataset, such as cifar10; other options override them; help lists METHOD's "
            "recipes.",
            metavar="NAME",
            python="By name, of the method's own (``trainers.named_recipes``): a value for each option that is "
            "left out.",
        ),
    ] = None
    backbone: fields.Backbone = None
    backbone_set: fields.BackboneSet = None
    freeze: Annotated[bool, Option("Train only the head; embeddings and earlier heads do not change.")] = False
    freeze_batchnorm: Annotated[bool, Option("Freeze the backbone's batch statistics, but train its weights.")] = False
    label: fields.Label = "label"
    label_from_folder: fields.LabelFromFolder = False
    key: fields.Key = None
    path_column: fields.PathColumn = None
    image_column: fields.ImageColumn = None
    root: fields.Root = None
    size: Annotated[int | None, Option("Side of the model's input in pixels; by default the backbone's, or 224.")] = (
        None
    )
    epochs: Annotated[int | None, shared("--epochs", " (100)")] = None
    batch_size: Annotated[int | None, shared("--batch-size", ", of all devices together (512)")] = None
    lr: Annotated[float | None, Option("Learning rate; by default the method's.")] = None
    set: Annotated[
        Mapping[str, object] | None,
        shared(
            "--set",
            " of the method, its views or its steps; METHOD --help lists them",
            metavar="NAME=VALUE",
            example="folds=3",
        ),
    ] = None
    seed: fields.Seed = 0
    device: fields.Device = "auto"
    precision: Annotated[
        str, shared("--precision", "; or fp16, for GPUs without bfloat16: the loss is scaled", default=True)
    ] = "auto"
    compile: Annotated[bool, Option("Compile the network, which takes a minute or more; for long runs on a GPU.")] = (
        False
    )
    stream: Annotated[
        bool | None,
        Option(
            "Read images again in each epoch and crop views from full images; by default if squares of --size "
            "do not fit in memory.",
            name="--stream/--no-stream",
        ),
    ] = None
    half: Annotated[bool, Option("Store the weights as float16.")] = False
    licence: fields.Licence = "not stated"
    note: Annotated[str, Option("A sentence for the model card.")] = ""
    limit: fields.Limit = None
    white: fields.White = None
    course: Annotated[
        str | Path | None,
        Option("Folder for measures of each epoch: course.csv, and TensorBoard if it is installed.", metavar="FOLDER"),
    ] = None
    measure_on: Annotated[
        str | Path | Sequence[str | Path] | None,
        Option(
            "Labelled images to measure on during training: kNN, R@1, R-AUROC (repeatable).",
            metavar="DATA",
            path="name",
        ),
    ] = None
    every: Annotated[int, Option("Epochs between two measurements on --measure-on.")] = 1
    save_best: Annotated[
        str | None,
        Option("Keep the best model so far, NAME.best.safetensors, by knn, recall_at_1 or r_auroc.", metavar="MEASURE"),
    ] = None
    keep_state: Annotated[
        bool, Option("Keep the training state, to resume with more --epochs; it has projector and predictor.")
    ] = False
    overwrite: fields.Overwrite = False
    report: Annotated[Callable[[Any], None], Note("Called after every step.")] = lambda progress: None
    announce: fields.Announce = lambda text: None


@dataclass(frozen=True, eq=False, repr=False)
class CacheOptions:
    """The options of ``curate cache``."""

    data: Annotated[
        str | Path | Sequence[str | Path],
        Option("Images, from anything that `curate score` reads.", path="name", argument=True),
    ]
    out: Annotated[str | Path, shared("--out", ": a folder")]
    model: Annotated[str | Path, shared("--model", ", or timm:NAME", path="name", default=True)] = "world"
    epochs: Annotated[
        int,
        shared(
            "--epochs", ": the first without augmentation, the others of views", least=1, most=100_000, default=True
        ),
    ] = 8
    _: KW_ONLY
    label: fields.Label = "label"
    label_from_folder: fields.LabelFromFolder = False
    key: fields.Key = None
    path_column: fields.PathColumn = None
    image_column: fields.ImageColumn = None
    root: fields.Root = None
    loss_column: fields.LossColumn = None
    dtype: Annotated[str, shared("--dtype", default=True)] = "float16"
    batch_size: Annotated[int, shared("--batch-size", default=True)] = 256
    set: Annotated[
        Mapping[str, object] | None,
        shared("--set", ": how views are drawn, such as jitter=0.4", metavar="NAME=VALUE", example="jitter=0.4"),
    ] = None
    seed: fields.Seed = 0
    device: fields.Device = "auto"
    precision: fields.Precision = "auto"
    white: fields.White = None
    report: Annotated[Callable[[Any], None], Note("Called after every batch.")] = lambda progress: None
    announce: fields.Announce = lambda text: None


@dataclass(frozen=True, eq=False, repr=False)
class ModelsConvertOptions:
    """The options of ``curate models convert``."""

    file: Annotated[str | Path, Option("A .pth.tar, .pth or .safetensors file of weights.", argument=True)]
    out: Annotated[str | Path, shared("--out", ": the checkpoint, NAME.safetensors")]
    _: KW_ONLY
    backbone: Annotated[str | None, Option("timm's name of the model, if the file does not state it.")] = None
    licence: fields.Licence = "not stated"
    overwrite: fields.Overwrite = False


@dataclass(frozen=True, eq=False, repr=False)
class InfoOptions:
    """The options of ``curate info``."""

    file: Annotated[
        str | Path,
        Option(
            "Table (.parquet or a folder), receipt (.json), model (.safetensors), cache or rounds (folders).",
            path="table",
            argument=True,
        ),
    ]


@dataclass(frozen=True, eq=False, repr=False)
class ModelsOptions:
    """The options of ``curate models``."""

    name: Annotated[
        str | Path | None, Option("A shipped model or a .safetensors file.", path="name", argument=True, default=False)
    ] = None
