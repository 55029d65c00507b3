"""Numbers that are made wider are the same numbers."""

import numpy as np
import pytest

from curate.selectors.geometry import unit, widened

HALF = np.arange(2**16, dtype=np.uint16).view(np.float16)  # every number of half precision
FINITE = HALF[np.isfinite(HALF)].reshape(-1, 8)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_half_precision_is_widened_without_loss_and_without_a_word(dtype):
    fixed = FINITE.copy()
    fixed.flags.writeable = False
    for some in (FINITE, FINITE[:, ::-1], FINITE[::3], fixed, fixed[:0]):
        wide = widened(some, dtype)
        assert wide.dtype == dtype
        assert wide.tobytes() == some.astype(dtype).tobytes()
        wide *= 2  # it is a copy
    assert fixed.tobytes() == FINITE.tobytes()


def test_unit_rows_equal_numpy():
    rows = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float16)
    rows[7] = 0
    wide = rows.astype(np.float32)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    expected = np.divide(wide, length, out=np.zeros_like(wide), where=length > 0)
    np.testing.assert_allclose(unit(rows, np.float32), expected, rtol=3e-7)
