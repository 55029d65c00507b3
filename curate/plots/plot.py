"""Draw an image of a table, and give the numbers behind it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.display.style import WIDTH, chart_bytes, check_chart, check_width, save_chart
from curate.manifest.store_path import path_to_read
from curate.plots.request import Numbers, PlotRequest
from curate.plots.table import KINDS, Kind, kind_of
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_REPEATS = 100_000
FEWEST_SAMPLED = 20


@dataclass(frozen=True)
class Plot:
    """An image, and the numbers behind it.

    Attributes:
        kind: as in ``KINDS``.
        numbers: all that it is drawn from.
        title: over it; empty for none.
        width: in mm.
        picture: where it was written; None where it was not.
    """

    kind: str
    numbers: Numbers = field(repr=False)
    title: str = ""
    width: float = WIDTH
    picture: Path | None = None

    def figure(self) -> "Figure":
        """Return it drawn, as a matplotlib figure."""
        return KINDS[self.kind].module().draw(self.numbers, title=self.title, width=self.width)

    def to_json(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values."""
        return {"kind": self.kind, "picture": str(self.picture) if self.picture else None, **self.numbers.to_json()}

    def _repr_svg_(self) -> str:
        return chart_bytes(self.figure(), ".svg").decode()


def plot(
    table: str | Path,
    kind: str,
    *,
    out: str | Path | None = None,
    column: str | Sequence[str] | None = None,
    per: str | None = None,
    label: str | None = None,
    labelled: str | Path | None = None,
    right: str | None = None,
    prediction: str | None = None,
    embedding: str | None = None,
    title: str = "",
    width: float = WIDTH,
    repeats: int = 1000,
    sample: int | None = None,
    overwrite: bool = False,
    announce: Callable[[str], None] = lambda text: None,
) -> Plot:
    """Draw an image of a table, for a paper.

    Every keyword but ``announce`` is the option of ``curate plot`` of that name.

    Args:
        table: a scored table, a batch of ``curate select`` (gains), the JSON of ``curate evaluate`` (degradation,
            strengths), or the folder of ``curate train --course`` (course).
        kind: histogram, gains, abstained-accuracy, risk-coverage, roc, reliability, degradation, strengths or course.
        out: NAME.png, .svg or .pdf; None to write nothing.
        column: one or several columns of numbers.
        per: column whose values are groups.
        label: column of classes, against which predictions from the embeddings are judged as ``curate evaluate`` does.
        labelled: CSV, TSV or Parquet file of labels, whose rows are found by key.
        right: column that says whether a prediction of yours is right: true or false, 1 or 0.
        prediction: ``linear``, ``neighbour`` or ``kNN``; by default the first of these that there is.
        embedding: column of the user's own embeddings, of any length, instead of ``embedding``.
        title: over the image.
        width: in mm; 89 is a column of a journal, 183 a page.
        repeats: bootstrap resamples of the bands, >= 1.
        sample: look at that many rows, chosen by a hash of their keys.
        overwrite: replace an image that is there.
        announce: called with a line on what is about to happen.

    Raises:
        InputError: if the kind is invalid, lacks what it needs, is given what it has no use for, or the place refuses.
    """
    known_kind = kind_of(kind)
    check_width(width)
    if out is not None:
        check_chart(Path(out), overwrite=overwrite)
    request = PlotRequest(
        path_to_read(table),
        column=tuple([column] if isinstance(column, str) else column or ()),
        per=per,
        label=label,
        labelled=labelled,
        right=right,
        prediction=prediction,
        embedding=embedding,
        repeats=repeats,
        sample=sample,
        announce=announce,
    )
    _check(request, kind, known_kind)
    drawn = Plot(kind, known_kind.module().measure(request), title, width, Path(out) if out is not None else None)
    if drawn.picture is not None:
        save_chart(drawn.figure(), drawn.picture, overwrite=overwrite)
    return drawn


def _check(request: PlotRequest, name: str, kind: Kind) -> None:
    """Refuse an option that the kind has no use for, and amounts that cannot be."""
    for option in sorted({option for each in KINDS.values() for option in each.options} - kind.options):
        if getattr(request, option) != getattr(PlotRequest(request.path), option):
            those = ", ".join(kind_name for kind_name, each in KINDS.items() if option in each.options)
            raise InputError(f"--{option} is not for {name}, which would not look at it; leave it out (for: {those})")
    if not 1 <= request.repeats <= MOST_REPEATS:
        raise InputError(f"--repeats must be between 1 and {MOST_REPEATS:,}, got {request.repeats}; 1000 is usual")
    if request.sample is not None and request.sample < FEWEST_SAMPLED:
        raise InputError(f"--sample must be at least {FEWEST_SAMPLED} rows, got {request.sample}; take more")
