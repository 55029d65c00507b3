"""The result of a check of a score."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from curate.tables.typed_json import plain_json
from scoring.metrics.resampling import Interval

HOLDS, BROKEN, UNSURE, UNTRIED = "holds", "broken", "cannot be determined", "not tried"
SAME, WORSE, COPIES, LABELS = "same", "worse", "copies", "labels"
SECTIONS: Mapping[str, str] = {  # sections in display order
    SAME: "what must change no score",
    WORSE: (
        "what must make a score less certain, the more the stronger: how many more unchanged images are more certain"
    ),
    COPIES: "what must make an image less unique: a copy of it among the others",
    LABELS: "what a score must show of the labels",
}


@dataclass(frozen=True)
class Check:
    """One check of one column.

    Attributes:
        section: a key of ``SECTIONS``.
        what: the change, such as ``blur`` or ``batches of 7``.
        column: the tested column; empty if not tested.
        state: ``HOLDS``, ``BROKEN``, ``UNSURE`` (the interval is too wide to decide) or ``UNTRIED``.
        words: the observation, or why it was not tested.
        measured: the deciding number, with its interval if any; None if not measured.
        images: number of images.
    """

    section: str
    what: str
    column: str
    state: str
    words: str
    measured: Interval | None = None
    images: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; an unknown bound is null."""
        return {name: plain_json(value) for name, value in vars(self).items() if value is not None}
