"""Charts: what lines and bands hold, what is written, and bytes that do not change."""

import io
import math
import os
import subprocess
import sys
from itertools import combinations
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from PIL import Image

from curate.sheets.chart import Curve, Panel, draw_chart
from curate.sheets.style import COLOURS, DPI, INCH, chart_bytes, drawing, new_axes, new_figure, save_chart, set_log
from scoring.errors import InputError

HOSTILE = "$\\frac{1}{0}$ <script> & \u202eright to left\u0000\n" + "x" * 300


def chart(*curves, title="t", **more):
    return draw_chart([Panel(curves, "x", "y", **more)], title=title)


def texts(svg):
    return [node.text for node in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_line_holds_its_points_and_a_band_its_ends():
    (axes,) = chart(Curve("a", [0, 1, 2], [0.5, math.nan, 0.6], [0.2, math.nan, 0.4], [0.8, math.nan, 0.9])).axes
    (line,) = axes.lines
    assert line.get_xydata().tolist() == [[0, 0.5], [2, 0.6]]
    (band,) = [collection for collection in axes.collections if isinstance(collection, PolyCollection)]
    assert {(0, 0.2), (0, 0.8), (2, 0.4), (2, 0.9)} == set(map(tuple, band.get_paths()[0].vertices))
    low, high = axes.get_xlim()
    assert low <= 0 < 2 <= high


def test_curves_have_different_colours_and_marks():
    (axes,) = chart(*(Curve(str(i), [0, 1], [i, i + 1]) for i in range(12))).axes
    looks = [(line.get_color(), str(line.get_linestyle())) for line in axes.lines]
    assert len(set(looks)) == 12


def test_a_chart_of_one_point_or_of_gaps_can_be_drawn():
    for curve in (
        Curve("one", [5], [0.5], [0.4], [0.6]),
        Curve("gap", [1, 2, 3], [0.5, math.nan, 0.6], [math.nan] * 3, [math.nan] * 3),
    ):
        chart_bytes(chart(curve), ".svg")
    with pytest.raises(InputError, match="at least one point"):
        chart(Curve("none", [1], [math.nan]))


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_the_same_chart_is_the_same_bytes(ending):
    first, second = (chart_bytes(chart(Curve("a", [0, 1], [0, 1], [0, 0], [1, 2])), ending) for _ in range(2))
    assert first == second
    assert b"20" + b"26-" not in first  # a date


def test_another_process_with_other_settings_writes_the_same_bytes(tmp_path):
    (tmp_path / "matplotlibrc").write_text("font.size: 30\nsvg.fonttype: path\naxes.facecolor: red\n")
    code = (
        "import sys\nfrom curate.sheets.chart import Curve, Panel, draw_chart\n"
        "from curate.sheets.style import chart_bytes\n"
        "figure = draw_chart([Panel([Curve('a', [0, 1], [0, 1], [0, 0], [1, 2])], 'x', 'y')], title='t')\n"
        "sys.stdout.buffer.write(chart_bytes(figure, '.svg'))\n"
        "sys.exit('matplotlib.pyplot' in sys.modules)"
    )
    env = {**os.environ, "MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, env=env)
    assert done.stdout == chart_bytes(chart(Curve("a", [0, 1], [0, 1], [0, 0], [1, 2])), ".svg")
    assert done.stderr == b""


def test_an_image_has_the_size_that_was_requested():
    with Image.open(io.BytesIO(chart_bytes(new_figure(50.8, 101.6), ".png"))) as picture:
        assert picture.size == (4 * DPI, 2 * DPI)
    assert INCH * 4 == 101.6


def test_text_is_text_in_an_svg_whatever_it_holds():
    figure = chart(Curve(HOSTILE, [0, 1], [0, 1]), title=HOSTILE)
    said = texts(chart_bytes(figure, ".svg"))
    assert {"x", "y"} <= set(said)
    hostile = [text for text in said if text and text.startswith("$\\frac")]
    assert len(hostile) == 2
    assert all(len(text) < 90 and "\u202e" not in text for text in hostile)
    assert any("<script> & \\u202e" in text for text in hostile)


def test_hostile_text_is_drawn_in_silence(capfd):
    texts = (HOSTILE, "$unclosed", "中文 עברית 👩‍👩‍👧", "", "\ud800", "_^{}\\")
    for ending in (".png", ".svg", ".pdf"):
        chart_bytes(chart(*(Curve(text, [0, 1], [0, 1]) for text in texts), title="\n".join(texts)), ending)
    assert capfd.readouterr() == ("", "")


def test_letters_that_the_font_lacks_are_codes_where_shapes_are_drawn_and_stay_in_an_svg():
    figure = chart(Curve("中", [0, 1], [0, 1]))
    assert "中" in texts(chart_bytes(figure, ".svg"))
    chart_bytes(figure, ".png")
    assert figure.axes[0].get_legend().get_texts()[0].get_text() == "\\u4e2d"


def test_what_a_user_set_is_as_it_was_afterwards():
    before = dict(mpl.rcParams)
    chart(Curve("a", [0, 1], [0, 1]))
    assert dict(mpl.rcParams) == before


def test_an_unknown_ending_and_an_existing_name_are_refused(tmp_path):
    figure = chart(Curve("a", [0, 1], [0, 1]))
    with pytest.raises(InputError, match=r"\.pdf, got .*x\.jpg"):
        save_chart(figure, tmp_path / "x.jpg")
    save_chart(figure, tmp_path / "x.SVG")
    with pytest.raises(InputError, match="exists already"):
        save_chart(figure, tmp_path / "x.SVG")
    assert [path.name for path in tmp_path.iterdir()] == ["x.SVG"]


def written(text):
    """What a number says, such as 3·10⁻⁵."""
    first, _, raised = text.rpartition("·")
    if raised[:2] != "10" or not raised[2:] or raised[2] in "0123456789.":
        return float(text)
    return float(f"{first or 1}e{raised[2:].translate(str.maketrans('⁻⁰¹²³⁴⁵⁶⁷⁸⁹', '-0123456789'))}")


@pytest.mark.parametrize(("low", "high"), [(1, 2), (0.002, 0.4), (1e-300, 1e300), (5, 5), (4, 5e4)])
def test_a_logarithmic_axis_has_two_plain_numbers_or_more(low, high):
    with drawing():
        figure = new_figure(40)
        (axes,) = new_axes(figure)
        axes.plot([low, high], [0, 1])
        set_log(axes, low, high)
        ends = axes.get_xlim()
        said = [tick.get_text() for tick in axes.get_xticklabels()]
        places = axes.get_xticks()
    shown = [text for text, place in zip(said, places, strict=True) if ends[0] <= place <= ends[1]]
    assert 1 + (low < high) <= len(shown) <= 12
    assert len(set(shown)) == len(shown)
    assert all(math.isclose(written(text), place) for text, place in zip(said, places, strict=True) if text in shown)


# Linear RGB to what eyes without one kind of cone see: Viénot, Brettel and Mollon 1999, as matrices.
BLIND = {
    "protan": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "deutan": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


@pytest.mark.parametrize("kind", ["normal", *BLIND])
def test_the_colours_of_the_first_curves_are_apart_for_every_eye(kind):
    rgb = np.array([[int(c[i : i + 2], 16) / 255 for i in (1, 3, 5)] for c in COLOURS])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = linear @ np.array(BLIND.get(kind, np.eye(3))).T
    xyz = seen @ np.array([[0.4124, 0.2126, 0.0193], [0.3576, 0.7152, 0.1192], [0.1805, 0.0722, 0.9505]])
    f = np.cbrt(xyz / [0.9505, 1, 1.089])
    lab = np.stack([116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1)
    assert min(np.linalg.norm(a - b) for a, b in combinations(lab, 2)) > 10  # some five just noticeable differences
