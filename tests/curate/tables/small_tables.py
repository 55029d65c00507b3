"""Tables of a few rows."""

import numpy as np
import pyarrow as pa

from curate.tables.table import embedding_field
from curate.tables.writer import TableWriter

WIDTH = 4
SCHEMA = pa.schema([("key", pa.string()), ("kappa_a", pa.float32()), embedding_field(WIDTH)])
META = {"kind": "scores", "model": {"name": "m"}}


def rows(n, seed=0):
    values = np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float16)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), type=SCHEMA.field("embedding").type)
    kappa = pa.array(np.arange(n, dtype=np.float32))
    return pa.table([[f"k{i}" for i in range(n)], kappa, lists], schema=SCHEMA)


def written(path, table, metadata=META, **options):
    with TableWriter(path, table.schema, metadata, **options) as writer:
        writer.write(table)
    return path
