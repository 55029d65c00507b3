"""Captions of images and pages."""

import pytest

from curate.sheets.captions import number, plain_line


def test_a_line_shows_what_cannot_be_seen_and_keeps_both_ends():
    assert plain_line("a\nb\u202ec\x00") == "a\\x0ab\\u202ec\\x00"
    assert plain_line("\U000e0001") == "\\U000e0001"
    long = plain_line("start" + "x" * 10_000_000 + "end", 20)
    assert (len(long), long[:5], long[-3:]) == (20, "start", "end")
    assert plain_line("short", 5) == "short"


@pytest.mark.parametrize("value", [0.99999, 0.9999999, 1.00001, 2.99996])
def test_a_number_never_reads_as_a_whole_one_that_it_is_not(value):
    assert not float(number(value)).is_integer()
    assert float(number(value)) == pytest.approx(value, abs=1e-4)
