"""Advice on when to stop labelling, from successive models; nothing is stopped automatically."""

from collections.abc import Sequence
from dataclasses import dataclass

from curate.rounds.measures.lift import ModelQuality

STABLE = 0.99  # kappa of successive models at which predictions count as stable
WINDOW = 3  # number of consecutive stable rounds
SURE = 0.05  # mean entropy, over the entropy of an even guess
STABILISING, CHANGE, COVERAGE, ENTROPY = (
    "stabilising predictions",
    "classification change",
    "exhausted coverage",
    "mean entropy",
)
BUDGET, POOL = "budget", "pool"
FLAT = 0.01  # minimal decrease per round, relative to the first round's distance


@dataclass(frozen=True)
class Advice:
    """The advice of one criterion.

    Attributes:
        name: one of the names below.
        reached: whether to stop; None if undecided.
        seen: the numbers used, by name; ``models`` and ``needed`` if there are too few models.
    """

    name: str
    reached: bool | None
    seen: dict[str, float | list[float]]


def advise(models: Sequence[ModelQuality], n_labels: int, budget: int | None, n_left: int) -> list[Advice]:
    """Return the advice of each criterion.

    Args:
        models: all models so far, earliest first.
        n_labels: number of labels so far.
        budget: planned number of labels; None for none.
        n_left: number of remaining candidates.

    Source: Pullar-Strecker et al. 2022, arXiv:2110.15784, find stabilising predictions and classification change the
    most reliable criteria; here both use a fixed random sample of the pool.
    """
    advice = [_stable(models), _unchanged(models), _covered(models), _sure(models)]
    if budget is not None:
        advice.append(Advice(BUDGET, n_labels >= budget, {"labels": n_labels, "planned": budget}))
    advice.append(Advice(POOL, n_left == 0, {"left": n_left}))
    return advice


def _too_early(name: str, models: Sequence[ModelQuality], needed: int) -> Advice:
    return Advice(name, None, {"models": len(models), "needed": needed})


def _stable(models: Sequence[ModelQuality]) -> Advice:
    kappas = [model.against_last.kappa for model in models if model.against_last]
    if len(kappas) < WINDOW:
        return _too_early(STABILISING, models, WINDOW + 1)
    last = kappas[-WINDOW:]
    return Advice(STABILISING, all(kappa >= STABLE for kappa in last), {"kappas": last, "stable": STABLE})


def _unchanged(models: Sequence[ModelQuality]) -> Advice:
    changed = [model.against_last.changed for model in models if model.against_last]
    if not changed:
        return _too_early(CHANGE, models, 2)
    return Advice(CHANGE, changed[-1] == 0, {"changed": changed[-1]})


def _covered(models: Sequence[ModelQuality]) -> Advice:
    means = [model.coverage.mean for model in models if model.coverage]
    if len(means) < WINDOW + 1:
        return _too_early(COVERAGE, models, WINDOW + 1)
    falls = [before - after for before, after in zip(means[-WINDOW - 1 : -1], means[-WINDOW:], strict=True)]
    seen: dict[str, float | list[float]] = {"first": means[0], "before": means[-2], "now": means[-1]}
    return Advice(COVERAGE, all(fall < FLAT * means[0] for fall in falls), seen)


def _sure(models: Sequence[ModelQuality]) -> Advice:
    if not models:
        return _too_early(ENTROPY, models, 1)
    share = models[-1].entropy
    return Advice(ENTROPY, share < SURE, {"entropy": share, "sure": SURE})
