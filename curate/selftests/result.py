"""The result of testing scores, as a value, text and chart."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from curate.counted import Grid, Printed, counted
from curate.evaluation.degraded import LAPLACIAN
from curate.selftests.contract import BROKEN, HOLDS, SAME, SECTIONS, UNSURE, UNTRIED, WORSE, Check
from curate.statistics.calibrators import mean_bands
from curate.statistics.degradations import LADDERS
from scoring.relative.columns import FITTED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from curate.selftests.corruption import Climbed

MARKS: Mapping[str, str] = {HOLDS: " ", BROKEN: "X", UNSURE: "?", UNTRIED: "-"}  # before a line
FLAGS: Mapping[str, str] = {BROKEN: " X", UNSURE: " ?"}  # after a number


@dataclass(frozen=True)
class SelfTest(Printed):
    """The checks of scores and their results.

    Attributes:
        name: of the images.
        model: their model.
        images: number of drawn images that could be read.
        unread: number of drawn images that could not be read.
        columns: the tested columns.
        left_out: columns of the table that cannot be computed for corrupted images.
        checks: in display order.
        curves: kind -> unit, strengths and by column value, low and high.
    """

    name: str
    model: str
    images: int
    unread: int
    columns: Sequence[str]
    left_out: Sequence[str]
    checks: Sequence[Check]
    curves: Mapping[str, Any]

    @property
    def broken(self) -> list[Check]:
        """The checks that failed."""
        return [check for check in self.checks if check.state == BROKEN]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return not self.broken

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "name": self.name,
            "model": self.model,
            "images": self.images,
            "unread": self.unread,
            "columns": list(self.columns),
            "left_out": list(self.left_out),
            "passed": self.passed,
            "checks": [check.to_json() for check in self.checks],
            "strengths": dict(self.curves),
        }

    def lines(self) -> list[str | Grid]:
        """Return lines for the terminal: a table per section, and the failures."""
        unread = (
            f"; {counted(self.unread, 'more that cannot be read', 'more that cannot be read')}" if self.unread else ""
        )
        lines: list[str | Grid] = [f"{counted(self.images, 'image')} of {self.name}, scored by {self.model}{unread}"]
        for section, about in SECTIONS.items():
            checks = [check for check in self.checks if check.section == section]
            if checks:
                lines += ["", about, TABLES.get(section, _line_a_check)(checks)]
        lines += ["", *self.verdict()]
        return lines

    def verdict(self) -> list[str | Grid]:
        """Return the failed checks by column, what was not tested, and the number of passed checks."""
        lines: list[str | Grid] = []
        tried = [check for check in self.checks if check.state != UNTRIED]
        if self.broken:
            order = list(dict.fromkeys(check.column for check in tried))
            broken = sorted(self.broken, key=lambda check: order.index(check.column))
            lines.append(Grid([(MARKS[BROKEN], check.column, check.what, check.words) for check in broken]))
        if self.left_out:
            lines.append(f"not tried: {', '.join(self.left_out)}, which cannot score corrupted images")
        doubtful = {check.column for check in tried if check.state != HOLDS}
        holding = [name for name in dict.fromkeys(check.column for check in tried) if name not in doubtful]
        lines.append(f"hold in all: {', '.join(holding) or 'none'}")
        unsure = sum(check.state == UNSURE for check in tried)
        more = f"; {unsure:,} cannot be determined: use more --images, or more labels" if unsure else ""
        some = f"{counted(len(self.broken), 'check')} of {len(tried):,} broken"
        lines.append(f"{some if self.broken else f'of {len(tried):,} checks none is broken'}{more}")
        return lines

    def figure(self) -> "Figure":
        """Return a chart of certainty by strength for the first five columns, and the baseline."""
        from curate.reporting.plots.judged import Band
        from curate.reporting.plots.strengths import MOST_COLUMNS, Steps, Strengths

        order = sorted(self.columns, key=lambda name: name != FITTED)[: MOST_COLUMNS - 1]
        kinds = [
            Steps(
                kind,
                curve["unit"],
                curve["strength"],
                {name: Band(**curve["columns"][name]) for name in (*order, LAPLACIAN)},
            )
            for kind, curve in self.curves.items()
        ]
        return Strengths(self.images, kinds).draw()


def curves_of(climbed: "Climbed") -> dict[str, Any]:
    """Return the mean share of original images that are more certain, at every strength."""
    curves: dict[str, Any] = {}
    for kind in climbed.steps:
        columns = {}
        for name in climbed.base:
            middle, low, high = mean_bands(climbed.shares(kind, name))
            columns[name] = {"value": middle.tolist(), "low": low.tolist(), "high": high.tolist()}
        ladder = LADDERS[kind]
        curves[kind] = {"unit": ladder.unit, "strength": [0.0, *ladder.strengths], "columns": columns}
    return curves


def _kinds(checks: Sequence[Check]) -> Grid:
    """Return one line per column with its response to each kind."""
    kinds = dict.fromkeys(check.what for check in checks)
    cells = {(check.what, check.column): _cell(check) for check in checks}
    columns = dict.fromkeys(check.column for check in checks)
    return Grid([(column, *(cells[kind, column] for kind in kinds)) for column in columns], header=("", *kinds))


def _cell(check: Check) -> str:
    if check.measured is None:
        return MARKS[UNTRIED]
    half = check.measured.high - check.measured.value
    return f"{check.measured.value:+.2f} ±{half:.2f}{FLAGS.get(check.state, '')}"


def _ways(checks: Sequence[Check]) -> Grid:
    """Return one line per way to score: the columns that fail, or those closest to failing."""
    return Grid([_way(what, [c for c in checks if c.what == what]) for what in dict.fromkeys(c.what for c in checks)])


def _way(what: str, checks: Sequence[Check]) -> tuple[str, str, str]:
    worst = [check for check in checks if check.state == BROKEN]
    if not worst:
        held = [check for check in checks if check.state == HOLDS]
        by_rank = [check for check in held if check.words.startswith("rank")]
        by_value = [check for check in held if check not in by_rank]
        worst = sorted(by_value, key=_value)[-1:] + sorted(by_rank, key=_value)[:1] or list(checks[:1])
    return MARKS[worst[0].state], what, "; ".join(f"{check.column} {check.words}".strip() for check in worst)


def _value(check: Check) -> float:
    return check.measured.value if check.measured else 0.0


def _line_a_check(checks: Sequence[Check]) -> Grid:
    return Grid([(MARKS[check.state], check.what, check.column, check.words) for check in checks])


TABLES: Mapping[str, Callable[[Sequence[Check]], Grid]] = {SAME: _ways, WORSE: _kinds}
