"""Near-duplicates that annotators have judged: average precision of what is alike, over all pairs of images."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from dedup_curves import Truth
from dedup_quality import caltech
from transfer_datasets import Dataset, Scored, images_of, stamp
from transfer_numbers import REPEATS, Measured
from transfer_scores import centred

from curate.policies.dedup.finders.verified import Verified
from curate.tables.needs import Needs
from curate.tables.rows import read_rows
from curate.tables.signatures import signature_matrix
from curate.tables.table import open_table
from scoring.images.signature import ORIENTATIONS, reorient, views
from scoring.metrics.resampling import resamples

FILE = "caltech_subset"
MIRRORED = ORIENTATIONS["mirrored"]
MOST = 200_000  # pairs looked at, the most alike first: no precision worth having lies beyond


@dataclass(frozen=True)
class Ranked:
    """P pairs of rows, the most alike first.

    Attributes:
        a: the one row, shape (P,).
        b: the other.
        same: whether annotators call them the same, shape (P,).
        last: the last pair of those that are as alike, of each pair, shape (P,).
    """

    a: np.ndarray
    b: np.ndarray
    same: np.ndarray
    last: np.ndarray


def judged(data: Path) -> dict[str, Truth]:
    """Return the truth of all pairs, and without the mirrored ones."""
    return {each.name: each.truth for each in caltech(data)}


def scored_photos(data: Path, scored: Scored) -> Dataset:
    """Return the photographs that the pairs are of, in the order of their file."""
    path = data / f"{FILE}.parquet"
    return scored.dataset(FILE, stamp(path), lambda: images_of(path))


def likenesses(dataset: Dataset) -> Iterator[tuple[str, np.ndarray]]:
    """Yield how alike all pairs of N rows are, by name: shape (N, N), higher is more alike."""
    table = pq.read_table(dataset.path, columns=["phash", "signature"])
    codes = table["phash"].to_numpy()
    bits = np.unpackbits(codes.view(np.uint8).reshape(-1, 8), axis=1).astype(np.float32) * 2 - 1
    yield "perceptual hash", bits @ bits.T
    stored = signature_matrix(table["signature"])
    signature = _units(stored) @ _units(stored).T
    either = np.maximum(signature, _units(stored) @ _units(reorient(stored, MIRRORED)).T)
    yield "signature", signature
    yield "signature, or of the mirror image", either
    raw, middle = (rows.numpy() for rows in (dataset.embedding, centred(dataset.embedding)))
    embedding = middle @ middle.T
    yield "embedding, raw", raw @ raw.T
    yield "embedding, centred", embedding
    yield "1/2 embedding, centred + 1/2 signature", embedding + signature
    yield "1/2 embedding, centred + 1/2 signature, mirror too", embedding + either
    yield "3/4 embedding, centred + 1/4 signature, mirror too", 3 * embedding + either
    yield "near-duplicate, a probability", _chances(dataset)


def _chances(dataset: Dataset) -> np.ndarray:
    """Return the probability of all pairs by near-duplicate, (N, N); those never verified below all others."""
    rows = read_rows(open_table(dataset.path), Needs(representations=frozenset({"embedding", "signature"})))
    finder = Verified(rows, 0.0, views(mirrored=True))
    links = finder.measure(*finder.candidates())
    chance = np.full((len(rows), len(rows)), -1, np.float32)
    chance[links.query, links.row] = chance[links.row, links.query] = links.similarity
    return chance


def ranked(alike: np.ndarray, truth: Truth) -> Ranked:
    """Return the pairs that count, from a symmetric matrix (N, N)."""
    a, b = np.triu_indices(len(alike), 1)
    score = alike[a, b]
    top = np.argpartition(-score, min(2 * MOST, len(score) - 1))[: 2 * MOST]
    code = truth.codes(np.stack([a[top], b[top]], 1))
    top, code = (each[~np.isin(code, truth.codes(truth.left_out))] for each in (top, code))
    order = np.argsort(-score[top], kind="stable")[:MOST]
    top, code = top[order], code[order]
    ends = np.flatnonzero(np.r_[score[top][1:] != score[top][:-1], True])
    return Ranked(
        a[top], b[top], np.isin(code, truth.codes(truth.same)), ends[np.searchsorted(ends, np.arange(len(top)))]
    )


def average_precision(alike: np.ndarray, truth: Truth) -> Measured:
    """Return the mean, over pairs that are the same, of the precision down to there, with resamples of the images.

    Pairs that are as alike share the precision after the last of them.
    """
    pairs = ranked(alike, truth)

    def measure(counts: np.ndarray) -> float:
        weight = (counts[pairs.a] * counts[pairs.b]).astype(float)
        total = float((counts[truth.same[:, 0]] * counts[truth.same[:, 1]]).sum())
        hits, reached = np.cumsum(weight * pairs.same), np.cumsum(weight)
        precision = np.divide(hits, reached, out=np.zeros_like(hits), where=reached > 0)[pairs.last]
        return float((precision * weight * pairs.same).sum() / total) if total else np.nan

    draws = [measure(counts) for counts in resamples(truth.n, repeats=REPEATS, seed=0)]
    return Measured(measure(np.ones(truth.n, np.int64)), np.array(draws))


def _units(rows: np.ndarray) -> np.ndarray:
    wide = rows.astype(np.float32)
    return wide / np.maximum(np.linalg.norm(wide, axis=1, keepdims=True), 1e-12)
