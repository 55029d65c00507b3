"""Determinantal greedy: picks that span as much volume as possible."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Selector, check
from curate.selectors.geometry import check_bandwidth, rbf, unit
from curate.selectors.herding import worth
from curate.selectors.picking import picking
from curate.selectors.pool import Pool, Selection
from scoring.errors import InputError

GIVEN = 2_048  # labelled rows that are conditioned on
MOST_TAKEN = 0.25  # of the rows drawn: where more are picked, being drawn decides more than the rule
TINY = 1e-12  # a conditional variance below this is that of a copy


@dataclass(frozen=True)
class Determinantal(Selector):
    """Pick the row that adds most to log det of diag(w) K diag(w), K the kernel of MaxHerding; gains are what it adds.

    w is what a row counts: 1 - margin where there are probabilities, times quality where given, else 1. Labelled rows
    are conditioned on. By incremental Cholesky, in float64. A copy of a pick adds next to nothing (log 1e-12) and comes
    last.

    Memory grows with the picks: 8 bytes times candidates times (picks + labelled). So at most ``shortlist`` candidates
    take part, drawn by the seed where there are more (noted), at most 2,048 labelled rows, drawn too, are
    conditioned on, and a larger budget is refused: at most 0.7 GB with the default. Where more than a quarter of those
    drawn are picked, probability decides most, and that is noted.

    Source: Chen, Zhang & Zhou 2018, arXiv:1709.05135, Algorithm 1.
    """

    bandwidth: float = 0.5
    shortlist: int = 8_192
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(K (K + L) M + (K + L) M D), M = min(N, 8,192) candidates; O(K N) memory, at most 0.7 GB"

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)
        if self.shortlist < 1:
            raise InputError(f"shortlist must be at least 1, got {self.shortlist}")

    def __call__(self, pool: Pool, budget: int, *, seed: int = 0) -> Selection:
        """Pick rows, as every ``Selector`` does."""
        check(pool, budget, self.needs)
        if pool.vectors is None:
            raise ValueError("a pool that was checked has vectors")
        if budget > self.shortlist:
            raise InputError(
                f"determinantal picks at most {self.shortlist:,} rows, for its memory grows with them; got a budget of"
                f" {budget:,}: take another strategy, such as herding or facility-location, or raise its shortlist,"
                f" at 8 bytes times picks times candidates in it ({8e-9 * budget * budget:,.1f} GB at least)"
            )
        generator = np.random.default_rng(seed)
        places, given, notes = self._drawn(pool, budget, generator)
        rows = unit(pool.vectors[pool.candidates[places]], np.float64)  # (M, D)
        conditioned = unit(pool.vectors[given], np.float64)
        factor = np.empty((len(given) + budget, len(rows)))  # (L + K, M): rows of the Cholesky factor
        left = np.ones(len(rows))  # variance given what is picked: the kernel of a row with itself is 1
        counted = 0
        for column in _basis(conditioned, rows, self.bandwidth):
            factor[counted] = column
            left -= column**2
            counted += 1
        weight = 2 * np.log(np.maximum(worth(pool)[places].astype(np.float64), TINY))
        picks, gains = np.empty(budget, np.int64), np.empty(budget)
        taken = np.zeros(len(rows), bool)
        for position in picking(budget):
            score = np.where(taken, -np.inf, np.log(np.maximum(left, TINY)) + weight)
            row = int((score >= score.max() - 1e-9).argmax())
            picks[position], gains[position], taken[row] = row, score[row], True
            if left[row] > TINY:
                column = rbf(rows[row : row + 1], rows, self.bandwidth)[0]
                column[row] = 1.0
                column -= factor[:counted, row] @ factor[:counted]
                column /= np.sqrt(left[row])
                factor[counted] = column
                left -= column**2
                counted += 1
        return Selection(pool.candidates[places[picks]], gains, notes=notes)

    def _drawn(
        self, pool: Pool, budget: int, generator: np.random.Generator
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], tuple[str, ...]]:
        """Return the candidates and labelled rows that are looked at, as many as fit; notes where these are not all."""
        places, given = np.arange(len(pool.candidates)), pool.labelled
        notes: list[str] = []
        if len(places) > self.shortlist:
            drawn = f"approximate: {self.shortlist:,} of {len(places):,} candidates drawn"
            if budget > MOST_TAKEN * self.shortlist:
                drawn += (
                    f", and {budget / self.shortlist:.0%} of those are picked, nearly at random; raise its shortlist"
                )
            notes.append(drawn)
            places = np.sort(generator.choice(len(places), self.shortlist, replace=False))
        if len(given) > GIVEN:
            notes.append(f"approximate: {GIVEN:,} of {len(given):,} labelled rows drawn")
            given = np.sort(generator.choice(given, GIVEN, replace=False))
        return places, given, tuple(notes)


def _basis(given: np.ndarray, rows: np.ndarray, bandwidth: float) -> list[np.ndarray]:
    """Return rows (M,) whose squares add up to what the L given rows explain of the variance of each of the M."""
    if not len(given):
        return []
    values, turn = np.linalg.eigh(rbf(given, given, bandwidth))
    usable = values > TINY * len(given)
    return list((turn[:, usable] / np.sqrt(values[usable])).T @ rbf(given, rows, bandwidth))
