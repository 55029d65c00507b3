"""The options of ``curate run``."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options import fields
from curate.options.option import Option


@dataclass(frozen=True, eq=False, repr=False)
class RunOptions:
    """The options of ``curate run``."""

    file: Annotated[str | Path, Option("The pipeline, such as curate.toml.", path="local", argument=True)]
    _: KW_ONLY
    until: Annotated[str | None, Option("Stop after this step.", metavar="STEP")] = None
    again: Annotated[str | None, Option("Repeat this step and all that depend on it.", metavar="STEP")] = None
    allow_outside: Annotated[bool, Option("Allow steps to write outside the folder of the file.")] = False
    dry_run: fields.DryRun = False
    announce: fields.Announce = lambda text: None
