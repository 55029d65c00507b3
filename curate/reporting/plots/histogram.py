"""Histograms of the columns of a table: one panel per column, or one per group."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.columns import KEY
from curate.evaluation.rows import score_columns
from curate.reporting.numbers import bin_counts, bin_edges
from curate.reporting.plots.request import Numbers, PlotRequest
from curate.sheets import style
from curate.sheets.captions import plain_line
from curate.tables.needs import Needs, default_column
from curate.tables.rows import Codes, Rows, read_rows
from curate.tables.table import Table
from scoring.arrays import Floats
from scoring.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ADVICE = "choose a column of numbers"


@dataclass(frozen=True)
class Groups:
    """The largest groups of N rows.

    Attributes:
        names: of the shown groups, largest first.
        place: index of each row's group, shape (N,); -1 for other groups and none.
    """

    names: list[str]
    place: NDArray[np.int64]


def read_columns(request: PlotRequest, columns: tuple[str, ...], per: str | None = None) -> Rows:
    """Read numeric columns and one group column; InputError for a missing column or one of another type."""
    keys = KEY in request.opened.schema.names
    needs = Needs(numbers=columns, names=(per,) if per else (), keys=keys, advice=ADVICE)
    return read_rows(request.opened, needs, unique=False)


def finite(values: Floats, name: str, table: Table, notes: list[str]) -> NDArray[np.bool_]:
    """Return a mask of the finite rows, shape (N,), and add a note on the others; InputError if none is finite."""
    is_finite = np.isfinite(values)
    if not is_finite.any():
        raise InputError(
            f"expected numbers in {name!r} of {table.path}, got null, NaN or infinity in every row of "
            f"{len(values):,}; choose another column"
        )
    if not is_finite.all():
        notes.append(f"{int((~is_finite).sum()):,} of {len(values):,} rows have no finite {name} and are left out")
    return is_finite


def largest(codes: Codes, keep: NDArray[np.bool_], most: int, name: str, notes: list[str]) -> Groups:
    """Return the groups with the most kept rows, and add a note on the others; InputError if no row has a group."""
    known = keep & (codes.codes >= 0)
    sizes = np.bincount(codes.codes[known], minlength=len(codes.names))
    if not sizes.any():
        raise InputError(f"expected groups in {name!r}, got null or empty text in every row; choose another column")
    order = np.argsort(-sizes, kind="stable")
    order = order[sizes[order] > 0]
    shown = order[:most]
    place = np.full(len(codes.names) + 1, -1)
    place[shown] = np.arange(len(shown))
    if len(order) > len(shown):
        left = int(sizes[order[most:]].sum())
        notes.append(f"the {most} largest of {len(order):,} groups of {name} are shown; {left:,} rows are in others")
    return Groups([codes.names[code] for code in shown], place[codes.codes])


HEIGHT, OF_GROUP, BELOW = 38.0, 9.0, 12.0  # mm of a panel of a column and of a group, and of the numbers beneath
MOST_GROUPS = 12
MOST_COLUMNS = 12


@dataclass
class Spread:
    """A histogram.

    Attributes:
        name: of a column, or of a group.
        rows: number of rows with a finite value.
        edges: of B bins, shape (B + 1,), ascending; the outer two bins also count values beyond them.
        log: whether bins are equally wide on a logarithmic scale.
        counts: rows in each bin, shape (B,).
        median: of the values.
    """

    name: str
    rows: int
    edges: list[float]
    log: bool
    counts: list[int]
    median: float


@dataclass
class Histogram(Numbers):
    """The distribution of columns, or of one column by group.

    Attributes:
        spreads: one per column, or one per group, all with the same edges.
        column: the column shown by group; else empty.
        per: the column of groups; else empty.
    """

    spreads: list[Spread]
    column: str = ""
    per: str = ""

    @classmethod
    def measure(cls, request: PlotRequest) -> "Histogram":
        """Count rows in bins of each column, or of one column by group."""
        if request.per is not None:
            return _by_group(request, request.per)
        names, _ = score_columns(request.opened, request.column)
        notes: list[str] = []
        if len(names) > MOST_COLUMNS:
            notes.append(f"the first {MOST_COLUMNS} of {len(names)} columns are shown; choose others with --column")
            names = names[:MOST_COLUMNS]
        rows = read_columns(request, tuple(names))
        spreads = []
        for name in names:
            values = rows.numbers[name][finite(rows.numbers[name], name, request.opened, notes)]
            spreads.append(_spread(name, values, *bin_edges(values)))
        return cls(spreads, notes=notes)

    @style.drawing()
    def draw(self, *, title: str = "", width: float = style.WIDTH) -> "Figure":
        """Draw one panel per column; or one per group over a common axis, each scaled to its highest bin."""
        if self.per:
            return _draw_groups(self, title, width)
        spreads = self.spreads
        across = 2 if len(spreads) > 3 else 1
        figure = style.new_figure(-(-len(spreads) // across) * HEIGHT + 5 * bool(title), width)
        style.set_title(figure, title)
        for number, (axes, spread) in enumerate(
            zip(style.new_axes(figure, len(spreads), across), spreads, strict=True)
        ):
            axes.grid(axis="y")
            axes.stairs(spread.counts, spread.edges, fill=True, color=style.COLOURS[0])
            _scale(axes, spread, most=max(3, round(6 * width / style.WIDTH / across)))
            style.name_axes(axes, spread.name, "rows" if not number % across else "")
        return figure


def _by_group(request: PlotRequest, per: str) -> Histogram:
    if len(request.column) > 1:
        raise InputError(f"with --per a histogram shows one column, got {len(request.column)}; draw one chart of each")
    column = request.column[0] if request.column else default_column(request.opened)
    rows = read_columns(request, (column,), per)
    notes: list[str] = []
    values = rows.numbers[column]
    is_finite = finite(values, column, request.opened, notes)
    groups = largest(rows.names[per], is_finite, MOST_GROUPS, per, notes)
    edges = bin_edges(values[is_finite])
    spreads = [
        _spread(name, values[is_finite & (groups.place == place)], *edges) for place, name in enumerate(groups.names)
    ]
    return Histogram(spreads, column, per, notes=notes)


def _spread(name: str, values: Floats, edges: NDArray[np.float64], log: bool) -> Spread:
    counts = bin_counts(values, edges).tolist()
    return Spread(name, len(values), edges.tolist(), log, counts, float(np.median(values)))


def _draw_groups(numbers: Histogram, title: str, width: float) -> "Figure":
    spreads = numbers.spreads
    figure = style.new_figure(len(spreads) * OF_GROUP + BELOW + 5 * bool(title), width)
    style.set_title(figure, title)
    panels = style.new_axes(figure, len(spreads))
    for axes, spread in zip(panels, spreads, strict=True):
        axes.stairs(np.array(spread.counts) / max(1, spread.rows), spread.edges, fill=True, color=style.COLOURS[0])
        axes.axvline(spread.median, color=style.INK, linewidth=0.8)
        _scale(axes, spread, most=6)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        style.name_axes(axes, "" if axes is not panels[-1] else f"{numbers.column} by {numbers.per}; line: median")
        name = f"{plain_line(spread.name, style.LINE_LETTERS)}\n{spread.rows:,}"
        axes.set_ylabel(name, rotation=0, ha="right", va="center")
        if axes is not panels[-1]:
            axes.set_xticklabels([])
    return figure


def _scale(axes: "Axes", spread: Spread, *, most: int) -> None:
    if spread.log:
        style.set_log(axes, spread.edges[0], spread.edges[-1], most=most)
    else:
        style.write_numbers(axes.xaxis, most=most)
    style.write_numbers(axes.yaxis, most=5)
    axes.set_ylim(bottom=0)
