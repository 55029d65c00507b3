import decimal
import json

import numpy as np
import pyarrow as pa
import pytest

from curate.exporting.rows import json_texts, json_values

NAN, INF = float("nan"), float("inf")
HALF_PAIRS = pa.list_(pa.float16(), 2)
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
        (pa.array([['"\\\n\u00e9', None], None]), [['"\\\n\u00e9', None], None]),
        (pa.array(['"\\\n\u00e9\u2028', None, ""]), ['"\\\n\u00e9\u2028', None, ""]),
        (pa.array([2**64 - 1, None], pa.uint64()), [2**64 - 1, None]),
        (pa.array([1e-7, 1e22, -0.0, 5e-324]), [1e-7, 1e22, -0.0, 5e-324]),
        (pa.array([[9, 9], [0.1, -0.0], [6e-8, NAN]], HALF_PAIRS).slice(1), [[0.0999755859375, -0.0], [2**-24, None]]),
        (pa.array([[0.5, None], None], HALF_PAIRS), [[0.5, None], None]),
    ],
)
def test_columns_become_values_of_json(column, values):
    chunks = pa.chunked_array([column, column])
    assert json_values(chunks) == values * 2
    assert json_texts(chunks) == [json.dumps(value, ensure_ascii=False) for value in values * 2]
