"""Same pixels after decoding: images are read again, but only where another could have the same pixels."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.policies.dedup.finders.links import chunks
from curate.tables.images import Encoded, Images
from curate.tables.in_order import in_order
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.images import DecodeError, pixel_digest
from scoring.search.hamming import HammingIndex

CLOSE = 6  # bits: equal pixels in two formats are decoded by two roads, and their hashes differ in a few bits at most
MOST = 65_536  # queried hashes at a time
AHEAD = 64  # images read ahead of the decoders


def add_pixels(tables: Sequence[tuple[Table, Rows, str | None]]) -> list[str]:
    """Read the candidates of all tables together and put their digests into ``Rows.texts['pixels']``.

    A row is a candidate if another one, of any of the tables, has its width and height, nearly its perceptual hash, and
    other bytes; the rest cannot have the same pixels as another, or are equal in their bytes anyway.

    Args:
        tables: each with its rows, which have ``width``, ``height``, ``phash`` and ``sha256``, and what was scored.

    Returns:
        How many were read, and could not be; a sentence each.

    Raises:
        InputError: if there is neither a path nor a source for an image.
    """
    everything = [rows for _, rows, _ in tables]
    chosen = np.split(candidates(everything), np.cumsum([len(rows) for rows in everything])[:-1])
    n_read, problems = 0, []
    for (table, rows, source), mask in zip(tables, chosen, strict=True):
        digests = np.full(len(rows), None, object)
        candidate_rows = np.flatnonzero(mask)
        if len(candidate_rows):
            images = Images.of(table, candidate_rows, source=source)
            for row, digest, problem in _digests(images, candidate_rows):
                digests[row] = digest
                if problem:
                    problems.append(problem)
        n_read += len(candidate_rows)
        rows.texts["pixels"] = pa.chunked_array([pa.array(digests, pa.large_string())])
    read = counted(n_read, "image was", "images were")
    notes = [f"pixels: {read} read again, with pixels that another may have too"]
    if problems:
        notes.append(f"pixels: {len(problems):,} of them could not be read, such as {problems[0]}")
    return notes


def _digests(images: Images, rows: NDArray[np.int64]) -> Iterable[tuple[int, str | None, str]]:
    def digest(image: Encoded) -> tuple[int, str | None, str]:
        if image.data is None:
            return image.row, None, f"{image.key} ({image.problem})"
        try:
            return image.row, pixel_digest(image.data), ""
        except DecodeError as error:
            return image.row, None, f"{image.key} ({error.status}: {error})"

    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="pixels") as pool:
        for start in range(0, len(rows), AHEAD):
            some = images.read(rows[start : start + AHEAD].tolist())
            yield from in_order(pool, digest, some, AHEAD, lambda image: len(image.data or b""))


def candidates(tables: Sequence[Rows]) -> NDArray[np.bool_]:
    """Return which rows could have the pixels of another with other bytes, all tables one after another."""
    kinds = ("width", "height")
    sizes = np.stack([np.concatenate([rows.numbers[name] for rows in tables]) for name in kinds], 1)
    codes = np.concatenate([rows.phash for rows in tables if rows.phash is not None])
    has_hash = np.concatenate([rows.ok & rows.has_phash for rows in tables if rows.has_phash is not None])
    has_hash &= ~np.isnan(sizes).any(1)
    texts = [chunk for rows in tables for chunk in rows.texts["sha256"].chunks]
    content = pa.chunked_array(texts, pa.large_string()).dictionary_encode(null_encoding="encode").combine_chunks()
    of_content = content.indices.to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(has_hash)
    image = np.zeros(len(rows), [("code", np.uint64), ("width", np.int64), ("height", np.int64)])
    image["code"], image["width"], image["height"] = codes[rows], sizes[rows, 0], sizes[rows, 1]
    kind, of_kind = np.unique(image, return_inverse=True)  # one for each hash and size
    pairs = np.unique(np.stack([of_kind, of_content[rows]], 1), axis=0)
    several = np.bincount(pairs[:, 0], minlength=len(kind)) > 1
    index = HammingIndex(kind["code"].copy(), CLOSE)
    for some in chunks(np.arange(len(kind)), most=MOST):
        asking = some.rows[~several[some.rows]]  # rows that are found already need no search
        near = index.search(kind["code"][asking].copy(), None)
        a, b = asking[near.query], near.row
        alike = (a != b) & (kind["width"][a] == kind["width"][b]) & (kind["height"][a] == kind["height"][b])
        several[a[alike]] = several[b[alike]] = True
        some.n_pairs = len(near)
    chosen = np.zeros(len(has_hash), bool)
    chosen[rows] = several[of_kind]
    return chosen
