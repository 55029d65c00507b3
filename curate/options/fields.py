"""Fields that several commands have."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

from curate.options.option import Note, Option, shared

Table = Annotated[
    str | Path,
    Option(
        "Scored table: a Parquet file, or a folder of part-*.parquet; here, or s3://, gs:// or hf://.",
        path="table",
        argument=True,
    ),
]
LocalTable = Annotated[
    str | Path, Option("Scored table: a Parquet file, or a folder of part-*.parquet.", path="local", argument=True)
]
Announce = Annotated[Callable[[str], None], Note("Called with a line on what is about to happen.")]
AllowUnmatched = Annotated[bool, shared("--allow-unmatched")]
Device = Annotated[str, shared("--device", default=True)]
DryRun = Annotated[bool, shared("--dry-run")]
Embedding = Annotated[str | None, shared("--embedding", metavar="COLUMN")]
Engine = Annotated[str, shared("--engine", metavar="NAME", default=True)]
Finder = Annotated[
    str | Sequence[str] | Mapping[str, float | None] | None,
    Option(
        "Kind of sameness: bytes, pixels, hash, signature, crop or embedding (repeatable). "
        "[default: bytes and signature]",
        metavar="NAME",
        python="Kind of sameness: one or several of bytes, pixels, hash, signature, crop and embedding, or name -> "
        "threshold in its unit, None for its own; by default bytes and signature.",
    ),
]
LabelFromFolder = Annotated[bool, shared("--label-from-folder")]
Labelled = Annotated[str | Path | None, shared("--labelled")]
Log = Annotated[str | Path | None, shared("--log", metavar="FILE")]
Mirrored = Annotated[bool, Option("Mirrored copies are the same (signature, crop, near-duplicate).")]
Overwrite = Annotated[bool, shared("--overwrite")]
Seed = Annotated[int, shared("--seed", default=True)]
Settings = Annotated[Mapping[str, object] | None, shared("--set", metavar="NAME=VALUE")]
Source = Annotated[str | None, shared("--source", "; needed where the table holds no path to an image")]
Verdicts = Annotated[
    str | Path | None, shared("--verdicts", ": drop, keep and relabel rows by it", metavar="FILE", path="local")
]
