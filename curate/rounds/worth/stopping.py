"""When to stop labelling: advice from what successive rounds have in common, never an action."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.counted import counted
from curate.tables.table import open_table

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


def cohen_kappa(first: Sequence[str], second: Sequence[str]) -> float:
    """Return how far two models agree beyond chance: 1 is always, 0 what their class shares would give.

    Two models that give every row one and the same class agree: 1.

    Source: Cohen 1960; for successive models, Bloodgood and Vijay-Shanker 2009, arXiv:1409.5165.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    names, codes = np.unique([*first, *second], return_inverse=True)
    a, b = codes[: len(first)], codes[len(first) :]
    observed = float((a == b).mean())
    expected = float(np.bincount(a, minlength=len(names)) @ np.bincount(b, minlength=len(names))) / len(a) ** 2
    return 1.0 if expected >= 1 else (observed - expected) / (1 - expected)


def compared(sample: pa.Table, before: Path | None) -> dict[str, Any] | None:
    """Return kappa and the share of changed classes between what two models say; None without an earlier one.

    Args:
        sample: `key` and `predicted` of the rows on which rounds are compared.
        before: the same of the round before; may not be there.
    """
    if before is None or not before.is_file():
        return None
    earlier = open_table(before, require=["key", "predicted"]).read()
    said = dict(zip(earlier["key"].to_pylist(), earlier["predicted"].to_pylist(), strict=True))
    now = dict(zip(sample["key"].to_pylist(), sample["predicted"].to_pylist(), strict=True))
    both = [key for key in now if key in said]
    if not both:
        return None
    ours, theirs = [now[key] for key in both], [said[key] for key in both]
    changed = float(np.mean([a != b for a, b in zip(ours, theirs, strict=True)]))
    return {"n": len(both), "kappa": cohen_kappa(ours, theirs), "changed": changed}


def advise(models: Sequence[Mapping[str, Any]], n_labels: int, budget: int | None, n_left: int) -> list[Advice]:
    """Return what each criterion says.

    Args:
        models: ``against_last``, ``coverage`` and ``entropy`` of every model so far, the earliest first.
        n_labels: labels so far.
        budget: labels that were planned; None for no plan.
        n_left: rows that may still be asked.

    Source: Pullar-Strecker et al. 2022, arXiv:2110.15784, find stabilising predictions and classification change the
    ones to rely on; here both look at a fixed random sample of the pool.
    """
    found = [_stable(models), _unchanged(models), _covered(models), _sure(models)]
    if budget is not None:
        found.append(Advice("budget", n_labels >= budget, f"{n_labels:,} of {counted(budget, 'label')} planned"))
    found.append(Advice("pool", n_left == 0, f"{counted(n_left, 'image is left', 'images are left')} to ask"))
    return found


def _kappas(models: Sequence[Mapping[str, Any]], name: str) -> NDArray[np.float64]:
    values = [model["against_last"][name] for model in models if model.get("against_last")]
    return np.array(values, np.float64)


def _stable(models: Sequence[Mapping[str, Any]]) -> Advice:
    kappas = _kappas(models, "kappa")
    name = "stabilising predictions"
    if len(kappas) < WINDOW:
        return Advice(name, None, f"needs {WINDOW + 1} models, there are {len(models)}")
    last = kappas[-WINDOW:]
    text = (
        f"successive models agree with kappa {', '.join(f'{value:.3f}' for value in last)}; {STABLE} counts as stable"
    )
    return Advice(name, bool((last >= STABLE).all()), text)


def _unchanged(models: Sequence[Mapping[str, Any]]) -> Advice:
    changed = _kappas(models, "changed")
    name = "classification change"
    if not len(changed):
        return Advice(name, None, f"needs 2 models, there are {len(models)}")
    text = f"{changed[-1]:.1%} of predictions changed with the last labels"
    return Advice(name, bool(changed[-1] == 0), text)


def _covered(models: Sequence[Mapping[str, Any]]) -> Advice:
    means = [model["coverage"]["mean"] for model in models if model.get("coverage")]
    name = "exhausted coverage"
    if len(means) < WINDOW + 1:
        return Advice(name, None, f"needs {WINDOW + 1} models, there are {len(models)}")
    falls = [before - after for before, after in zip(means[-WINDOW - 1 : -1], means[-WINDOW:], strict=True)]
    text = (
        f"the mean distance to the nearest label is {means[-1]:.3f}, after {means[-2]:.3f} and at first {means[0]:.3f}"
    )
    return Advice(name, all(fall < FLAT * means[0] for fall in falls), text)


def _sure(models: Sequence[Mapping[str, Any]]) -> Advice:
    name = "mean entropy"
    if not models:
        return Advice(name, None, "needs a model, there is none")
    share = float(models[-1]["entropy"])
    return Advice(name, share < SURE, f"{share:.3f} of an even guess; below {SURE} is sure")
