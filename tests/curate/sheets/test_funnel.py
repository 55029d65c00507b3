"""The funnel: bars as long as their rows."""

from curate.sheets.funnel import Bar, funnel_chart, reasons
from curate.sheets.style import COLOURS, chart_bytes


def test_a_bar_is_as_long_as_its_rows_and_its_losses():
    (axes,) = funnel_chart([Bar("a", 1000, 600, {"x": 300, "y": 100}), Bar("b", 600, 600)], "t").axes
    boxes = [(box.get_x(), box.get_width(), box.get_facecolor()) for box in axes.patches]
    assert [(left, wide) for left, wide, _ in boxes] == [(0, 600), (600, 300), (900, 100), (0, 600)]
    assert len({colour for _, _, colour in boxes}) == 3
    assert axes.get_xlim() == (0, 1000)


def test_many_reasons_are_summed_and_hostile_ones_stay_on_their_line():
    lost = {f"reason {i}\n\u202e$x$" * 50: 10 + i for i in range(9)}
    named = reasons(lost)
    assert [n for _, n in named] == [18, 17, 16, 15, sum(range(10, 15))]
    assert named[-1][0] == "5 other reasons"
    few = funnel_chart([Bar("a", 200, 200 - sum(lost.values()), lost)], "t\n" * 99)
    assert all("\n" not in text.get_text() for text in few.axes[0].texts)
    assert "$x$" in chart_bytes(few, ".svg").decode()


def test_a_reason_never_has_the_colour_of_what_stays():
    (axes,) = funnel_chart([Bar("a", 100, 10, {str(i): 9 for i in range(10)})]).axes
    stays, *goes = (box.get_facecolor() for box in axes.patches)
    assert len(goes) == 5 < len(COLOURS)
    assert stays not in goes


def test_no_rows_and_no_steps_are_a_picture_too():
    for bars in ([], [Bar("a", 0, 0)]):
        assert chart_bytes(funnel_chart(bars, "empty"), ".png").startswith(b"\x89PNG")
