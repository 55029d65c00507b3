import decimal

import numpy as np
import pyarrow as pa
import pytest

from curate.exporting.rows import json_values

NAN, INF = float("nan"), float("inf")
PAIRS = pa.list_(pa.float32(), 2)


@pytest.mark.parametrize(
    ("column", "values"),
    [
        (pa.array(np.array([0.5, NAN, -INF], np.float16)), [0.5, None, None]),
        (pa.array([0.1, None], pa.float32()), [float(np.float32(0.1)), None]),
        (pa.array([[0.5, 1], [2, NAN]], PAIRS), [[0.5, 1.0], [2.0, None]]),
        (pa.array([[9, 9], [0.5, 1], [2, 3]], PAIRS).slice(1), [[0.5, 1.0], [2.0, 3.0]]),
        (pa.array([[0.5, 1], None], PAIRS), [[0.5, 1.0], None]),
        (pa.array([decimal.Decimal("1.20")]), ["1.20"]),
        (pa.array([1.5, NAN]).dictionary_encode(), [1.5, None]),
        (pa.array([True, None]), [True, None]),
    ],
)
def test_columns_become_values_of_json(column, values):
    assert json_values(pa.chunked_array([column, column])) == values * 2
