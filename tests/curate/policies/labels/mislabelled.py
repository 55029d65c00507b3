"""Tables in which some labels are wrong."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from typer.testing import CliRunner

from curate.cli import app

N, CLASSES = 240, ("ant", "bee", "cat")


def rows_of(n=N, seed=0):
    generator = np.random.default_rng(seed)
    true = np.arange(n) % 3
    vectors = generator.normal(size=(3, 12))[true] + 0.3 * generator.normal(size=(n, 12))
    labels = true.copy()
    wrong = generator.permutation(n)[: n // 10]
    labels[wrong] = (true[wrong] + 1) % 3
    return vectors.astype(np.float32), true, labels


def embedded(vectors):
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), vectors.shape[1])


def changed(path, **columns):
    old = pq.read_table(path)
    for name, values in columns.items():
        old = old.set_column(old.schema.names.index(name), name, pa.array(values))
    pq.write_table(old, path)
    return path


def invoke(*args):
    return CliRunner().invoke(app, ["labels", *map(str, args)])
