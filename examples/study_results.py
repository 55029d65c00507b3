"""What replays found: kept a file each, so that a study that was cut off goes on, and printed as tables."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.rounds.simulation.replay import Curves, lift

# 97.5 % quantile of Student's t by degrees of freedom
T_QUANTILES = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


def half_width(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return half the 95 % interval of the mean over the first axis, by Student's t; NaN for one value."""
    freedom = len(values) - 1
    if freedom < 1:
        return np.full(values.shape[1:], np.nan)
    quantile = T_QUANTILES[freedom - 1] if freedom <= len(T_QUANTILES) else 1.96 + 2.4 / freedom
    return np.asarray(quantile * values.std(0, ddof=1) / math.sqrt(len(values)))


class Ledger:
    """A folder with one small file for each run of a study; a run that is there is not run again."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]) -> None:
        self.folder, self.settings = folder, dict(settings)
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, name: str, seed: int) -> Path:
        """Return where the result of a strategy and seed is, or goes."""
        identity = json.dumps({**self.settings, "name": name, "seed": seed}, sort_keys=True)
        plain = "".join(letter if letter.isalnum() else "-" for letter in name)
        return self.folder / f"{plain}-{seed}-{hashlib.sha256(identity.encode()).hexdigest()[:8]}.json"

    def of(self, name: str, seed: int, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return a result; made, and kept, if it is missing."""
        path = self.path(name, seed)
        if not path.exists():
            text = json.dumps({"name": name, "seed": seed, **self.settings, **make()})
            part = path.with_suffix(f".{id(self)}.part")
            part.write_text(text)
            part.replace(path)
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def known(self, names: Sequence[str], seeds: Sequence[int]) -> dict[str, list[dict[str, Any]]]:
        """Return the results that are there, of each name all seeds; a name that lacks a seed is left out."""
        results: dict[str, list[dict[str, Any]]] = {}
        for name in names:
            paths = [self.path(name, seed) for seed in seeds]
            if all(path.exists() for path in paths):
                results[name] = [json.loads(path.read_text()) for path in paths]
        return results


def curves_of(results: Sequence[Mapping[str, Any]]) -> Curves:
    """Return the learning curves of a strategy's results, one a seed."""
    budgets = np.asarray(results[0]["budgets"], np.int64)
    accuracy = np.asarray([result["accuracy"] for result in results], np.float64)
    return Curves(budgets, tuple(result["seed"] for result in results), accuracy, np.zeros((len(results), 0), np.int64))


def percent(value: float, half: float | None = None, *, signed: bool = False) -> str:
    """Return a share as percent, with half its interval.

    >>> percent(0.5123, 0.011), percent(0.02, signed=True), percent(float("nan"))
    ('51.2 ±1.1', '+2.0', '')
    """
    if math.isnan(value):
        return ""
    text = f"{100 * value:{'+' if signed else ''}.1f}"
    return text if half is None or math.isnan(half) else f"{text} ±{100 * half:.1f}"


def accuracy_table(measured: Mapping[str, Curves]) -> list[str]:
    """Return accuracy by budget, mean ± half the 95 % interval over seeds, as lines of Markdown."""
    budgets = next(iter(measured.values())).budgets
    lines = ["| labels | " + " | ".join(map(str, budgets)) + " |", "| --- |" + " --- |" * len(budgets)]
    for name, curves in measured.items():
        half = half_width(curves.accuracy)
        cells = [percent(mean, wide) for mean, wide in zip(curves.mean, half, strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


@dataclass(frozen=True)
class Against:
    """A strategy against random, seed by seed, in shares of 1.

    Attributes:
        difference: of accuracy at each budget, shape (B,).
        half: half of its 95 % interval, shape (B,).
        low: mean difference over the budgets to 100, and half its interval.
        high: the same over the budgets beyond.
        area: of the areas under the curves, linear in labels, and half its interval.
        p: of the areas being alike, two-sided by sign flips.
    """

    difference: NDArray[np.float64]
    half: NDArray[np.float64]
    low: tuple[float, float]
    high: tuple[float, float]
    area: tuple[float, float]
    p: float


LOW_REGIME = 100  # labels up to which the regime is called low


def against(curves: Curves, baseline: Curves) -> Against:
    """Compare two strategies that were replayed on the same pools with the same seeds."""
    gap = curves.accuracy - baseline.accuracy
    compared = lift(curves, baseline)

    def mean_of(columns: NDArray[np.bool_]) -> tuple[float, float]:
        if not columns.any():
            return float("nan"), float("nan")
        means = gap[:, columns].mean(1)
        return float(means.mean()), float(half_width(means))

    is_low = curves.budgets <= LOW_REGIME
    areas = curves.area - baseline.area
    return Against(
        gap.mean(0),
        half_width(gap),
        mean_of(is_low),
        mean_of(~is_low),
        (float(areas.mean()), float(half_width(areas))),
        compared.p,
    )


def against_table(measured: Mapping[str, Curves], baseline: str = "random") -> list[str]:
    """Return every strategy's difference to a baseline, paired by seed, as lines of Markdown."""
    budgets = measured[baseline].budgets
    head = ["to 100", "beyond", "area", "p", *map(str, budgets)]
    lines = [f"| less {baseline} | " + " | ".join(head) + " |", "| --- |" + " --- |" * len(head)]
    for name, curves in measured.items():
        if name == baseline:
            continue
        comparison = against(curves, measured[baseline])
        cells = [
            percent(*comparison.low, signed=True),
            percent(*comparison.high, signed=True),
            percent(*comparison.area, signed=True),
        ]
        cells += [f"{comparison.p:.2f}"]
        cells += [
            percent(mean, half, signed=True) for mean, half in zip(comparison.difference, comparison.half, strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def advice(measured: Mapping[str, Curves], baseline: str = "random", default: str = "auto") -> list[str]:
    """Return what to use when, derived from the numbers alone, a sentence a line.

    A strategy is safe where it is at no budget past the first worse than random by more than the interval. In each
    regime the best is named, with those whose paired interval to it includes 0.
    """
    budgets = measured[baseline].budgets
    lines = []
    for what, columns in ((f"To {LOW_REGIME} labels", budgets <= LOW_REGIME), ("Beyond", budgets > LOW_REGIME)):
        if not columns.any():
            continue
        heights = {name: curves.accuracy[:, columns].mean(1) for name, curves in measured.items()}
        best = max(heights, key=lambda name: float(heights[name].mean()))
        alike = []
        for name, height in heights.items():
            gap = heights[best] - height
            if name != best and gap.mean() <= half_width(gap):
                alike.append(name)
        over = heights[best] - heights[baseline]
        beside = (
            f"; within the interval of it: {', '.join(alike)}" if alike else "; nothing is within the interval of it"
        )
        gained = percent(float(over.mean()), float(half_width(over)), signed=True)
        lines.append(f"- {what} `{best}` is best, {gained} points over {baseline}{beside}.")
    lines.append(_harm(measured, baseline))
    if default in measured:
        lines.append(_default(measured, baseline, default))
    return lines


def _harm(measured: Mapping[str, Curves], baseline: str) -> str:
    worse = []
    for name, curves in measured.items():
        if name == baseline:
            continue
        comparison = against(curves, measured[baseline])
        bad = np.flatnonzero(comparison.difference + comparison.half < 0)
        if len(bad):
            at = bad[int(comparison.difference[bad].argmin())]
            lost = percent(comparison.difference[at], comparison.half[at], signed=True)
            worse.append(f"`{name}` ({lost} at {curves.budgets[at]})")
    return f"- Below {baseline} by more than the interval somewhere: {', '.join(worse) or 'none'}."


def _default(measured: Mapping[str, Curves], baseline: str, default: str) -> str:
    comparison, budgets = against(measured[default], measured[baseline]), measured[default].budgets
    clear = [
        str(budget) for budget, low in zip(budgets, comparison.difference - comparison.half, strict=True) if low > 0
    ]
    lost = [
        str(budget) for budget, high in zip(budgets, comparison.difference + comparison.half, strict=True) if high < 0
    ]
    return (
        f"- `{default}` beats {baseline} by more than the interval at {', '.join(clear) or 'no budget'},"
        f" and loses by more than it at {', '.join(lost) or 'none'}."
    )
