"""The ends of an interval that a rule can use; importing this loads nothing."""

from collections.abc import Mapping

SCORE, LOWER, UPPER = "score", "lower", "upper"
BY: Mapping[str, str] = {  # what a rule compares with its cut
    SCORE: "the score itself",
    LOWER: "the lower end of its interval",
    UPPER: "the upper end of its interval",
}
UNDECIDED, BOUND = "undecided", "bound"
CROSSING: Mapping[str, str] = {  # what becomes of a row whose interval crosses the cut
    UNDECIDED: "nothing: it is neither kept nor dropped",
    BOUND: "what the bound alone says",
}
