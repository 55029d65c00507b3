"""A table with five policies over it."""

import hashlib

import pytest
from choosing import columns_of, write
from five_policies import FAILED, N, png

import curate


@pytest.fixture(scope="session")
def five_policies(tmp_path_factory):
    """A table of 400 rows, three of them failed, and five policies over it, one after or next to another."""
    folder = tmp_path_factory.mktemp("report")
    ok = [row not in FAILED for row in range(N)]
    columns = columns_of(N, seed=3)
    score = [value if is_ok else None for value, is_ok in zip(columns["unc_losspred"].tolist(), ok, strict=True)]
    for row in range(N):
        (folder / f"{row}.png").write_bytes(png(row))
    sha = [hashlib.sha256(png(row)).hexdigest() if ok[row] else None for row in range(N)]
    columns |= {
        "status": ["ok" if is_ok else ("truncated", "not_an_image")[row % 2] for row, is_ok in enumerate(ok)],
        "unc_losspred": score,
        "uri": [str(folder / f"{row}.png") for row in range(N)],
        "sha256": sha,
        "format": ["jpeg" if row % 3 else "png" for row in range(N)],
        "width": [100 + row % 5 for row in range(N)],
        "n": [f"text {row}" for row in range(N)],
        "quality_highlight": [None if not is_ok else 0.1 if row < 12 else 0.9 for row, is_ok in enumerate(ok)],
        "label": [f"class {(row + (row % 80 == 11)) % 5}" for row in range(N)],
        "photographer": None,
    }
    write(folder / "scores.parquet", {name: values for name, values in columns.items() if values is not None})
    table = folder / "scores.parquet"
    curate.filter(table, folder / "kept.parquet", drop_bottom="25%", column="unc_losspred", allow_uneven=True)
    curate.dedup(folder / "kept.parquet", folder / "alone.parquet", finder=["bytes"])
    curate.select(folder / "alone.parquet", folder / "picked.parquet", budget=20, strategy="random")
    curate.labels(table, folder / "labels.parquet", "label", drop_suspected=True)
    curate.issues(table, folder / "issues.parquet")
    return folder
