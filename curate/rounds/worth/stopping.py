"""When to stop labelling: advice from what successive rounds have in common, never an action."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from curate.counted import counted
from curate.rounds.worth.measured import Measured

STABLE = 0.99  # kappa of successive models at which predictions count as stable
WINDOW = 3  # rounds in a row that have to be
SURE = 0.05  # mean entropy, over that of an even guess
FLAT = 0.01  # of the first round's distance: less than this gained a round is nothing


@dataclass(frozen=True)
class Advice:
    """One criterion.

    Attributes:
        name: of it.
        reached: whether it says stop; None where it cannot tell yet.
        text: what it saw.
    """

    name: str
    reached: bool | None
    text: str


def advise(models: Sequence[Measured], n_labels: int, budget: int | None, n_left: int) -> list[Advice]:
    """Return what each criterion says.

    Args:
        models: every model so far, the earliest first.
        n_labels: labels so far.
        budget: labels that were planned; None for no plan.
        n_left: rows that may still be asked.

    Source: Pullar-Strecker et al. 2022, arXiv:2110.15784, find stabilising predictions and classification change the
    ones to rely on; here both look at a fixed random sample of the pool.
    """
    advice = [_stable(models), _unchanged(models), _covered(models), _sure(models)]
    if budget is not None:
        advice.append(Advice("budget", n_labels >= budget, f"{n_labels:,} of {counted(budget, 'label')} planned"))
    advice.append(Advice("pool", n_left == 0, f"{counted(n_left, 'image is left', 'images are left')} to ask"))
    return advice


def _stable(models: Sequence[Measured]) -> Advice:
    kappas = np.array([model.against_last.kappa for model in models if model.against_last])
    name = "stabilising predictions"
    if len(kappas) < WINDOW:
        return Advice(name, None, f"needs {WINDOW + 1} models, there are {len(models)}")
    last = kappas[-WINDOW:]
    text = (
        f"successive models agree with kappa {', '.join(f'{value:.3f}' for value in last)}; {STABLE} counts as stable"
    )
    return Advice(name, bool((last >= STABLE).all()), text)


def _unchanged(models: Sequence[Measured]) -> Advice:
    changed = [model.against_last.changed for model in models if model.against_last]
    name = "classification change"
    if not changed:
        return Advice(name, None, f"needs 2 models, there are {len(models)}")
    text = f"{changed[-1]:.1%} of predictions changed with the last labels"
    return Advice(name, changed[-1] == 0, text)


def _covered(models: Sequence[Measured]) -> Advice:
    means = [model.coverage.mean for model in models if model.coverage]
    name = "exhausted coverage"
    if len(means) < WINDOW + 1:
        return Advice(name, None, f"needs {WINDOW + 1} models, there are {len(models)}")
    falls = [before - after for before, after in zip(means[-WINDOW - 1 : -1], means[-WINDOW:], strict=True)]
    text = (
        f"the mean distance to the nearest label is {means[-1]:.3f}, after {means[-2]:.3f} and at first {means[0]:.3f}"
    )
    return Advice(name, all(fall < FLAT * means[0] for fall in falls), text)


def _sure(models: Sequence[Measured]) -> Advice:
    name = "mean entropy"
    if not models:
        return Advice(name, None, "needs a model, there is none")
    share = models[-1].entropy
    return Advice(name, share < SURE, f"{share:.3f} of an even guess; below {SURE} is sure")
