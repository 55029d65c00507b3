"""A dataset of images, the table of its digests, and two subsets one after the other."""

import hashlib
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import curate
from curate.policies.filter.amounts import KeepTop
from curate.policies.receipts import sealed
from curate.tables.table import embedding_field

N = 40
WIDTH = 8
MODEL = {"method": "m", "digest": "d" * 64}


def write(path, table, model=MODEL):
    card = {"kind": "scores", "model": model, "source": "40 images of photos", "curate": "0.1.0"}
    pq.write_table(table.replace_schema_metadata({b"curate": json.dumps(card).encode()}), path)
    return path


def dataset(folder, n=N):
    """Write n files that represent images, and a table of them."""
    (folder / "photos").mkdir(parents=True)
    vectors = np.random.default_rng(1).normal(size=(n, WIDTH))
    vectors[3] = vectors[5]  # a pair that is the same
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = []
    for number in range(n):
        path = folder / "photos" / f"{number:03}.png"
        path.write_bytes(f"image {number}".encode())
        rows.append((f"{number:03}.png", str(path), hashlib.sha256(path.read_bytes()).hexdigest()))
    kind = embedding_field(WIDTH, "float32").type
    columns = {
        **dict(zip(("key", "uri", "sha256"), map(list, zip(*rows, strict=True)), strict=True)),
        "status": ["ok"] * n,
        "kappa_a": pa.array([float(number * 7 % n) for number in range(n)], pa.float32()),
        "unread": pa.array(range(n), pa.int32()),
        "embedding": pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype("f4").ravel()), type=kind),
    }
    return write(folder / "scores.parquet", pa.table(columns))


def chain(folder):
    """Deduplicate, then filter; returns the two results."""
    first = curate.dedup(folder / "scores.parquet", folder / "unique.parquet", {"embedding": 0.999})
    return first, curate.filter(first.subset, folder / "best.parquet", [KeepTop("50%", "kappa_a")])


def changed(path, name, row, value, out=None):
    """Write a table with another value in one row."""
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[row] = value
    at = table.schema.get_field_index(name)
    pq.write_table(
        table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type)), out or path
    )


def resealed(path, change):
    """Forge a receipt: change it, and seal it again."""
    receipt = json.loads(path.read_text())
    change(receipt)
    path.write_bytes(sealed(receipt))
