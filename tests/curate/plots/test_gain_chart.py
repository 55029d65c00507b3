"""The gain curve: the sums it shows, where it is marked, and that odd gains do not break it."""

import math
from itertools import accumulate

import pytest

from curate.plots.gains import Gains, gain_panels
from curate.sheets.style import chart_bytes


def test_the_total_is_the_sum_so_far_and_begins_at_0():
    gains = [1 / (i + 1) ** 2 for i in range(200)]
    total, each = gain_panels(gains)
    assert total.curves[0].y == pytest.approx([0, *accumulate(gains)])
    assert each.curves[0].y[1:] == gains
    assert each.log
    assert not gain_panels([1.0, 0.5])[1].log


def test_the_marks_stand_where_half_and_nine_tenths_are_reached():
    total, _ = gain_panels([4.0, 3.0, 2.0, 1.0])  # sums 4, 7, 9, 10: half after 2, nine tenths after 3
    assert [(mark.x, mark.y, mark.text) for mark in total.marks] == [(2, 7, "50% after 2"), (3, 9, "90% after 3")]


def test_picks_without_a_gain_keep_their_place():
    total, _ = gain_panels([math.nan, 1.0, math.inf, 0.5])
    assert list(total.curves[0].x) == [0, 2, 4]
    assert list(total.curves[0].y) == [0, 1, 1.5]


@pytest.mark.parametrize(
    "gains",
    [
        [],
        [math.nan],
        [math.nan, math.inf],
        [0.0, 0.0, 0.0],
        [math.nan, 1.0, 0.5],
        [1.0],
        [-1.0, -2.0],
        [1e-300, 1e300],
        [5.0] * 3,
    ],
)
def test_odd_gains_still_make_a_picture(gains):
    assert chart_bytes(Gains(gains).draw(title="a title\nwith a line break " * 20), ".svg").startswith(b"<?xml")
