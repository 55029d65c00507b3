"""Draw a chart of a table, and return its numbers."""

import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.options.function import callable_of
from curate.options.values import part_of, several
from curate.reporting.plots.options import PlotOptions
from curate.reporting.plots.request import Numbers, PlotRequest
from curate.reporting.plots.table import KINDS, Kind, kind_of
from curate.sheets.style import WIDTH, chart_bytes, check_chart, check_width, save_chart
from scoring.errors import InputError
from scoring.settings import require_between

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_REPEATS = 100_000
FEWEST_SAMPLED = 20


@dataclass(frozen=True)
class Plot:
    """A chart and its numbers.

    Attributes:
        kind: as in ``KINDS``.
        numbers: the numbers it is drawn from.
        title: of the chart; empty for none.
        width: in mm.
        image: the written file; None if not written.
    """

    kind: str
    numbers: Numbers = field(repr=False)
    title: str = ""
    width: float = WIDTH
    image: Path | None = None

    def figure(self) -> "Figure":
        """Return the chart as a matplotlib figure."""
        return self.numbers.draw(title=self.title, width=self.width)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        return {"kind": self.kind, "image": str(self.image) if self.image else None, **self.numbers.to_json()}

    def _repr_svg_(self) -> str:
        return chart_bytes(self.figure(), ".svg").decode()


def run_plot(options: PlotOptions) -> Plot:
    """Draw a chart of a table, for a paper.

    Raises:
        InputError: for an invalid kind, missing or unused options, or a file that cannot be written.
    """
    if options.kind not in KINDS and str(options.table) in KINDS:
        raise InputError(f"the table comes first: {shlex.join(['curate', 'plot', options.kind, str(options.table)])}")
    known_kind = kind_of(options.kind)
    check_width(options.width)
    if options.out is not None:
        check_chart(Path(options.out), overwrite=options.overwrite)
    request = part_of(PlotRequest, options, column=several(options.column))
    _check(request, known_kind)
    image = None if options.out is None else Path(options.out)
    drawn = Plot(options.kind, known_kind.numbers().measure(request), options.title, options.width, image)
    if drawn.image is not None:
        save_chart(drawn.figure(), drawn.image, overwrite=options.overwrite)
    return drawn


plot = callable_of(PlotOptions, run_plot)


def _check(request: PlotRequest, kind: Kind) -> None:
    """Raise InputError for an option that the kind does not use, and for invalid numbers."""
    for option in sorted({option for each in KINDS.values() for option in each.options} - kind.options):
        if getattr(request, option) != getattr(PlotRequest, option):
            those = ", ".join(kind_name for kind_name, each in KINDS.items() if option in each.options)
            raise InputError(f"--{option} is not used by {request.kind}; leave it out (used by: {those})")
    require_between("--repeats", request.repeats, 1, MOST_REPEATS, "1000 is usual")
    require_between("--sample", request.sample, FEWEST_SAMPLED, hint="choose more rows")
