"""The style of every chart: sizes, fonts, colour-blind safe colours, and reproducible bytes.

Only this module imports matplotlib. Figures are created and drawn inside ``drawing``, independent of the user's
settings.
"""

import io
import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from curate.sheets.captions import escaped, plain_line
from curate.sheets.picture import refuse_name
from scoring.atomic import AtomicFile
from scoring.settings import require_between

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

ENDINGS = (".png", ".svg", ".pdf")
WIDTH = 89.0  # mm, of a column of a journal; 183 is a page
WIDTHS = (60.0, 400.0)
DPI = 300
INCH = 25.4  # mm
# Okabe and Ito 2008, "Color Universal Design", without its yellow, which white paper swallows.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES: tuple[Any, ...] = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (5, 1, 1, 1)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
INK, GREY, FAINT = "#222222", "#999999", "#DDDDDD"
LINE_LETTERS = 26  # of a name in a legend
STYLE: dict[str, Any] = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],  # the first is included in matplotlib
    "font.size": 7,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "figure.titlesize": 8,
    "legend.fontsize": 6.5,
    "legend.title_fontsize": 6.5,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "text.parse_math": False,  # labels are text, not formulas
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3,
    "patch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.handlelength": 1.8,
    "legend.handletextpad": 0.5,
    "legend.borderpad": 0,
    "legend.columnspacing": 1.2,
    "figure.constrained_layout.w_pad": 0.02,  # inches
    "figure.constrained_layout.h_pad": 0.02,
    "savefig.dpi": DPI,
    "figure.dpi": DPI,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "curate",  # the same names of shapes in every run
    "pdf.fonttype": 42,
}


@contextmanager
def drawing() -> Iterator[None]:
    """Apply the chart style, without warnings; a context manager or decorator."""
    import matplotlib.style

    log = logging.getLogger("matplotlib")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), matplotlib.style.context(STYLE, after_reset=True):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)


def new_figure(height: float, width: float = WIDTH) -> "Figure":
    """Return an empty figure of a given size in mm with a layout that avoids overlap."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / INCH, height / INCH), layout="constrained")


def new_axes(figure: "Figure", n: int = 1, columns: int = 1) -> "list[Axes]":
    """Return n axes in rows of ``columns`` panels."""
    grid = figure.add_gridspec(-(-n // columns), columns)
    return [figure.add_subplot(grid[place // columns, place % columns]) for place in range(n)]


def set_title(figure: "Figure", text: str) -> None:
    """Write a left-aligned title above a figure, if the text is not empty."""
    if text:
        letters = int(figure.get_size_inches()[0] * INCH / 1.55)
        figure.suptitle(plain_line(text, letters), x=0.01, ha="left", fontweight="bold")


def name_axes(axes: "Axes", x: str = "", y: str = "") -> None:
    """Label the axes, each on one line that fits."""
    axes.set_xlabel(plain_line(x, axis_letters(axes)[0]))
    axes.set_ylabel(plain_line(y, axis_letters(axes)[1]))


def axis_letters(axes: "Axes") -> tuple[int, int]:
    """Return the number of characters that fit along each axis, from the size of the figure and its panels."""
    width, height = axes.figure.get_size_inches() * INCH  # type: ignore[union-attr]
    lines, columns = axes.get_subplotspec().get_geometry()[:2]  # type: ignore[union-attr]
    return max(12, int((width / columns - 14) / 1.6)), max(12, int((height / lines - 8) / 1.55))


def set_legend(axes: "Axes", width: float, *, title: str = "") -> None:
    """Add a legend above the axes, where it covers no curve; none without names."""
    names = axes.get_legend_handles_labels()[1]
    if names:
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(-0.1, 1.01),
            ncols=_legend_columns(names, width),
            borderaxespad=0,
            title=title or None,
            alignment="left",
        )


def legend_height(names: Sequence[str], width: float, *, titled: bool = False) -> float:
    """Return the height in mm of the legend of a figure with this width."""
    return 3.4 * (-(-len(names) // _legend_columns(names, width)) + titled) + 1 if names else 0.0


def _legend_columns(names: Sequence[str], width: float) -> int:
    """Return the number of columns of the legend."""
    letters = max(len(plain_line(name, LINE_LETTERS)) for name in names)
    return max(1, min(4, len(names), int((width - 8) / (1.4 * letters + 8))))


def write_percent(axis: Any, *, steps: Sequence[float] = (1, 2, 2.5, 5, 10)) -> None:
    """Label an axis with percentages."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(6, steps=list(steps)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(value * 100, 6):g} %"))


def write_numbers(axis: Any, *, most: int = 6) -> None:
    """Label an axis with thousands separators and at most this many ticks."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(most, steps=[1, 2, 2.5, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def set_log(axes: "Axes", low: float, high: float, *, most: int = 8) -> None:
    """Make the horizontal axis logarithmic with at most this many labels, for values from low to high above 0."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    powers = math.log10(high) - math.log10(low)
    room = 0.06 * powers or 0.05
    ends = (10 ** max(math.log10(low) - room, -307.0), 10 ** min(math.log10(high) + room, 308.0))
    axes.autoscale(False, axis="x")  # ticks beyond the data would extend the axis
    axes.set(xlim=ends, xscale="log")
    axis = axes.xaxis
    subs = (1.0,) if powers > 3 else (1.0, 3.0) if powers > 1.5 else (1.0, 2.0, 5.0)
    if powers > 0.7:
        axis.set_major_locator(LogLocator(subs=subs, numticks=most))
    else:
        write_numbers(axis)
    axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    axis.set_minor_locator(NullLocator())


def _power(value: float) -> str:
    """Return a number with few characters: 0.001, 20, 10⁶, 3·10⁻⁵."""
    if 1e-4 < value < 1e5 or not 0 < value < math.inf:
        return f"{value:g}"
    first, _, power = f"{value:.0e}".partition("e")
    raised = str(int(power)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if first == "1" else f"{first}·10{raised}"


def colour(number: int) -> str:
    """Return the colour of a series by its index, repeating after the last."""
    return COLOURS[number % len(COLOURS)]


def check_chart(path: Path, *, overwrite: bool = False) -> None:
    """Raise InputError for a name without a chart suffix, or that exists, before the work."""
    refuse_name(path, ENDINGS, overwrite=overwrite)


@drawing()
def chart_bytes(figure: "Figure", ending: str) -> bytes:
    """Return a figure as PNG, SVG or PDF, with the same bytes for the same figure.

    Characters that the font lacks are replaced by their codes, except in SVG, which stores text.
    """
    none = {".png": ("Software",), ".svg": ("Date", "Creator"), ".pdf": ("CreationDate", "Creator", "Producer")}
    if ending not in none:
        raise ValueError(f"expected one of {ENDINGS}, got {ending}")
    if ending != ".svg":
        _escape_missing(figure)
    data = io.BytesIO()
    figure.savefig(data, format=ending[1:], metadata=dict.fromkeys(none[ending]))
    return data.getvalue()


def save_chart(figure: "Figure", path: Path, *, overwrite: bool = False) -> None:
    """Write a chart in the format of its suffix, atomically; InputError as ``check_chart``, or if not writable."""
    check_chart(path, overwrite=overwrite)
    data = chart_bytes(figure, path.suffix.lower())
    with AtomicFile(path, overwrite=overwrite) as file:
        file.write(data)


def check_width(width: float) -> None:
    """Raise InputError, with the bounds, for a width outside of the allowed range."""
    require_between("--width", width, *WIDTHS, "a column has 89, a page 183", unit="mm")


def _escape_missing(figure: "Figure") -> None:
    """Replace characters that the font lacks, and control characters, by their codes."""
    from matplotlib.font_manager import findfont, get_font
    from matplotlib.text import Text

    known = get_font(findfont(STYLE["font.sans-serif"][0])).get_charmap()
    for element in figure.findobj(Text):
        text = element.get_text()
        if not text.isascii():
            element.set_text("".join(a if ord(a) in known or a == "\n" else escaped(a) for a in text))
