"""Fields that the requests of several commands have."""

from collections.abc import Callable, Mapping
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
Announce = Annotated[Callable[[str], None], Note("Called with a line on what is about to happen.")]
Overwrite = Annotated[bool, shared("--overwrite")]
Settings = Annotated[Mapping[str, object] | None, shared("--set", metavar="NAME=VALUE")]
