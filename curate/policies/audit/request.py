"""The validated request of an audit."""

import math
from dataclasses import dataclass

from scoring.errors import InputError

CONFIDENCE, AVERAGE = "confidence", "average"
PROMISES = {
    CONFIDENCE: "at most that share of the kept rows is bad, with the stated confidence",
    AVERAGE: "on average over audits, the bad rows that are kept are at most that share of all rows",
}
COLUMNS = ("image", "key", "label", "value", "rank", "among", "cut", "column")  # of the CSV
MOST = 1000  # maximal sample size
ANY, MAJORITY, SHARE = "any", "majority", "share"
JUDGES = {
    ANY: "bad where any judge says so",
    MAJORITY: "bad where at least half of the judges say so",
    SHARE: "as bad as the share of judges who say so",
}


@dataclass(frozen=True)
class Goal:
    """A bound on the share of bad rows among those kept.

    Attributes:
        rate: the bound, in (0, 1).
        confidence: probability that it holds, in (0, 1).
    """

    rate: float
    confidence: float


def parse_share(value: str | float, flag: str) -> float:
    """Return a share typed as 0.02 or 2%, between 0 and 1, exclusive; InputError for anything else."""
    text = str(value).strip()
    try:
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise InputError(f"{flag} takes a share above 0 and below 1, such as 2% or 0.02, got {text[:40]!r}")
    return share


def parse_goal(rate: str | float, confidence: str | float) -> Goal:
    """Return the goal as typed; InputError for an invalid share."""
    return Goal(parse_share(rate, "--max-bad-rate"), parse_share(confidence, "--confidence"))
