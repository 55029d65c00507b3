"""Charts: where lines, bands and numbers are."""

import math

import numpy as np
import pytest

from curate.report.axes import Frame, log_ticks, ticks
from curate.report.chart import COLOURS, Curve, Panel, draw_chart
from scoring.errors import InputError


def chart(*curves, **more):
    return draw_chart([Panel(curves, "x", "y", **more)], title="t")


def place_of(picture, colour):
    """Mean place of the pixels of a colour, left of the legend."""
    pixels = np.asarray(picture)[64:534, 79:700]
    where = np.argwhere((pixels == colour).all(2))
    return where.mean(0)


def test_a_chart_has_a_line_of_each_colour_and_higher_values_are_higher():
    x = [0, 1, 2]
    picture = chart(Curve("low", x, [0.1] * 3), Curve("high", x, [0.8] * 3))
    assert picture.size == (960, 600)
    low, high = (place_of(picture, colour) for colour in COLOURS[:2])
    assert high[0] < low[0] - 300


def test_a_chart_draws_its_band_between_low_and_high():
    plain = chart(Curve("a", [0, 1], [0.5, 0.5]))
    banded = chart(Curve("a", [0, 1], [0.5, 0.5], [0.2, 0.2], [0.8, 0.8]))
    tint = tuple(round(255 + (c - 255) * 46 / 255) for c in COLOURS[0])

    def near(picture):
        pixels = np.asarray(picture).astype(int)
        return (np.abs(pixels - tint).max(2) <= 2).mean()

    assert near(plain) < 0.001
    assert 0.4 < near(banded) < 0.8


def test_a_chart_of_one_point_or_of_gaps_can_be_drawn():
    chart(Curve("one", [5], [0.5], [0.4], [0.6]))
    chart(Curve("gap", [1, 2, 3], [0.5, math.nan, 0.6], [math.nan] * 3, [math.nan] * 3))
    with pytest.raises(InputError, match="at least one point"):
        chart(Curve("none", [1], [math.nan]))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-3, 7), (1e-4, 3e-4), (0, 123456), (5, 5)])
def test_ticks_are_round_numbers_inside(low, high):
    found = ticks(low, high)
    assert 1 <= len(found) <= 8
    assert all(low - 1e-9 <= value <= high + 1e-9 for value in found)
    steps = np.diff(found)
    assert np.allclose(steps, steps[0]) if len(steps) else found == [low]


def test_ticks_of_a_logarithmic_axis_are_powers_of_ten_and_three_times_these():
    assert log_ticks(math.log10(0.002), math.log10(0.4)) == pytest.approx([0.003, 0.01, 0.03, 0.1, 0.3])
    assert log_ticks(math.log10(4), math.log10(5)) == pytest.approx([4, 5])
    assert 2 <= len(log_ticks(-336, 336)) <= 12


def test_a_frame_puts_values_between_its_ends():
    frame = Frame(0, 10, 0, 4, top=100, bottom=500)
    x, y = frame.pixel(5, 1)
    assert (x, y) == ((78 + (960 - 78 - 24) / 2) * 2, 400 * 2)  # drawn at twice the size
    assert Frame(0, 10, 0, 2, top=0, bottom=100, log=True).pixel(0, 10)[1] == pytest.approx(50 * 2)


def test_panels_stand_one_under_the_other():
    curve = Curve("a", [0, 1], [0.0, 1.0])
    one = np.asarray(chart(curve, legend=False))
    both = np.asarray(draw_chart([Panel([curve], "x", "y", legend=False)] * 2, title="t"))
    assert both.shape == (1200, 960, 3)
    assert np.array_equal(both[:600], one)
    assert np.array_equal(both[640:], one[40:])  # but for the title
