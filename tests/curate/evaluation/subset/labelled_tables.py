"""Scored tables with labels that are wrong in part, and subsets of them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.tables.table import embedding_field


def made(n=900, *, classes=3, wrong=0.3, seed=0, spread=0.9, width=8):
    """Columns of a table: rows around one centre a class; a share of the labels are the next class."""
    generator = np.random.default_rng(seed)
    true = np.arange(n) % classes
    centres = np.random.default_rng(99).normal(size=(classes, width))
    rows = centres[true] + spread * generator.normal(size=(n, width))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    bad = generator.random(n) < wrong
    return {
        "key": [f"{i:04d}.jpg" for i in range(n)],
        "status": ["ok"] * n,
        "label": [f"class {c}" for c in np.where(bad, (true + 1) % classes, true)],
        "true": [f"class {c}" for c in true],
        "camera": [("old", "new")[i % 2] for i in range(n)],
        "embedding": rows.astype(np.float16),
        "bad": bad.tolist(),
    }


def write(path, columns):
    """Write columns as a table; embeddings as fixed lists."""
    columns = dict(columns)
    rows = columns.get("embedding")
    if isinstance(rows, np.ndarray):
        kind = embedding_field(rows.shape[1]).type
        columns["embedding"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), type=kind)
    pq.write_table(pa.table(columns), path)
    return path


def keys(path, columns, kept):
    """Write the keys of some rows as a subset."""
    pq.write_table(pa.table({"key": [key for key, stays in zip(columns["key"], kept, strict=True) if stays]}), path)
    return path
