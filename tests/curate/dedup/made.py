"""Rows, searches and tables that the tests of deduplication are about."""

import numpy as np
import pyarrow as pa

from curate.dedup.links import Links, joined
from curate.dedup.rows import Rows
from curate.digests import tie_breaks
from curate.signatures import SIGNATURE_TYPE
from curate.table import TableWriter, embedding_field

NAMES = ("bytes", "hash", "signature")


class Matrix:
    """A search whose pairs stand in a matrix: ``linked[q, r]`` says that q, asked about, finds r."""

    higher = True
    recall = None
    notes = ()

    def __init__(self, linked, similarity=None):
        self.linked = linked & ~np.eye(len(linked), dtype=bool)
        self.similarity = linked.astype(np.float32) if similarity is None else similarity

    def links(self, rows, among):
        at, row = np.nonzero(self.linked[rows] & among)
        query = rows[at]
        return Links(query, row, self.similarity[query, row], np.zeros(len(row), np.int8))

    def first(self, rows, among):
        parts = []
        asked = rows.tolist()
        for row in np.flatnonzero(among).tolist():
            ahead = asked[: asked.index(row)] if row in asked else asked
            query = next((q for q in ahead if self.linked[q, row]), None)
            if query is not None:
                one = np.array([query]), np.array([row]), self.similarity[[query], [row]], np.zeros(1, np.int8)
                parts.append(Links(*one))
        return joined(parts)


def symmetric(generator, n, share):
    """A random graph on n rows, as a matrix."""
    upper = np.triu(generator.random((n, n)) < share, 1)
    return upper | upper.T


def plain_rows(n=None, **arrays):
    """Rows that are all ok, with hashes of the keys k0, k1, ... and whatever arrays are given."""
    n = len(next(iter(arrays.values()))) if n is None else n
    ties = tie_breaks([f"k{i}".encode() for i in range(n)])
    return Rows(np.ones(n, bool), ties, **arrays)


def embedded(vectors):
    """Vectors as an embedding column; None is null."""
    width = next(len(vector) for vector in vectors if vector is not None)
    return pa.array(vectors, embedding_field(width, "float32").type)


def signed(signatures):
    """Signatures (N, 255) int8 as a column."""
    return pa.array([row.astype(np.int8).tobytes() for row in signatures], SIGNATURE_TYPE)


def write_table(path, columns, *, model=None, signature=None):
    """Write a scored table with the columns given, and ``key`` k0, k1, ... unless given."""
    n = len(next(iter(columns.values())))
    columns = {"key": [f"k{i}" for i in range(n)], **columns}
    table = pa.table(columns)
    metadata = {"kind": "scores"}
    if model:
        metadata["model"] = {"digest": model, "method": f"method of {model}"}
    if signature:
        metadata["settings"] = {"signature": signature}
    with TableWriter(path, table.schema, metadata) as writer:
        writer.write(table)
    return path


def random_signatures(generator, n):
    """Signatures of n unlike pictures."""
    return np.rint(generator.normal(0, 40, (n, 255))).clip(-127, 127).astype(np.int8)


def jittered(generator, signature, n, size=2.0):
    """Signatures of n near-copies of one picture."""
    return np.rint(signature + generator.normal(0, size, (n, signature.shape[-1]))).clip(-127, 127).astype(np.int8)
