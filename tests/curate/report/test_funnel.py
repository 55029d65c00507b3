"""The funnel as a picture: bars as long as their rows."""

import numpy as np

from curate.report.axes import WIDTH
from curate.report.chart import COLOURS
from curate.report.funnel import LEFT, RIGHT, TOP, Bar, funnel_picture


def pixels(picture, colour, row):
    """How many pixels of a row are of a colour."""
    return int((np.abs(np.asarray(picture)[row].astype(int) - colour).max(1) < 30).sum())


def test_a_bar_is_as_long_as_its_rows_and_its_losses():
    picture = funnel_picture([Bar("a", 1000, 600, {"x": 300, "y": 100}), Bar("b", 600, 600, {})], "t")
    whole, row = WIDTH - LEFT - RIGHT, TOP + 13
    for colour, share in ((COLOURS[0], 0.6), (COLOURS[1], 0.3), (COLOURS[2], 0.1)):
        assert abs(pixels(picture, colour, row) - whole * share) <= 3


def test_many_reasons_are_summed_and_hostile_ones_stay_on_their_line():
    lost = {f"reason {i}\n\u202e" * 50: 10 + i for i in range(9)}
    few = funnel_picture([Bar("a", 200, 200 - sum(lost.values()), lost)], "t\n" * 99)
    assert few.size[1] == funnel_picture([Bar("a", 5, 0, dict.fromkeys("vwxyz", 1))], "t").size[1]


def test_no_rows_and_no_steps_are_a_picture_too():
    assert funnel_picture([], "empty").size[0] == funnel_picture([Bar("a", 0, 0, {})], "t").size[0] == WIDTH
