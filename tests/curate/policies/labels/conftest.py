import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mislabelled import CLASSES, N, embedded, rows_of


@pytest.fixture
def table(tmp_path):
    vectors, true, labels = rows_of()
    names = np.array(CLASSES)
    columns = {
        "key": [f"k{i:04}" for i in range(N)],
        "label": names[labels].tolist(),
        "clean": names[true].tolist(),
        "number": labels.tolist(),
        "share": (labels / 2).tolist(),
        "flag": (labels > 0).tolist(),
        "status": ["ok"] * (N - 2) + ["truncated"] * 2,
        "error": [None] * (N - 2) + ["cut short"] * 2,
        "embedding": embedded(vectors),
        "one": ["same"] * N,
        "each": [f"c{i}" for i in range(N)],
        "lists": [[1]] * N,
        "empty": pa.nulls(N, pa.string()),
    }
    path = tmp_path / "scores.parquet"
    pq.write_table(pa.table(columns), path)
    return path
