"""The request to check the labels of a table."""

from dataclasses import dataclass
from typing import ClassVar

from curate.columns import EMBEDDING
from curate.policies.request import Request
from curate.policies.reviewed import LINES
from curate.policies.reviewed import RULE as VERDICTS
from curate.tables.table import Table
from scoring.errors import InputError

RULE = "labels"
QUALITY, SUGGESTED, WHY, AGREEMENT = "label_quality", "suggested_label", "label_why", "label_agreement"
MEANINGS: dict[str, str] = {
    QUALITY: (
        "confidence that the label is right, 0 to 1; below 0.5 another class is more likely; null if it "
        "cannot be judged"
    ),
    SUGGESTED: "the most likely class: the label itself, unless its quality is below 0.5",
    WHY: "what contradicts the label: probe, neighbours, joint (confident learning), copy (a copy has another label)",
    AGREEMENT: "share of the annotators' labels that equal the majority's",
}


@dataclass(frozen=True)
class LabelsRequest(Request):
    """The request; fields are as in ``LabelsOptions``, but for these.

    Attributes:
        drop: whether rows whose label is suspected leave the subset.

    Raises:
        InputError: for values out of range.
    """

    rule: ClassVar[str] = RULE
    beside: ClassVar[tuple[str, ...]] = (VERDICTS, LINES)
    label: tuple[str, ...]
    drop: bool = False
    relabel: str | None = None
    below: float = 0.5
    seed: int = 0
    labelled: str | None = None

    def __post_init__(self) -> None:
        if not self.label and self.labelled is None:
            raise InputError(
                "expected a column of labels, got none; choose it with --label COLUMN, or a file of them with "
                "--labelled"
            )
        if len(self.label) > 1 and self.labelled is not None:
            raise InputError(
                f"--labelled takes one column of {self.labelled}, got --label "
                f"{', --label '.join(self.label)}; choose one: annotators are separated by the column 'annotator'"
            )
        if len(set(self.label)) < len(self.label):
            raise InputError(f"expected each column of labels once, got {', '.join(self.label)}; pass each once")
        if not 0 < self.below <= 1:
            raise InputError(f"--below must be in (0, 1], got {self.below:g}; 0.5 is usual")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed must be between 0 and 2^31 - 1, got {self.seed}; choose another")
        if self.drop and self.relabel is not None:
            raise InputError("--drop-suspected drops the rows that --relabel would correct; choose one of them")
        if self.relabel is not None and not self.relabel.strip():
            raise InputError("--relabel takes the name of a new column, got an empty text; choose one")

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of labels of the table."""
        return () if self.labelled is not None else self.label

    def check(self, table: Table) -> None:
        """Refuse a table without embeddings, a column to add that it has, or one of labels that it lacks.

        Raises:
            InputError: naming it.
        """
        table.require(self.columns)
        if EMBEDDING not in table.schema.names:
            raise InputError(
                f"{table.path} has no column {EMBEDDING!r}, which judging labels needs; score the images without "
                "--no-embedding, or choose your own column with --embedding"
            )
        taken = [QUALITY, SUGGESTED, WHY, AGREEMENT]
        if self.relabel is not None and self.relabel in (*table.schema.names, *taken):
            raise InputError(
                f"--relabel adds a column, and {self.relabel!r} exists already, and is never overwritten; "
                "choose another name"
            )
