"""Findings of a comparison with written files, as facts, which ``curate verify`` prints."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any

# Kinds of rows that differ.
DECISION, SCORE, REASON, RANK, VALUE, LATER_VALUE = "decision", "score", "reason", "rank", "value", "later value"
GONE, LACKING, EXTRA = "gone", "lacking", "extra"
# Kinds of what else is not as the receipt says.
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
    """A row that differs from the derived one.

    Attributes:
        kind: DECISION; SCORE, a number that decides, where the decision is the same; REASON, or another text; GONE,
            of the input; LACKING, of the subset, which should hold it; EXTRA, in a subset that should not; RANK; VALUE,
            of a column; LATER_VALUE, of some row after number ``now``.
        key: of the row; empty for those that are only counted.
        now: the decision, the score, the text, or the rank; None if absent.
        then: the same, as written.
        column: whose value differs.
        file: ``subset`` or ``batch``, that holds the other value.
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
        kind: REORDERED, of the input, whose rows were compared by key; OTHER_DIGEST, of an input; TWICE, of rows of the
            subset; OTHER_COLUMNS; FILE_GONE; FILE_CHANGED; OTHER_BYTES, of an input whose rows say the same as far as
            they were read; OTHER_BESIDE, of a file that was read next to it; NEITHER, of files of its name, of which
            none has its bytes; NOT_NEAREST, where the one near the receipt has not; REWRITTEN, of an input that was
            named, or has another order; MOVED, of a file found elsewhere; OTHER_MODEL, of the weights that made the
            input; OTHER_VERSION, of this package; OTHER_PACKAGE, or of Python; OTHER_FIGURE, of the receipt; NOT_AGAIN,
            of a figure that takes the images; OTHER_RULES, where all that was read and written is as noted, and the
            rules give something else; OTHER_FORM, of a receipt that lacks figures of today, or has figures that are no
            longer derived.
        what: the path, or ``the input``; the name of a figure; for OTHER_COLUMNS ``subset`` or ``batch``; the package.
        now: the digest or version; the path where a file is.
        then: the digest or version that the receipt names; the path where a file was.
    """

    kind: str
    what: str = ""
    now: str = ""
    then: str = ""
