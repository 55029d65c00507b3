"""Rows, searches and tables that the tests of deduplication are about."""

import tracemalloc

import numpy as np
import pyarrow as pa
from PIL import Image

from curate.policies.dedup.finders.links import Links, joined
from curate.policies.dedup.grouping.stars import NOBODY
from curate.tables.digests import tie_breaks
from curate.tables.rows import Rows
from curate.tables.table import embedding_field
from curate.tables.vectors import ZERO
from curate.tables.writer import TableWriter
from scoring.images.crops import LOW, framed
from scoring.images.signature import KEPT

NAMES = ("bytes", "hash", "signature")


class Matrix:
    """A search whose pairs are in a matrix: ``linked[q, r]`` says that q, queried, finds r."""

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
        queried = rows.tolist()
        for row in np.flatnonzero(among).tolist():
            ahead = queried[: queried.index(row)] if row in queried else queried
            query = next((q for q in ahead if self.linked[q, row]), None)
            if query is not None:
                link = np.array([query]), np.array([row]), self.similarity[[query], [row]], np.zeros(1, np.int8)
                parts.append(Links(*link))
        return joined(parts)


def symmetric(generator, n, share):
    """A random graph on n rows, as a matrix."""
    upper = np.triu(generator.random((n, n)) < share, 1)
    return upper | upper.T


def plain_rows(n=None, **arrays):
    """Rows that are all ok, with hashes of the keys k0, k1, ... and whatever arrays are given."""
    n = len(next(iter(arrays.values()))) if n is None else n
    ties = tie_breaks([f"k{i}".encode() for i in range(n)])
    if "embedding" in arrays:
        arrays["embedding_problem"] = np.where(arrays["embedding"].any(1), 0, ZERO).astype(np.uint8)
    return Rows(np.ones(n, bool), ties, **arrays)


def embedded(vectors):
    """Vectors as an embedding column; None is null."""
    width = next(len(vector) for vector in vectors if vector is not None)
    return pa.array(vectors, embedding_field(width, "float32").type)


def signed(signatures):
    """Signatures (N, 255) int8, or (N, 287) with colours, as a column."""
    return pa.array([row.astype(np.int8).tobytes() for row in signatures], pa.binary(signatures.shape[1]))


def same_thumbnails(n):
    """A column of n equal thumbnails, which confirm what the signature links."""
    return {"thumbnail": pa.array([bytes(range(256)) * 16] * n, pa.binary(4096))}


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
    """Signatures of n unlike images."""
    return np.rint(generator.normal(0, 40, (n, 255))).clip(-127, 127).astype(np.int8)


def jittered(generator, signature, n, size=2.0):
    """Signatures of n near-copies of one image."""
    return np.rint(signature + generator.normal(0, size, (n, signature.shape[-1]))).clip(-127, 127).astype(np.int8)


def soft_pictures(generator, n, side=96):
    """Images of soft blobs, RGB uint8 (n, side, side, 3); no two alike."""
    coarse = generator.integers(0, 256, (n, 9, 9), dtype=np.uint8)
    grey = [np.asarray(Image.fromarray(image).resize((side, side), Image.Resampling.BICUBIC)) for image in coarse]
    return np.repeat(np.stack(grey)[..., None], 3, axis=3)


def cut(generator, picture, share):
    """A window of ``share`` of each side, anywhere, as an image of 32 x 32."""
    side = len(picture)
    kept = round(share * side)
    top, left = generator.integers(0, side - kept + 1, 2)
    window = Image.fromarray(picture[top : top + kept, left : left + kept])
    return np.asarray(window.resize((32, 32), Image.Resampling.BILINEAR))


def large_parts(fit):
    """The cosine of each fit whose part is 68 % of each side of the whole or more, else 0."""
    top, bottom, left, right = fit.edges.T
    return np.where((bottom - top >= 0.68 * 256) & (right - left >= 0.68 * 256), fit.cosine, 0)


def nearest_frames(wholes, parts):
    """The largest coarse cosine of any frame of each whole with each part, (W, P)."""
    full = np.concatenate([np.zeros((len(parts), 1)), parts], 1).reshape(-1, KEPT, KEPT)
    frames, small = framed(wholes).astype(float), full[:, :LOW, :LOW].reshape(len(parts), -1)[:, 1:]
    lengths = np.linalg.norm(frames, axis=2)[..., None] * np.linalg.norm(small, axis=1)
    return (frames @ small.T / np.maximum(lengths, 1)).max(1)


def cosines(vectors):
    wide = vectors.astype(np.float64)
    length = np.linalg.norm(wide, axis=1, keepdims=True)
    unit = wide / np.where(length > 0, length, 1)
    return unit @ unit.T


def peak_mb(work):
    tracemalloc.start()
    try:
        result = work()
        return result, tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def by_definition(order, linked, open_rows, protected):
    """Owners by the definition: ``linked[q, r]`` where q finds r by any finder."""
    owner = np.full(len(order), NOBODY)
    stays = []
    for row in order:
        if not open_rows[row]:
            continue
        firsts = [q for q in stays if linked[q, row]]
        if firsts and not protected[row]:
            owner[row] = firsts[0]
        else:
            owner[row] = row
            stays.append(row)
    return owner
