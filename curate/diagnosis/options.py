"""The options of ``curate doctor``."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options.option import Option

SECONDS = 10.0  # that the speed test takes


@dataclass(frozen=True, eq=False, repr=False)
class DoctorOptions:
    """The options of ``curate doctor``."""

    folder: Annotated[str | Path, Option("Where output would go: its disk is tried.", path="local", argument=True)] = (
        Path()
    )
    _: KW_ONLY
    seconds: Annotated[float, Option("How long the speed test takes; 0 leaves it out.", least=0, most=600)] = SECONDS
