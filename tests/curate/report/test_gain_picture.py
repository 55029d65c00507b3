"""The gain curve: where its pixels are, and that odd gains do not break it."""

import math

import numpy as np
import pytest
from PIL import ImageDraw

from curate.report.gains import LINE, MARK, Axis, gain_picture, round_values


def where(picture, colour):
    """Rows and columns of the pixels of a colour."""
    return np.nonzero((np.asarray(picture) == np.array(colour)).all(2))


def test_the_total_rises_to_the_right_and_flattens():
    picture = gain_picture([1 / (i + 1) ** 2 for i in range(200)], "auto")
    y, x = where(picture, LINE)
    upper = y < picture.height // 2
    heights = [y[upper & (x == column)].min() for column in (90, 300, 600, 860)]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[1] > 5 * (heights[1] - heights[3])


def test_the_marks_stand_where_half_and_nine_tenths_are_reached():
    gains = [4.0, 3.0, 2.0, 1.0]  # sums 4, 7, 9, 10: half after 2, nine tenths after 3
    _, x = where(gain_picture(gains, "t"), MARK)
    across = Axis(0, 4, 86, 870)
    columns = [column for column in np.unique(x) if (x == column).sum() > 100]
    assert [round(float(across.at(place))) for place in (2, 3)] == pytest.approx(columns, abs=1)


@pytest.mark.parametrize(
    "gains",
    [[], [None], [None, math.inf], [0.0, 0.0, 0.0], [None, 1.0, 0.5], [1.0], [-1.0, -2.0], [1e-300, 1e300], [5.0] * 3],
)
def test_odd_gains_still_make_a_picture(gains):
    picture = gain_picture(gains, "a title\nwith a line break " * 20)
    assert picture.size == (900, 708)


def test_ticks_are_round_and_inside():
    assert round_values(0, 1) == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert round_values(3, 47) == [10, 20, 30, 40]
    for low, high in ((0, 7), (-3, 12), (0, 0.0021), (1e6, 3e6)):
        ticks = round_values(low, high)
        assert 2 <= len(ticks) <= 7
        assert min(ticks) >= low - 1e-9
        assert max(ticks) <= high + 1e-9
    assert Axis(0.002, 0.4, 0, 1, log=True).ticks() == pytest.approx([0.003, 0.01, 0.03, 0.1, 0.3])


def test_an_axis_puts_values_between_its_ends():
    assert Axis(0, 10, 100, 200).at(5) == 150
    assert Axis(1, 100, 0, 1, log=True).at(10) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "gains", [[1 / (i + 1) ** 2 for i in range(300)], [1.0] * 300, [2.0] + [1e-3] * 60, [1.0] * 3], ids=str
)
def test_no_word_touches_a_curve(gains, monkeypatch):
    """Where each word stands, with a pixel around it, there is no pixel of a curve."""
    boxes = []
    old = ImageDraw.ImageDraw.text

    def text(draw, place, words, **how):
        boxes.append((words, draw.textbbox(place, words, how["font"], anchor=how.get("anchor"))))
        old(draw, place, words, **how)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    line = (np.asarray(gain_picture(gains, "a title")) == np.array(LINE)).all(2)
    named = {words for words, _ in boxes}
    assert {
        "a title",
        "total gain of the first picks",
        "gain of each pick" + " (logarithmic)" * (max(gains) > 20 * min(gains)),
    } < named
    for words, (left, top, right, bottom) in boxes:
        assert not line[int(top) - 1 : int(bottom) + 2, int(left) - 1 : int(right) + 2].any(), words
