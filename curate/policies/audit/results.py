"""Audits: the request, a plan, the reading of verdicts, and the guarantee of a filter; each result prints itself."""

import math
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from curate.counted import Grid, Printed, counted
from curate.policies.sampled import NOT_COUNTED
from curate.tables.typed_json import plain_json
from scoring.errors import InputError
from scoring.metrics.resampling import Interval

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


ALL_GOOD = "certain, if not one is bad"


@dataclass(frozen=True)
class AuditPlan(Printed):
    """The sample for reviewers.

    Attributes:
        table: the population.
        column: the score.
        rows: number of rows with a score.
        among: number of the most certain rows, which could be kept, that are sampled.
        images: number of images to judge.
        rate: bound on the share of bad rows.
        confidence: of the bound.
        needed: true share of bad rows in the more certain half of ``among`` -> images needed to prove the bound for
            that half with a probability above one half; None if impossible. For the share 0 no sampled row may be bad.
        csv: the sample.
    """

    table: str
    column: str
    rows: int
    among: int
    images: int
    rate: float
    confidence: float
    needed: dict[float, int | None]
    csv: Path | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {
            "needed": [{"bad": share, "images": n} for share, n in self.needed.items()],
            "csv": self.csv and str(self.csv),
        }

    def lines(self) -> list[str | Grid]:
        """Return lines for the terminal: the goal, images to judge for several shares of bad rows, and next steps."""
        part = "all" if self.among == self.rows else f"the {self.among:,} most certain of"
        lines: list[str | Grid] = [
            f"to show that at most {_share(self.rate)} is bad of {part} {counted(self.rows, 'row')} with "
            f"{self.column}, at confidence {_share(self.confidence)}",
            Grid(
                [
                    (_share(share), "no number would do" if n is None else f"{n:,}", "over 50%" if share else ALL_GOOD)
                    for share, n in self.needed.items()
                ],
                header=("bad in the better half", "images", "probability to keep that half or more"),
                right=1,
            ),
        ]
        if self.csv is None:
            return [*lines, f"{counted(self.images, 'image')} would be drawn; write them with -o NAME.audit.csv"]
        table, sample = (shlex.quote(str(path)) for path in (self.table, self.csv))
        return [
            *lines,
            f"{counted(self.images, 'image')} to judge: curate review {table} {sample}",
            f"then: curate filter {table} --max-bad-rate {_share(self.rate)} --confidence {_share(self.confidence)} "
            f"--audit {sample} -o kept.parquet",
        ]


@dataclass(frozen=True)
class AuditReading(Printed):
    """The results of verdicts.

    Attributes:
        column: the score.
        among: number of rows that the sample was drawn from.
        counts: rows by verdict: good, bad, between, blank.
        bad: share of bad rows, with its 95 % interval; NaN if a range has no verdict yet.
        kept: rate -> number of the most certain rows with at most that share of bad ones at ``confidence``; 0 for none.
            Not simultaneous.
        confidence: of each bound.
    """

    column: str
    among: int
    counts: dict[str, int]
    bad: Interval
    kept: dict[float, int]
    confidence: float

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        kept = [{"max_bad_rate": rate, "kept": n} for rate, n in self.kept.items()]
        return {**asdict(self), "bad": plain_json(self.bad), "kept": kept}

    def lines(self) -> list[str | Grid]:
        """Return lines for the terminal: the sampled population, and how many rows each bound would keep."""
        count = self.counts
        lines: list[str | Grid] = [
            f"{sum(count.values()):,} drawn: {count['good']:,} good, {count['bad']:,} bad, {count['between']:,} unsure "
            f"or judged both ways, {count['blank']:,} without an answer"
        ]
        if count["blank"]:
            lines.append(f"{counted(count['blank'], 'image')} {NOT_COUNTED}")
        low, high = self.bad.low, self.bad.high
        lines.append(
            f"of the {self.among:,} rows they represent, {_share(self.bad.value)} are bad (95 % interval {_share(low)} "
            f"to {_share(high)})"
        )
        rows = [
            (_share(rate), f"{kept:,}" if kept else "none", f"{kept / self.among:.0%}" if kept else "")
            for rate, kept in self.kept.items()
        ]
        return [*lines, Grid(rows, header=("at most bad", f"keeps by {self.column}", "share"), right=1)]


@dataclass(frozen=True)
class Promise:
    """The guarantee on the kept rows.

    Attributes:
        kept: number of kept rows.
        of: number of rows that could have been kept.
        judged: number of judged kept rows.
        bad: sum of the badness of the judged rows.
        rate: the requested bound. A lower one is not guaranteed, since the cut was chosen by the verdicts.
        cut: score of the last kept row.
    """

    kept: int
    of: int
    judged: int
    bad: float
    rate: float
    cut: float

    def line(self, rule: str, confidence: float, promise: str) -> str:
        """Return the guarantee of a filter in one sentence."""
        seen = f"{self.judged:,} judged, {self.bad:g} bad"
        if promise == AVERAGE:
            return (
                f"{rule} keeps {self.kept:,} of {counted(self.of, 'row')} ({seen}): on average over audits, bad ones "
                f"that are kept are at most {_share(self.rate)} of all"
            )
        return (
            f"{rule} keeps {self.kept:,} of {counted(self.of, 'row')} ({seen}): at most {_share(self.rate)} of them "
            f"are bad, at confidence {_share(confidence)}"
        )


def _share(value: float) -> str:
    """Return a share in per cent with its significant digits.

    >>> _share(0.02), _share(0.005), _share(1 / 3)
    ('2%', '0.5%', '33.3%')
    """
    return f"{100 * value:.3g}%" if value == value else "an unknown share"
