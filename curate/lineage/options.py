"""The options of ``curate diff``, ``curate explain`` and ``curate verify``."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option, shared


@dataclass(frozen=True, eq=False, repr=False)
class DiffOptions:
    """The options of ``curate diff``."""

    table: Annotated[
        str | Path, Option("A subset, its receipt or its decisions; or any table of keys.", path="table", argument=True)
    ]
    other: fields.Other
    _: KW_ONLY
    root: fields.Roots = None
    out: Annotated[
        str | Path | None, shared("--out", ": every row that only one of them holds, and why, NAME.parquet")
    ] = None
    overwrite: fields.Overwrite = False


@dataclass(frozen=True, eq=False, repr=False)
class ExplainOptions:
    """The options of ``curate explain``."""

    table: Annotated[
        str | Path,
        Option(
            "A subset, its decisions or its receipt; or the scored table, for all steps in its folder.",
            path="table",
            argument=True,
        ),
    ]
    keys: Annotated[str | Sequence[str], Option("Keys of the images, as in the column key.", argument=True)]
    _: KW_ONLY
    root: fields.Roots = None


@dataclass(frozen=True, eq=False, repr=False)
class VerifyOptions:
    """The options of ``curate verify``."""

    receipt: Annotated[
        str | Path,
        Option(
            "NAME.receipt.json or NAME.parquet, with subset and decisions next to it, here or in a store; a "
            "folder of rounds; a fitted model; a calibration; or the output of curate run.",
            path="table",
            argument=True,
        ),
    ]
    table: Annotated[str | Path | None, shared("--table", metavar="TABLE", path="table")] = None
    _: KW_ONLY
    root: Annotated[
        str | Path | Sequence[str | Path] | None,
        shared("--root", ": moved files are found below it by their digest, and nothing else is read (repeatable)"),
    ] = None
    chain: Annotated[bool, Option("Also recompute every earlier subset.")] = False
    pixels: Annotated[
        str | int | None, Option("Read this many images again and compare their digests.", metavar="N|all")
    ] = None
    source: Annotated[str | None, shared("--source", ", for --pixels, if the table has no paths", alone=True)] = None
    seed: fields.Seed = 0
