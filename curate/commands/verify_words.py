"""What is said of a subset that was derived again: each difference in a sentence."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from curate.policies.differences import Verification
    from curate.policies.findings import Difference, Finding

DIFFERENCES = {
    "decision": "{0.key}: now {0.now}, then {0.then}",
    "gone": "{0.key}: decided then, but no longer in the input",
    "lacking": "{0.key}: kept, but not in the subset",
    "extra": "{0.key}: in the subset, but not kept",
    "rank": "{0.key}: now number {0.now:,}, then number {0.then:,}",
    "value": "{0.key}: column {0.column!r} differs from the {0.file}",
    "later value": "a column of a pick after number {0.now:,} differs from the {0.file}",
}
FINDINGS = {
    "anew": "{0.what} is no longer there: it was computed again, and nothing was written",
    "reordered": "the input has another order of rows now; rows were compared by key, not every column",
    "other digest": (
        "{0.what} is not the one that was read then: its digest is {0.now:.16}..., expected {0.then:.16}..."
    ),
    "twice": "the subset holds some rows more than once",
    "file gone": "{0.what} is no longer there",
    "file changed": "{0.what} is not the file that was written: its bytes differ from the receipt",
}
OTHER_COLUMNS = {  # by what has them
    "subset": "the input has other columns or types now than the subset",
    "batch": "the batch has other columns or types than the choice gives now",
}


def difference_words(each: "Difference") -> str:
    """Return how a row differs, in one sentence."""
    return DIFFERENCES[each.kind].format(each)


def finding_words(each: "Finding") -> str:
    """Return what else is not as the receipt says, in one sentence."""
    return OTHER_COLUMNS[each.what] if each.kind == "other columns" else FINDINGS[each.kind].format(each)


def lines_of(result: "Verification") -> dict[str, list[str]]:
    """Return what is said of a verification: ``notes``, and the first rows that are ``different``."""
    return {
        "notes": [finding_words(each) for each in result.notes],
        "different": [difference_words(each) for each in result.different],
    }
