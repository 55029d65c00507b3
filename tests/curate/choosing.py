"""Scored tables made by hand: clusters of unit embeddings, with whatever a test wants to be wrong with them."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from curate.tables.table import embedding_field


def vectors_of(n, d=8, clusters=5, seed=0):
    generator = np.random.default_rng(seed)
    middle = generator.standard_normal((clusters, d))
    of_row = np.arange(n) % clusters
    rows = middle[of_row] + 0.4 * generator.standard_normal((n, d))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32), of_row


def columns_of(n=60, d=8, seed=0, **other):
    """Name -> values; ``other`` replaces or adds columns, None takes one out."""
    generator = np.random.default_rng([seed, 1])
    vectors, cluster = vectors_of(n, d, seed=seed)
    columns = {
        "key": [f"img/{i:03}.png" for i in range(n)],
        "status": ["ok"] * n,
        "label": [f"class {c}" for c in cluster.tolist()],
        "embedding": list(vectors),
        "kappa_mcinfonce": generator.random(n).astype(np.float32) * 50 + 1,
        "unc_losspred": generator.random(n).astype(np.float32),
        "aesthetic": generator.random(n),
        "loss": generator.random(n),
        "holdout": generator.random(n),
        "photographer": [("ann", "bob", None)[i % 3] for i in range(n)],
    }
    columns.update(other)
    return {name: values for name, values in columns.items() if values is not None}


def write(path, columns, order=None):
    """A Parquet file of the columns, rows in an order."""
    arrays, fields = [], []
    n = len(columns["key"])
    for name, values in columns.items():
        values = [values[i] for i in (range(n) if order is None else order)]
        if name == "embedding":
            width = next(len(v) for v in values if v is not None)
            field = embedding_field(width, "float32")
            arrays.append(pa.array([None if v is None else [float(x) for x in v] for v in values], field.type))
            fields.append(field)
        else:
            array = values if isinstance(values, pa.Array) else pa.array(values)
            arrays.append(array)
            fields.append(pa.field(name, array.type))
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path)
    return path


def table(path, n=60, **other):
    return write(path, columns_of(n, **other))


def csv(path, rows, header="key,label"):
    path.write_text("\n".join([header, *(",".join(row) for row in rows)]) + "\n")
    return path
