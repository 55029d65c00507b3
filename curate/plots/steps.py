"""The funnel of the policies that were applied to a table, one after the other."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from curate.display.funnel import Bar, funnel_chart
from curate.display.style import WIDTH
from curate.facts.results import find_results
from curate.plots.asked import Asked, Numbers
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Funnel(Numbers):
    """One bar a policy, in the order applied."""

    steps: list[Bar]


def measure(asked: Asked) -> Funnel:
    """Read the receipts of what is named, and of what lies between it and the table."""
    if not asked.subset:
        raise InputError(
            "a funnel needs what a policy made of the table; name its subset or receipt with --subset (repeatable)"
        )
    steps = [one.funnel() for one in find_results(asked.table, asked.subset)]
    return Funnel(
        [
            Bar(
                step["step"],
                step["rows_in"],
                step["kept"],
                {_why(out["decision"], out["reason"]): out["n"] for out in step["out"]},
            )
            for step in steps
        ]
    )


def _why(decision: str, reason: str) -> str:
    """A reason, after what became of the row where it was not dropped."""
    return reason if decision in ("drop", reason) else f"{decision}: {reason}"


def draw(numbers: Funnel, *, title: str = "", width: float = WIDTH) -> "Figure":
    """Draw a bar a policy, as long as its rows, with the reasons beneath."""
    return funnel_chart(numbers.steps, title, width)
