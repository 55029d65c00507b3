"""Options of how images are read and scored, with which the source and settings of a run are validated."""

from dataclasses import dataclass
from typing import Annotated

from curate.options import fields
from curate.options.option import Note, Option, shared


@dataclass(frozen=True, kw_only=True)
class ScoringOptions:
    """How to score."""

    device: fields.Device = "auto"
    precision: fields.Precision = "auto"
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
    white: fields.White = None
    shard_size: Annotated[int, Option("Rows committed at a time; a kill loses at most that many.")] = 4096


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """How to read a source."""

    limit: fields.Limit = None
    key: fields.Key = None
    path_column: fields.PathColumn = None
    image_column: fields.ImageColumn = None
    root: fields.Root = None
    label_from_folder: Annotated[bool, shared("--label-from-folder", ", in a column `label`")] = False
    connections: fields.Connections = 64
    follow_symlinks: Annotated[bool, Option("Follow links to folders; loops are cut.")] = False
    hidden: Annotated[bool, Option("Include hidden files and folders.")] = False
    max_bytes: Annotated[int, Note("Bound on the size of one image, in bytes.")] = 256 << 20
    allow_private_hosts: Annotated[bool, Note("URLs inside the source may lead into private networks.")] = False
