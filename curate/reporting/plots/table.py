"""The table of chart kinds by name; importing this is cheap."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from scoring.lookup import lookup


@dataclass(frozen=True)
class Kind:
    """A kind of chart.

    Attributes:
        where: its module and class.
        shows: description of the chart.
        needs: description of the required columns.
        options: Python names of its options, in addition to the common ones.
    """

    where: str
    shows: str
    needs: str
    options: frozenset[str]

    def numbers(self) -> Any:
        """Its class, a ``Numbers``, imported."""
        module, _, name = self.where.partition(":")
        return getattr(import_module(module), name)


_ROOM = "curate.reporting.plots."
_JUDGED = frozenset({"column", "label", "labelled", "right", "prediction", "embedding", "repeats", "sample"})
KINDS: dict[str, Kind] = {  # to add a kind, add a line
    "histogram": Kind(
        f"{_ROOM}histogram:Histogram",
        "how values are spread, overall or by group",
        "numbers",
        frozenset({"column", "per"}),
    ),
    "abstained-accuracy": Kind(
        f"{_ROOM}orders:Abstained", "accuracy of the most certain share of rows", "--label or --right", _JUDGED
    ),
    "risk-coverage": Kind(
        f"{_ROOM}orders:Risk", "errors among the most certain share, and the best order", "--label or --right", _JUDGED
    ),
    "roc": Kind(
        f"{_ROOM}orders:Roc", "right rows against wrong rows above each threshold", "--label or --right", _JUDGED
    ),
    "reliability": Kind(
        f"{_ROOM}reliability:Reliability", "how often confident rows are right", "--label or --right", _JUDGED
    ),
    "course": Kind(
        f"{_ROOM}course:TrainingCourse",
        "loss, rate and measures of a training run",
        "curate train --course",
        frozenset({"column"}),
    ),
}


def kind_of(name: str) -> Kind:
    """Return a kind by name; InputError with the nearest name if invalid."""
    return lookup(KINDS, name, kind="kind")
