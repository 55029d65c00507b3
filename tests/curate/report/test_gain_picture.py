"""The gain curve: where its pixels are, and that odd gains do not break it."""

import math

import numpy as np
import pytest
from PIL import ImageDraw

from curate.report.axes import SCALE, Frame
from curate.report.chart import COLOURS
from curate.report.gains import HEIGHT, gain_picture

LINE = COLOURS[0]


def where(picture, colour):
    """Rows and columns of the pixels near a colour."""
    return np.nonzero(np.abs(np.asarray(picture).astype(int) - np.array(colour)).max(2) < 60)


def test_the_total_rises_to_the_right_and_flattens():
    picture = gain_picture([1 / (i + 1) ** 2 for i in range(200)], "auto")
    y, x = where(picture, LINE)
    upper = y < picture.height // 2
    heights = [y[upper & (abs(x - column) < 3)].min() for column in (110, 300, 600, 900)]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[1] > 5 * (heights[1] - heights[3])


def test_the_marks_stand_where_half_and_nine_tenths_are_reached():
    gains = [4.0, 3.0, 2.0, 1.0]  # sums 4, 7, 9, 10: half after 2, nine tenths after 3
    pixels = np.asarray(gain_picture(gains, "t")).astype(int)
    _, x = np.nonzero(pixels[..., 0] - pixels[..., 2] > 60)  # orange
    frame = Frame.around([0, 4], [0, 10], top=0, bottom=1)
    columns = [column for column in np.unique(x) if (x == column).sum() > 60]
    wanted = [frame.pixel(place, 0)[0] / SCALE for place in (2, 3)]
    assert [min(abs(column - place) for column in columns) < 1 for place in wanted] == [True, True]
    assert all(min(abs(column - place) for place in wanted) < 2 for column in columns)


@pytest.mark.parametrize(
    "gains",
    [[], [None], [None, math.inf], [0.0, 0.0, 0.0], [None, 1.0, 0.5], [1.0], [-1.0, -2.0], [1e-300, 1e300], [5.0] * 3],
)
def test_odd_gains_still_make_a_picture(gains):
    picture = gain_picture(gains, "a title\nwith a line break " * 20)
    assert picture.size == (960, 2 * HEIGHT)


@pytest.mark.parametrize(
    "gains", [[1 / (i + 1) ** 2 for i in range(300)], [1.0] * 300, [2.0] + [1e-3] * 60, [1.0] * 3], ids=str
)
def test_no_word_touches_a_curve(gains, monkeypatch):
    """Where each word stands, with a pixel around it, there is no pixel near the colour of a curve."""
    boxes = []
    old = ImageDraw.ImageDraw.text

    def text(draw, place, words, fill, font, **how):
        boxes.append((words, [end / SCALE for end in draw.textbbox(place, words, font, **how)]))
        old(draw, place, words, fill, font, **how)

    monkeypatch.setattr(ImageDraw.ImageDraw, "text", text)
    picture = gain_picture(gains, "a title")
    near = np.zeros((picture.height, picture.width), bool)
    near[where(picture, LINE)] = True
    named = {words for words, _ in boxes}
    assert {
        "a title",
        "total gain of the first picks",
        "gain of each pick" + " (logarithmic)" * (max(gains) > 20 * min(gains)),
    } < named
    for words, (left, top, right, bottom) in boxes:
        assert not near[int(top) - 1 : int(bottom) + 2, int(left) - 1 : int(right) + 2].any(), words
