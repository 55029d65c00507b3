"""The audited table and its audits."""

from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from audited_tables import N, answered
from PIL import Image

from curate.policies.audit.draw import review_plan


@pytest.fixture(scope="session")
def dataset(tmp_path_factory):
    """A table whose least certain rows are bad, mostly; all rows show one image."""
    folder = tmp_path_factory.mktemp("heap")
    rng = np.random.default_rng(0)
    doubt = rng.random(N).astype(np.float32)
    bad = rng.random(N) < np.where(doubt > 0.8, 0.7, 0.002)
    Image.new("RGB", (16, 16), (9, 99, 199)).save(folder / "one.png")
    keys = [f"k{i:04}" for i in range(N)]
    table = {
        "key": keys,
        "uri": [str(folder / "one.png")] * N,
        "status": ["ok"] * (N - 5) + ["truncated"] * 5,
        "label": ["cat" if i % 2 else "dog" for i in range(N)],
        "unc_made_up": pa.array(doubt),
        "kappa_made_up": pa.array(1 / doubt),
        "unc_tied": pa.array(np.round(doubt, 1), pa.float32()),
    }
    pq.write_table(pa.table(table), folder / "scores.parquet")
    return (
        folder / "scores.parquet",
        dict(zip(keys, bad.tolist(), strict=True)),
        dict(zip(keys, doubt.tolist(), strict=True)),
    )


@pytest.fixture(scope="session")
def drawn(dataset, tmp_path_factory):
    """What `review_plan` writes, drawn once for the same options."""

    @cache
    def draw(**options):
        path = tmp_path_factory.mktemp("drawn") / "a.audit.csv"
        review_plan(dataset[0], path, **options)
        return path.read_text()

    return draw


@pytest.fixture
def audit(dataset, drawn, tmp_path):
    def make(name="a", change=None, **options):
        path = tmp_path / f"{name}.audit.csv"
        path.write_text(drawn(**{"column": "unc_made_up", "max_bad_rate": "2%", "images": 500, **options}))
        return answered(path, dataset[1], change=change)

    return make
