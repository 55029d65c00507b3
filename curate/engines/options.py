"""The options of ``curate score``."""

from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from curate.engines.table import ENGINES
from curate.options import fields
from curate.options.option import Note, Option, shared
from scoring.scorers import free_scorers

if TYPE_CHECKING:
    from curate.engines.run import ScoreProgress


@dataclass(frozen=True, eq=False, repr=False)
class ScoreOptions:
    """The options of ``curate score``."""

    source: Annotated[
        str | Path | Sequence[str | Path],
        Option(
            "Folder, list (.txt), CSV, JSONL, Parquet, WebDataset .tar, or URL (s3://...); several are read as one.",
            path="name",
            argument=True,
        ),
    ]
    out: Annotated[
        str | Path,
        shared(
            "--out",
            ": NAME.parquet for one file; any other name is a folder of parts; s3:// and gs:// too",
            path="name",
        ),
    ]
    _: KW_ONLY
    model: Annotated[
        str | Path | None,
        shared(
            "--model",
            " (see `curate models`), or timm:NAME for embeddings alone; by default world",
            path="name",
            python="A shipped model, a .safetensors file, or timm:NAME for embeddings alone; by default world, with "
            "``add`` the table's.",
        ),
    ] = None
    weights: Annotated[
        str | Path | None,
        Option("A .safetensors file with the weights of --model timm:NAME, instead of the published ones."),
    ] = None
    device: fields.Device = "auto"
    precision: fields.Precision = "auto"
    backend: Annotated[
        str,
        Option("Backend of the network: torch; or openvino, faster on a CPU (an extra).", metavar="NAME"),
    ] = "torch"
    batch_size: Annotated[int | None, shared("--batch-size", "; by default 64 on a CPU, 256 on a GPU")] = None
    workers: fields.Workers = None
    limit: fields.Limit = None
    dtype: Annotated[str, shared("--dtype", ", for embeddings", default=True)] = "float16"
    scorer: Annotated[
        str | Sequence[str] | None,
        Option(f"A score that needs no training (repeatable): {', '.join(free_scorers())}.", metavar="NAME"),
    ] = None
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
    embedding: Annotated[
        bool,
        Option("Omit the embeddings.", " /--no-embedding", python="Store the embeddings.", default=False),
    ] = True
    key: fields.Key = None
    path_column: fields.PathColumn = None
    image_column: fields.ImageColumn = None
    root: fields.Root = None
    label_from_folder: Annotated[bool, shared("--label-from-folder", ", in a column `label`")] = False
    connections: fields.Connections = 64
    follow_symlinks: Annotated[bool, Option("Follow links to folders; loops are cut.")] = False
    hidden: Annotated[bool, Option("Include hidden files and folders.")] = False
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
    white: fields.White = None
    engine: Annotated[str, shared("--engine", f"; there are: {', '.join(ENGINES)}", metavar="NAME", default=True)] = (
        "local"
    )
    actors: Annotated[int | None, shared("--actors", least=1)] = None
    num_gpus: Annotated[float | None, shared("--num-gpus")] = None
    shard_size: Annotated[int, Option("Rows committed at a time; a kill loses at most that many.")] = 4096
    add: Annotated[bool, Option("Score new and changed images of the source and add them to the table.")] = False
    check: Annotated[bool, Option("With --add, compare every known image by its sha256.", default=False)] = False
    refit: Annotated[bool, Option("With --add, fit the scores of the dataset again.", default=False)] = False
    retry: Annotated[
        str | Iterable[str] | None,
        Option("On a repeat, also retry rows of this status, such as denied (repeatable).", metavar="STATUS"),
    ] = None
    log: fields.Log = None
    overwrite: fields.Overwrite = False
    max_bytes: Annotated[int, Note("Bound on the size of one image, in bytes.")] = 256 << 20
    allow_private_hosts: Annotated[bool, Note("URLs inside the source may lead into private networks.")] = False
    explicit: Annotated[
        Set[str], Note("With ``add``, names of options that are not the table's; by default the keywords of the call.")
    ] = frozenset()
    report: Annotated[
        Callable[["ScoreProgress"], None], Note("Called with the progress after every image batch or so.")
    ] = lambda progress: None
    announce: fields.Announce = lambda text: None
