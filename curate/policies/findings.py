"""What a comparison with files that were written can find: facts, which ``curate verify`` says."""

from dataclasses import dataclass

# Kinds of rows that differ.
DECISION, GONE, LACKING, EXTRA, RANK, VALUE, LATER_VALUE = (
    "decision",
    "gone",
    "lacking",
    "extra",
    "rank",
    "value",
    "later value",
)
# Kinds of what else is not as the receipt says.
ANEW, REORDERED, OTHER_DIGEST, TWICE, OTHER_COLUMNS, FILE_GONE, FILE_CHANGED = (
    "anew",
    "reordered",
    "other digest",
    "twice",
    "other columns",
    "file gone",
    "file changed",
)


@dataclass(frozen=True)
class Difference:
    """A row that is not as it was derived again.

    Attributes:
        kind: DECISION; GONE, of the input; LACKING, of the subset, which should hold it; EXTRA, in a subset that should
            not; RANK; VALUE, of a column; LATER_VALUE, of some row after number ``now``.
        key: of the row; empty for those that are only counted.
        now: the decision, or the rank; None where there is none.
        then: likewise, as written.
        column: whose value differs.
        file: ``subset`` or ``batch``, that holds the other value.
    """

    kind: str
    key: str
    now: str | int | None = None
    then: str | int | None = None
    column: str = ""
    file: str = ""


@dataclass(frozen=True)
class Finding:
    """Something else that is not as the receipt says.

    Attributes:
        kind: ANEW, of a file that is gone and was computed again; REORDERED, of the input, whose rows were compared by
            key; OTHER_DIGEST, of an input; TWICE, of rows of the subset; OTHER_COLUMNS; FILE_GONE; FILE_CHANGED.
        what: the path, or ``the input``; for OTHER_COLUMNS ``subset`` or ``batch``.
        now: the digest.
        then: the digest that the receipt names.
    """

    kind: str
    what: str = ""
    now: str = ""
    then: str = ""
