"""Numbers as texts of six digits are Python's, to the last one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from curate.tables.number_texts import six_digits


@settings(deadline=None)
@given(
    st.lists(st.floats() | st.floats(-1e7, 1e7, width=32) | st.decimals(-1e6, 1e6, places=2).map(float), max_size=50)
)
def test_drawn_numbers_have_pythons_text(values):
    texts = six_digits(np.array(values, np.float64), "score ", " of 1")
    assert texts.to_pylist() == [f"score {value:.6g} of 1" for value in values]


@pytest.mark.parametrize("shift", range(-6, 8))
def test_ties_and_carries_have_pythons_text(shift):
    values = np.array([1.234565, 1.234575, 9.999995, 9.9999949, 0.1, -0.5, 1.0]) * 10.0**shift
    halves = np.arange(-40, 40) / 8 * 10.0**shift
    for numbers in (values, halves, values.astype(np.float32).astype(np.float64)):
        assert six_digits(numbers).to_pylist() == [f"{value:.6g}" for value in numbers.tolist()]
