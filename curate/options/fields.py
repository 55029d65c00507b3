"""Fields shared by several commands, and the options with which images are read and scored."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from curate.options.option import Note, Option, shared
from curate.options.values import white_of

Table = Annotated[
    str | Path,
    Option(
        "Scored table: a Parquet file or a folder of part-*.parquet, here or s3://, gs:// or hf://; or a "
        "folder of curate clean.",
        path="table",
        argument=True,
    ),
]
LocalTable = Annotated[
    str | Path,
    Option(
        "Scored table: a Parquet file, or a folder of part-*.parquet or of curate clean.", path="local", argument=True
    ),
]
Announce = Annotated[Callable[[str], None], Note("Called with a line on what is about to happen.")]
Apply = Annotated[str | Path | None, shared("--apply", path="output")]
AllowUnmatched = Annotated[bool, shared("--allow-unmatched")]
Backbone = Annotated[
    str | None,
    Option(
        "timm:NAME (published weights), a checkpoint, a shipped model, or a timm name (random weights); by default "
        "resnet18. For images of 32 pixels: resnet18_cifar, resnet50_cifar, resnet_simvae, mlp.",
        default=False,
    ),
]
BackboneSet = Annotated[
    Mapping[str, object] | None,
    Option(
        "Set an option of the network (repeatable), such as drop_path_rate=0.1.",
        metavar="NAME=VALUE",
        example="drop_path_rate=0.1",
    ),
]
Confidence = Annotated[str | float, shared("--confidence", metavar="SHARE", default=True)]
Connections = Annotated[int, shared("--connections", default=True, least=1, most=512)]
Device = Annotated[str, shared("--device", default=True)]
Discount = Annotated[bool, shared("--discount")]
DryRun = Annotated[bool, shared("--dry-run")]
Embedding = Annotated[str | None, shared("--embedding", metavar="COLUMN")]
Engine = Annotated[str, shared("--engine", metavar="NAME", default=True)]
Gate = Annotated[float, shared("--gate", metavar="SHARE")]
Finder = Annotated[
    str | Sequence[str] | Mapping[str, float | None] | None,
    Option(
        "Finder of copies: bytes, hash, signature, crop, embedding or near-duplicate (repeatable). "
        "[default: bytes and signature]",
        metavar="NAME",
        python="Finders of copies: one or several of bytes, hash, signature, crop, embedding and near-duplicate, or "
        "name -> threshold in its unit, None for its default; by default bytes and signature.",
    ),
]
ImageColumn = Annotated[str | None, shared("--image-column", "; by default found by type")]
Judges = Annotated[str, shared("--judges", metavar="any|majority|share", default=True)]
Key = Annotated[str | None, shared("--key")]
Label = Annotated[str, shared("--label", ", for methods that use labels", default=True)]
LabelOfEither = Annotated[str | None, shared("--label", ", in --labelled or in the table")]
LabelFromFolder = Annotated[bool, shared("--label-from-folder")]
Labelled = Annotated[str | Path | None, shared("--labelled")]
Licence = Annotated[str, shared("--licence", default=True)]
Limit = Annotated[int | None, shared("--limit")]
Link = Annotated[str, shared("--link", metavar="HOW", default=True)]
Log = Annotated[str | Path | None, shared("--log", metavar="FILE")]
LossColumn = Annotated[str | None, shared("--loss-column")]
Mirrored = Annotated[bool, Option("Also find mirrored copies (signature, crop, near-duplicate).")]
MovedTable = Annotated[str | Path | None, shared("--table")]
NoiseGuard = Annotated[bool, shared("--noise-guard")]
Other = Annotated[str | Path, Option("The table to compare it with.", path="table", argument=True)]
Overwrite = Annotated[bool, shared("--overwrite")]
PathColumn = Annotated[str | None, shared("--path-column", "; by default found by name")]
Precision = Annotated[str, shared("--precision", default=True)]
Quality = Annotated[str | None, shared("--quality", ". [default: the model's own score]", metavar="COLUMN")]
Roots = Annotated[
    str | Path | Sequence[str | Path] | None, shared("--root", ": files that moved are found below it, by their digest")
]
Report = Annotated[Callable[[str], None], Note("Called with a line on what is done.")]
Root = Annotated[str | None, shared("--root", "; by default the list's folder")]
RoundsFolder = Annotated[str | Path, Option("Folder of the rounds.", argument=True)]
Score = Annotated[str | None, shared("--score", metavar="COLUMN")]
Seed = Annotated[int, shared("--seed", default=True)]
Settings = Annotated[Mapping[str, object] | None, shared("--set", metavar="NAME=VALUE")]
Source = Annotated[str | None, shared("--source", "; needed if the table has no paths to images")]
Stop = Annotated[Sequence[str] | None, shared("--stop", metavar="RULE")]
Verdicts = Annotated[
    str | Path | None,
    shared("--verdicts", ", by which rows are dropped, kept and relabelled", metavar="FILE", path="local"),
]
White = Annotated[int | None, shared("--white", metavar="auto|N", default=True, parse=white_of)]
Workers = Annotated[int | None, shared("--workers", least=1, most=1024)]


@dataclass(frozen=True, eq=False, repr=False)
class TableOptions:
    """The first options of a command on a scored table."""

    table: Table
    out: Annotated[str | Path | None, shared("--out", path="output")] = None


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """How to score."""

    device: Device = "auto"
    precision: Precision = "auto"
    backend: Annotated[
        str, Option("Backend of the network: torch; or openvino, faster on a CPU (an extra).", metavar="NAME")
    ] = "torch"
    batch_size: Annotated[int | None, shared("--batch-size", "; by default 64 on a CPU, 256 on a GPU")] = None
    fit: Annotated[
        bool, Option("Finally fit scores to the dataset: unc_fitted and its components.", "--fit/--no-fit")
    ] = True
    quality: Annotated[
        bool,
        Option(
            "Omit image quality, the columns quality_*.",
            " /--no-quality",
            python="Measure image quality: the columns ``quality_*``.",
            default=False,
        ),
    ] = True
    decode: Annotated[
        str,
        Option(
            "Where plain JPEGs are decoded; gpu needs --no-quality.",
            metavar="cpu|gpu",
            python="Where plain JPEGs are decoded, cpu or gpu; gpu needs ``quality=False``.",
        ),
    ] = "cpu"
    max_pixels: Annotated[int, Option("Do not decode larger images; they get the status too_large.")] = 100_000_000
    decode_timeout: Annotated[
        float,
        Option(
            "Processor time per image that is not a plain JPEG, PNG or WebP; beyond it, the status timeout.",
            metavar="SECONDS",
            python="Seconds of processor time for one image that is no plain JPEG, PNG or WebP; beyond it, the status "
            "timeout.",
        ),
    ] = 20.0
    allow_truncated: Annotated[bool, Option("Score the readable part of a truncated image, with a warning.")] = False
    white: White = None
    shard_size: Annotated[int, Option("Rows committed at a time; a kill loses at most that many.")] = 4096


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How to read a source."""

    limit: Limit = None
    key: Key = None
    path_column: PathColumn = None
    image_column: ImageColumn = None
    root: Root = None
    label_from_folder: Annotated[bool, shared("--label-from-folder", ", in a column `label`")] = False
    connections: Connections = 64
    follow_symlinks: Annotated[bool, Option("Follow links to folders; loops are cut.")] = False
    hidden: Annotated[bool, Option("Include hidden files and folders.")] = False
    max_bytes: Annotated[int, Note("Bound on the size of one image, in bytes.")] = 256 << 20
    allow_private_hosts: Annotated[bool, Note("URLs inside the source may lead into private networks.")] = False
