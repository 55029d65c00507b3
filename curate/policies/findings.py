"""What a comparison with files that were written can find: facts, which ``curate verify`` says."""

from dataclasses import dataclass

# Kinds of rows that differ.
DECISION, SCORE, REASON, GONE, LACKING, EXTRA, RANK, VALUE, LATER_VALUE = (
    "decision",
    "score",
    "reason",
    "gone",
    "lacking",
    "extra",
    "rank",
    "value",
    "later value",
)
# Kinds of what else is not as the receipt says.
(
    OTHER_BYTES,
    OTHER_BESIDE,
    REWRITTEN,
    MOVED,
    OTHER_MODEL,
    OTHER_VERSION,
    OTHER_PACKAGE,
    FORGED,
    OTHER_RULES,
    OTHER_CHANCES,
) = (
    "other bytes",
    "other bytes next to",
    "rewritten",
    "moved",
    "other model",
    "other version",
    "other package",
    "forged",
    "other rules",
    "other probabilities",
)
OTHER_FIGURE, NOT_AGAIN = "other figure", "not again"
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
    """Something else that is not as the receipt says.

    Attributes:
        kind: Again, of a file that is gone and was computed again; REORDERED, of the input, whose rows were compared by
            key; OTHER_DIGEST, of an input; TWICE, of rows of the subset; OTHER_COLUMNS; FILE_GONE; FILE_CHANGED;
            OTHER_BYTES, of an input whose rows say the same as far as they were read; OTHER_BESIDE, of a file that was
            read next to it; REWRITTEN, of an input that was named, or has another order; MOVED, of a file found
            elsewhere; OTHER_MODEL, of the weights that made the input; OTHER_VERSION, of this package; OTHER_PACKAGE,
            or of Python; FORGED, of a graph whose neighbours the embeddings do not
            give; OTHER_FIGURE, of the receipt; NOT_AGAIN, of a figure that takes the images; OTHER_RULES,
            where all that was read and written is as noted, and the rules give something else.
        what: the path, or ``the input``; the name of a figure; for OTHER_COLUMNS ``subset`` or ``batch``; the package;
            for FORGED the rows.
        now: the digest or version; the path where a file is.
        then: the digest or version that the receipt names; the path where a file was.
    """

    kind: str
    what: str = ""
    now: str = ""
    then: str = ""
