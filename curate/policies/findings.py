"""Findings when written files are compared, which ``curate verify`` prints."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

# Kinds of rows that differ.
DECISION, SCORE, REASON, RANK, VALUE = "decision", "score", "reason", "rank", "value"
GONE, LACKING, EXTRA = "gone", "lacking", "extra"
# Kinds of other differences from the receipt.
OTHER_BYTES, OTHER_BESIDE, OTHER_DIGEST = "other bytes", "other bytes next to", "other digest"
OTHER_MODEL, OTHER_VERSION, OTHER_PACKAGE = "other model", "other version", "other package"
OTHER_RULES, OTHER_CHANCES, OTHER_FIGURE = "other rules", "other probabilities", "other figure"
OTHER_COLUMNS, FILE_GONE, FILE_CHANGED = "other columns", "file gone", "file changed"
REWRITTEN, MOVED, REORDERED = "rewritten", "moved", "reordered"
NOT_AGAIN, TWICE, OTHER_FORM = "not again", "twice", "other form"
NEITHER, NOT_NEAREST = "neither", "not nearest"


class VerificationResult(ABC):
    """The result of a comparison, a dataclass."""

    @property
    @abstractmethod
    def identical(self) -> bool:
        """Whether nothing differs."""

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {"identical": self.identical, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Difference:
    """A row that differs from the repeated decision.

    Attributes:
        kind: DECISION; SCORE, a deciding number, with the same decision; REASON, or another text; GONE from the input;
            LACKING in the subset; EXTRA in the subset; RANK; VALUE of a column.
        key: of the row; empty if only counted.
        now: the decision, the score, the text, or the rank; None if absent.
        then: the same, as written before.
        column: the column whose value differs.
        file: ``subset`` or ``batch``, whose value differs.
    """

    kind: str
    key: str
    now: str | float | None = None
    then: str | float | None = None
    column: str = ""
    file: str = ""


@dataclass(frozen=True)
class Finding:
    """Another difference from the receipt.

    Attributes:
        kind: REORDERED, an input compared by key; OTHER_DIGEST of an input; TWICE, rows of the subset;
            OTHER_COLUMNS; FILE_GONE; FILE_CHANGED; OTHER_BYTES, an input with equal rows in the columns read;
            OTHER_BESIDE, another file read; NEITHER, no file of its name has its bytes; NOT_NEAREST, the file near the
            receipt has other bytes; REWRITTEN, an input given by path, or with another row order; MOVED, a file found
            elsewhere; OTHER_MODEL that scored the input; OTHER_VERSION of this package; OTHER_PACKAGE, or Python;
            OTHER_FIGURE in the receipt; NOT_AGAIN, a figure that needs the images; OTHER_RULES, equal files but another
            decision; OTHER_FORM, a receipt of a version with other figures.
        what: the path, or ``the input``; the name of a figure; for OTHER_COLUMNS ``subset`` or ``batch``; the package.
        now: the present digest or version, or path of a file.
        then: the recorded digest or version, or path of a file.
    """

    kind: str
    what: str = ""
    now: str = ""
    then: str = ""
