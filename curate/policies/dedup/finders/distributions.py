"""Rows whose distributions overlap: the radius of each pair follows how certain the model is of both."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.finders.elk import Radius
from curate.policies.dedup.finders.links import Links, first_of, joined
from curate.policies.dedup.finders.searches import EVERY_PAIR, NearVector, Search
from curate.tables.rows import Rows
from scoring.errors import InputError
from scoring.search.links import Recall, rounded

QUERIED = 256  # queried rows at a time where every pair has to be looked at


class NearDistribution(Search):
    """Rows whose distributions overlap: by the expected likelihood kernel, as the cosine at the median kappa."""

    higher = True
    extent = EVERY_PAIR
    notes: Sequence[str] = ()

    def __init__(self, rows: Rows, threshold: float, kappa: str) -> None:
        if rows.embedding is None:
            raise ValueError("rows were read without embedding")
        self.kappas = rows.numbers[kappa]
        self.kappa = kappa
        self.there = rows.embedding.any(1) & rows.ok
        if rows.embedding.shape[1] < 2 and self.there.any():
            raise InputError("--similarity elk needs embeddings of 2 numbers or more, got 1; compare by cosine")
        if not self.there.any():
            raise InputError(
                f"--similarity elk compares rows with an embedding and {kappa!r}, got none; compare by cosine"
            )
        self.radius = Radius.of(self.kappas[self.there], threshold, rows.embedding.shape[1], name=kappa)
        self.near = NearVector(rows.embedding, self.radius.loosest, "embedding", ties=rows.hashes)
        self.notes = self.radius.notes

    @property
    def recall(self) -> Recall | None:
        """Share of the pairs that the index finds at the loosest cosine of any pair, by a sample."""
        return self.near.recall

    def links(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return every pair of a row in ``rows`` and one that ``among`` marks."""
        links = self.near.links(rows, among)
        return self._matching(links, self.kappas[links.query])

    def first(self, rows: NDArray[np.int64], among: NDArray[np.bool_]) -> Links:
        """Return, of each row that ``among`` marks, the pair with the first of ``rows`` that finds it."""
        left = among.copy()
        parts = []
        for start in range(0, len(rows), QUERIED):
            some = rows[start : start + QUERIED]
            (near,) = self.near.search_rows(some, left)
            near = first_of([self._matching(near, self.kappas[some[near.query]])])
            left[near.row] = False
            parts.append(near.of_rows(some))
        return joined(parts)

    def foreign(self, rows: Rows, among: NDArray[np.bool_], some: NDArray[np.int64] | None = None) -> Links:
        """Return every pair of a row of another table and one of this; this table's median kappa counts."""
        links = self.near.foreign(rows, among, some)
        return self._matching(links, rows.numbers[self.kappa][links.query])

    def measure(self, query: NDArray[np.int64], row: NDArray[np.int64]) -> Links:
        """Return the similarity of each pair."""
        links = self.near.measure(query, row)
        similarity = self.radius.similarity(links.similarity, self.kappas[query], self.kappas[row])
        return Links(query, row, similarity.astype(np.float32), links.view)

    def _matching(self, links: Links, kappas: NDArray[np.float64]) -> Links:
        similarity = self.radius.similarity(links.similarity, kappas, self.kappas[links.row])
        enough = similarity >= self.radius.threshold
        links = links.take(enough)
        return Links(links.query, links.row, rounded(similarity[enough], self.radius.threshold), links.view)
