"""The options of ``curate doctor``."""

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Annotated

from curate.options.option import Option

SECONDS = 10.0  # duration of the speed test


@dataclass(frozen=True, eq=False, repr=False)
class DoctorOptions:
    """The options of ``curate doctor``."""

    folder: Annotated[str | Path, Option("Output folder, to test its disk.", path="local", argument=True)] = Path()
    _: KW_ONLY
    seconds: Annotated[float, Option("Duration of the speed test; 0 skips it.", least=0, most=600)] = SECONDS
