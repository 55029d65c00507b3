"""Small files of Parquet."""

import random

import pyarrow as pa
import pyarrow.parquet as pq


def payload(row):
    return random.Random(row).randbytes(row % 50)


def images(n):
    return [payload(row) for row in range(n)]


def write(path, columns, **options):
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(columns), path, **options)
    return path
