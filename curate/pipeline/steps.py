"""Commands that can be steps: the option for the output of each, and how the output is named."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from curate.exporting.table import FORMATS
from scoring.lookup import lookup

FORMAT = "to"


@dataclass(frozen=True)
class Kind:
    """How a command takes part in a pipeline.

    Attributes:
        out: the option that names what it writes.
        suffix: how that is named after the step; None where the step's ``to`` says it.
        makes_table: whether later steps can read what it writes.
        reads_table: whether it reads what an earlier step wrote; else it starts from images.
        goes_on: whether, repeated, it goes on with what a killed run left; others write all again.
    """

    out: str = "out"
    suffix: str | None = ".parquet"
    makes_table: bool = True
    reads_table: bool = True
    goes_on: bool = False

    def name_of(self, step: str, options: Mapping[str, Any]) -> str:
        """Return the file or folder that a step of this name writes.

        Raises:
            InputError: for an invalid format.
        """
        if self.suffix is not None:
            return step + self.suffix
        chosen = options.get(FORMAT)
        return step + lookup(FORMATS, str(chosen), kind="format").suffix if chosen is not None else step


STEPS: dict[str, Kind] = {  # to let another command be a step, add a line
    "score": Kind(reads_table=False, goes_on=True),
    "fit": Kind(out="apply"),
    "filter": Kind(),
    "issues": Kind(),
    "dedup": Kind(),
    "labels": Kind(),
    "calibrate": Kind(out="apply"),
    "select": Kind(),
    "balance": Kind(),
    "split": Kind(),
    "sheet": Kind(suffix=".png", makes_table=False),
    "report": Kind(suffix=".html", makes_table=False),
    "export": Kind(suffix=None, makes_table=False),
}


def kind_of(command: str) -> Kind:
    """Return how a command takes part; InputError with the closest name if it cannot."""
    return lookup(STEPS, command, kind="step")
