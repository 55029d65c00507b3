"""Selectors that rank single rows by a score, and the use of quality as a gate or discount.

Ranking is fast, but picks similar rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from curate.selectors.contract import HOW_TO_GET, Pool, Selection, Selector, blocks, check
from scoring.arrays import Array, Floats
from scoring.errors import InputError
from scoring.metrics.ranking import ranks


def least_confidence(probabilities: Array) -> Floats:
    """Return 1 - p1, p1 the largest probability of each row (N, C), in [0, 1 - 1/C]; higher is less certain.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.

    >>> least_confidence(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    return np.asarray(1 - np.asarray(probabilities).max(1).astype(np.float64))


def margin(probabilities: Array) -> Floats:
    """Return 1 - (p1 - p2), the two largest probabilities of each row (N, C), in [0, 1]; higher is less certain.

    With one class, p2 is 0. Source: Settles 2009, sec. 3.1, negated so that higher is picked first.

    >>> margin(np.array([[0.5, 0.25, 0.25], [1.0, 0.0, 0.0]])).tolist()
    [0.75, 0.0]
    """
    probabilities = np.asarray(probabilities)
    margins = np.empty(len(probabilities))
    for start, block in blocks(probabilities):
        if block.shape[1] > 1:
            top = np.partition(block, -2, axis=1)[:, -2:].astype(np.float64)
            margins[start : start + len(block)] = 1 - (top[:, 1] - top[:, 0])
        else:
            margins[start : start + len(block)] = 1 - block[:, 0]
    return margins


def entropy(probabilities: Array) -> Floats:
    """Return -sum_c p_c log p_c in nats for rows (N, C), shape (N,), in [0, ln C]; higher is less certain.

    Source: Settles 2009, sec. 3.1.

    >>> entropy(np.array([[0.5, 0.5], [1.0, 0.0]])).round(4).tolist()
    [0.6931, 0.0]
    """
    probabilities = np.asarray(probabilities)
    entropies = np.empty(len(probabilities))
    for start, block in blocks(probabilities):
        p = block.astype(np.float64)
        log = np.log(p, out=np.zeros_like(p), where=p > 0)
        entropies[start : start + len(p)] = 0.0 - (p * log).sum(1)
    return entropies


@dataclass(frozen=True)
class Ranked(Selector):
    """The candidates with the highest scores, highest first; ties go to the lower row. Gains are the scores.

    Attributes:
        score: its name.
        compute: the fields in ``needs``, in order -> scores, shape (N,) float64, finite; higher is picked first.
    """

    score: ClassVar[str]
    compute: ClassVar[Callable[..., Floats]]
    prefix: ClassVar[bool] = True
    cost: ClassVar[str] = "O(NC + N log N) time, O(N) memory"

    def scores(self, pool: Pool) -> Floats:
        """Return the score of every row of a pool, shape (N,)."""
        return type(self).compute(*(pool.array(need) for need in self.needs))

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        values = self.scores(pool)[pool.candidates]
        order = np.argsort(-values, kind="stable")[:budget]
        return Selection(pool.candidates[order], values[order])


class LeastConfidence(Ranked):
    """The rows with the lowest probability of the most likely class: 1 - p1.

    Source: Settles 2009, "Active Learning Literature Survey", sec. 3.1.
    """

    needs = ("probabilities",)
    score = "least-confidence"
    compute = staticmethod(least_confidence)


class Margin(Ranked):
    """The rows whose two most likely classes are closest: 1 - (p1 - p2).

    A safe choice with many labels; with few, its ranking is noise. It prefers ambiguous images: gate or discount by
    quality if there are many.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "margin"
    compute = staticmethod(margin)


class Entropy(Ranked):
    """The rows with the highest entropy of the predicted classes; worse than random with few labels.

    Source: Settles 2009, sec. 3.1.
    """

    needs = ("probabilities",)
    score = "entropy"
    compute = staticmethod(entropy)


class HighestScore(Ranked):
    """The rows with the highest value of a score column, kappa or unc, in the given direction.

    High uncertainty of a pretrained model mostly means bad quality: use it as a gate or discount, rarely as the reason
    to label.
    """

    needs = ("uncertainty",)
    cost = "O(N log N) time, O(N) memory"
    score = "score"
    compute = staticmethod(lambda uncertainty: uncertainty.astype(np.float64))


def rank_share(values: Array) -> Floats:
    """Return (rank - 1/2) / M of finite values (M,), rank from 1; ties get their mean rank.

    In (0, 1); a constant gives 1/2, and negated values 1 minus the result.

    >>> rank_share(np.array([0.1, 7.0, 7.0, 9.0])).tolist()
    [0.125, 0.5, 0.5, 0.875]
    """
    return (ranks(values) - 0.5) / max(1, len(values))


def gate(pool: Pool, least: float) -> Pool:
    """Return the pool without the candidates in the lowest share ``least`` of quality.

    Ranks include the labelled rows, so the cut is the same in every round.

    Args:
        pool: with quality.
        least: in [0, 1); 0.5 keeps the better half. Equal qualities share a rank, so all rows of a constant quality are
            kept up to 0.5 and none above.

    Raises:
        InputError: if there is no quality, least is out of range, or nothing would be left.
    """
    _check_quality(pool)
    if not 0 <= least < 1:
        raise InputError(f"the gate must be in [0, 1), got {least:g}; 0.3 leaves out the worst three tenths")
    used = np.concatenate([pool.candidates, pool.labelled])
    place = rank_share(pool.array("quality")[used])[: len(pool.candidates)]
    kept = pool.candidates[place >= least]
    if not len(kept):
        raise InputError(
            f"the gate at {least:g} leaves none of {len(pool.candidates)} candidates: their quality is"
            " equal, or the labelled rows are all better; lower the gate"
        )
    return replace(pool, candidates=kept)


def discount(pool: Pool, selector: Ranked) -> Pool:
    """Return the pool with ``uncertainty`` as the rank of a score times the rank of quality, for ``HighestScore``.

    For score e and a = -quality: rank(e) * (1 - rank(a)), ranks among the candidates, since scales differ between
    models. Raises InputError if the pool lacks quality or the fields of the score.
    """
    _check_quality(pool)
    check(pool, 1, selector.needs)
    learnt_last = rank_share(selector.scores(pool)[pool.candidates])
    bad = rank_share(-pool.array("quality")[pool.candidates].astype(np.float64))
    uncertainty = np.zeros(pool.n_rows, np.float64)
    uncertainty[pool.candidates] = learnt_last * (1 - bad)
    return replace(pool, uncertainty=uncertainty)


@dataclass(frozen=True)
class Discounted(Selector):
    """A selector by score, discounted by quality.

    Its notes report how many picks the score alone and quality alone would also have made.

    Args:
        selector: one with a score, such as ``Margin()``.
    """

    selector: Ranked

    needs: ClassVar[tuple[str, ...]] = ("quality",)
    prefix: ClassVar[bool] = False
    cost: ClassVar[str] = "three times the selector's, and O(N log N) time"

    def __post_init__(self) -> None:
        if not isinstance(self.selector, Ranked):
            raise InputError(
                "only a strategy that ranks by a score can be discounted by rank"
                f" (margin, entropy, ...), got {type(self.selector).__name__}; use the gate"
            )
        object.__setattr__(self, "needs", (*self.selector.needs, "quality"))
        object.__setattr__(self, "prefix", self.selector.prefix)

    def _pick(self, pool: Pool, budget: int, seed: int) -> Selection:
        score = self.selector.score
        selection = HighestScore()(discount(pool, self.selector), budget, seed=seed)
        parts = {
            **selection.parts,
            score: self.selector.scores(pool)[selection.rows],
            "quality": pool.array("quality")[selection.rows].astype(np.float64),
        }
        by_quality = replace(pool, uncertainty=pool.array("quality"))
        alone = (self.selector(pool, budget, seed=seed).rows, HighestScore()(by_quality, budget).rows)
        shared = [int(np.isin(selection.rows, rows).sum()) for rows in alone]
        note = f"of {budget} picks, {shared[0]} are also picked by {score} alone and {shared[1]} by quality alone"
        return replace(selection, parts=parts, notes=(*selection.notes, note))


def _check_quality(pool: Pool) -> None:
    if pool.quality is None:
        raise InputError(f"the gate and the discount need {HOW_TO_GET['quality']}")
