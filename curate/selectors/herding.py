"""Selectors by kernel coverage: MaxHerding, and the default, which weights it by uncertainty."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from curate.selectors.contract import Pool, Selection, Selector
from curate.selectors.cover import FULL, DenseCover, SelfCoverage, covered, greedy, to_fixed
from curate.selectors.geometry import check_bandwidth, rbf, spans, unit
from scoring.arrays import Array, Floats, Ints
from scoring.errors import InputError

LIKELY = 4_096  # candidates compared with labelled rows at once
STAGE = 1000  # picks per sample of references


@dataclass(frozen=True)
class MaxHerding(Selector):
    """MaxHerding: repeatedly pick the row that most increases the mean similarity of rows to their nearest pick.

    max over S of mean_x max_{y in S or labelled} exp(-|x - y|^2 / (2 bandwidth^2)), greedily; on unit rows with the
    default this is exp((cos - 1) / 0.25). A good choice for the first labels, without predictions.

    Exact for up to ``exact_rows`` candidates. Above, each 1,000 picks use a new random sample of ``references`` rows,
    and at most ``shortlist`` random candidates, with a kernel in bfloat16 stored in 16 bits. The loss is measured on
    rows outside of the sample, and noted.

    Source: Bae et al. 2024, arXiv:2407.12212.
    """

    bandwidth: float = 0.5
    exact_rows: int = 5_000
    references: int = 4_096
    shortlist: int = 65_536
    needs: ClassVar[tuple[str, ...]] = ("vectors",)
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NRD) per 1,000 picks, R = 4,096 references; at most 0.5 GB, whatever N and K"

    def __post_init__(self) -> None:
        check_bandwidth(self.bandwidth)
        if self.exact_rows < 1 or self.references < 1 or self.shortlist < STAGE:
            raise InputError(
                f"exact_rows and references must be at least 1 and shortlist at least {STAGE},"
                f" got {self.exact_rows}, {self.references} and {self.shortlist}"
            )

    def weights(self, pool: Pool) -> NDArray[np.float32]:
        """Return the weight of each candidate in the coverage, shape (M,): 1."""
        return np.ones(len(pool.candidates), np.float32)

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        vectors, weights = pool.array("vectors"), self.weights(pool)
        if len(pool.candidates) <= self.exact_rows:
            picks, gains = _exact(pool, vectors, weights, self.bandwidth, budget)
            notes: tuple[str, ...] = ()
        else:
            picks, gains, notes = _staged(self, pool, vectors, weights, budget, seed)
        return Selection(pool.candidates[picks], gains, {"weight": weights[picks].astype(np.float64)}, notes)


@dataclass(frozen=True)
class Auto(MaxHerding):
    """MaxHerding with rows weighted by 1 - margin once class probabilities are known.

    max over S of mean_x u(x) q(x) max_{y in S or labelled} exp(-|x - y|^2 / (2 bandwidth^2)), greedily, where u is
    1 - (p1 - p2) of the calibrated probe, or 1 before there is one, and q the pool's quality, or 1. With few labels all
    rows have equal weight, which gives coverage; with many, rows between classes dominate; junk has little weight. So
    it suits every budget.

    Approximation beyond ``exact_rows`` candidates as in MaxHerding, measured and noted.

    Source: Bae et al. 2024, arXiv:2412.20644 (Uncertainty Herding). Their radius shrinks with the number of labels;
    ours is fixed, which is as good on the digits and needs no parameter.
    """

    optional: ClassVar[tuple[str, ...]] = ("probabilities", "quality")

    def weights(self, pool: Pool) -> NDArray[np.float32]:
        """Return the weight of each candidate, shape (M,): (1 - margin) times quality, each 1 if unknown."""
        weights = np.ones(len(pool.candidates), np.float32)
        if pool.probabilities is not None and pool.probabilities.shape[1] > 1:
            for span in spans(len(weights), 65_536):
                top = np.partition(pool.probabilities[pool.candidates[span]], -2, axis=1)[:, -2:]
                weights[span] = 1 - (top[:, 1] - top[:, 0])
        if pool.quality is not None:
            weights *= pool.quality[pool.candidates]
        return np.maximum(weights, 0)


def _exact(
    pool: Pool, vectors: Array, weights: NDArray[np.float32], bandwidth: float, budget: int
) -> tuple[Ints, Floats]:
    """Return positions among the candidates and their gains, with the full float64 kernel in memory."""
    rows = unit(vectors[pool.candidates], np.float64)
    similarity = rbf(rows, rows, bandwidth)
    np.fill_diagonal(similarity, 1.0)
    cover = DenseCover(similarity, weights, covered(rows, vectors, pool.labelled, bandwidth))
    picks, gains = greedy(cover, budget)
    return picks, gains / len(rows)


def _staged(
    self: MaxHerding, pool: Pool, vectors: Array, weights: NDArray[np.float32], budget: int, seed: int
) -> tuple[Ints, Floats, tuple[str, ...]]:
    """Return positions among the candidates, gains and notes; the picks of a stage do not depend on the budget."""
    size = len(pool.candidates)
    picks, gains = np.empty(0, np.int64), np.empty(0)
    loss = float("nan")
    for stage in range(-(-budget // STAGE)):
        generator = np.random.default_rng([seed, stage])
        left = np.setdiff1d(np.arange(size), picks, assume_unique=True)
        if len(left) > self.shortlist:
            left = np.sort(generator.choice(left, self.shortlist, replace=False))
        drawn = generator.choice(size, min(2 * self.references, size), replace=False)
        drawn, fresh = np.sort(drawn[: self.references]), np.sort(drawn[self.references :])
        done = np.concatenate([pool.labelled, pool.candidates[picks]])
        references = unit(vectors[pool.candidates[drawn]], np.float32)
        before = covered(references, vectors, done, self.bandwidth)
        as_reference = _positions(drawn, left)
        similarity, most = _drawn(
            vectors, pool.candidates[left], references, as_reference, self.bandwidth, weights[drawn], before
        )
        itself = weights[left] * (len(drawn) / size)
        most += itself
        order = np.argsort(-most, kind="stable")
        alone = SelfCoverage(vectors, pool.candidates[left], itself, done, order, self.bandwidth, STAGE)
        likely = order[:LIKELY]
        most[likely] += alone.gains(likely) - itself[likely]
        cover = DenseCover(similarity, weights[drawn], before, as_reference, most, alone)
        chosen, added = greedy(cover, min(STAGE, budget - len(picks)))
        picks, gains = np.concatenate([picks, left[chosen]]), np.concatenate([gains, added / len(drawn)])
        if len(picks) == budget:
            done = np.concatenate([pool.labelled, pool.candidates[picks]])
            others = covered(unit(vectors[pool.candidates[fresh]], np.float32), vectors, done, self.bandwidth)
            loss = _coverage_loss(cover.covered / FULL, weights[drawn], others, weights[fresh])
        del cover, similarity, alone  # frees half a gigabyte before the next stage
    drew = f"{min(size, self.shortlist):,} of {size:,} candidates and {self.references:,} references"
    note = f"approximate: {drew} drawn for each {STAGE:,} picks"
    if loss == loss:  # not NaN
        note += f"; rows that were not drawn are covered {loss:.2%} less than those that were"
    return picks, gains, (note,)


def _positions(drawn: Ints, rows: Ints) -> Ints:
    """Return the position of each row among the drawn rows, -1 if absent; both are ascending."""
    at = np.searchsorted(drawn, rows).clip(max=len(drawn) - 1)
    return np.where(drawn[at] == rows, at, -1)


def _drawn(
    vectors: Array,
    rows: Ints,
    references: Array,
    as_reference: Ints,
    bandwidth: float,
    weights: NDArray[np.float32],
    before: NDArray[np.float32],
) -> tuple[NDArray[np.uint16], Floats]:
    """Return the fixed kernel between rows and references, shape (M, R), and the maximal gain of each row, (M,).

    Cosines are computed in bfloat16, with errors of about 0.004 that average out over the references; this is several
    times faster. The kernel of a reference with itself is set to 0, since covering itself counts as one row in N, not
    one in R; ``SelfCoverage`` adds this gain for all rows.
    """
    import torch

    others = torch.from_numpy(references).bfloat16().T  # (D, R)
    square = (references != 0).any(axis=1).astype(np.float32)  # squared lengths
    kernel, most = np.empty((len(rows), len(references)), np.uint16), np.empty(len(rows))
    rounding = float(weights.sum(dtype=np.float64)) / FULL
    for span in spans(len(rows), 256):
        units = unit(vectors[rows[span]], np.float32)
        block = (torch.from_numpy(units).bfloat16() @ others).float().numpy()  # (B, R)
        block *= -2
        block += square
        block += (units != 0).any(axis=1)[:, None]
        np.maximum(block, 0, out=block)
        block *= np.float32(-0.5 / bandwidth**2)
        np.exp(block, out=block)
        inside = np.flatnonzero(as_reference[span] >= 0)
        block[inside, as_reference[span][inside]] = 0
        kernel[span] = to_fixed(block)
        block -= before
        np.maximum(block, 0, out=block)
        most[span] = (block @ weights) * (1 + 1e-5) + rounding
    return kernel, most


def _coverage_loss(inside: Array, counted: Array, others: Array, weights: Array) -> float:
    """Return the relative difference of the weighted coverage of unused rows to the used ones; NaN if unknown."""
    if not len(others) or not counted.sum() or not weights.sum():
        return float("nan")
    return max(0.0, 1 - float(np.average(others, weights=weights)) / float(np.average(inside, weights=counted)))
