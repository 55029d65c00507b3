"""What junk costs: how well the columns show it, how much of it is bought, and how much of the harm a guard undoes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from study_data import JUNK, Scored, junk_rows
from study_results import curves_of, half_width, percent

from scoring.metrics.ranking import auroc

LEAST_LOSS = 0.005  # a plain loss below half a point is no whole to take a share of
Results = Mapping[str, Sequence[Mapping[str, Any]]]


def junk_report(pool: Scored, junk: Scored, measured: Results, clean: Results) -> list[str]:
    """Return what is to be said about junk, as lines of Markdown.

    Args:
        pool: rows without junk.
        junk: the junk.
        measured: results by strategy on pools with junk.
        clean: those on the same pools without.
    """
    lines = ["", "How often junk is called less certain than an image that is invalid (AUROC)", ""]
    lines += separation(pool, junk)
    lines += ["", "Share of the labels that went to junk, in percent", "", *share_table(measured)]
    plain = [name for name in measured if " + " not in name and name in clean]
    lines += ["", "Points lost to junk: the same strategy on the pool without junk, less what is reached with it", ""]
    lines += loss_table(measured, clean, plain)
    return [*lines, "", "What follows", "", *junk_advice(measured, clean, plain)]


def separation(pool: Scored, junk: Scored) -> list[str]:
    """Return, for each certainty column, the AUROC of every kind of junk against the pool's own images."""
    good = np.setdiff1d(np.arange(len(pool)), junk_rows(len(pool)))
    kind = junk.columns["kind"]
    lines = ["| | all | " + " | ".join(JUNK) + " |", "| --- |" + " --- |" * (len(JUNK) + 1)]
    for column in pool.certainty_columns:
        sign = -1.0 if column.startswith("unc_") else 1.0
        of_pool, of_junk = sign * pool.columns[column][good], sign * junk.columns[column]
        cells = [_auroc(of_pool, of_junk)] + [_auroc(of_pool, of_junk[kind == number]) for number in range(len(JUNK))]
        lines.append(f"| {column} | " + " | ".join(cells) + " |")
    return lines


def _auroc(good: NDArray, bad: NDArray) -> str:
    target = np.concatenate([np.ones(len(good), bool), np.zeros(len(bad), bool)])
    return f"{auroc(np.concatenate([good, bad]), target):.3f}"


def share_table(measured: Results) -> list[str]:
    """Return the share of junk among the labels by budget."""
    budgets = next(iter(measured.values()))[0]["budgets"]
    lines = ["| labels | " + " | ".join(map(str, budgets)) + " |", "| --- |" + " --- |" * len(budgets)]
    for name, results in measured.items():
        share = np.asarray([result["junk"] for result in results])
        cells = [percent(mean, half) for mean, half in zip(share.mean(0), half_width(share), strict=True)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def loss_table(measured: Results, clean: Results, plain: Sequence[str]) -> list[str]:
    """Return what each strategy loses to junk at every budget, and as a share of what its plain form loses.

    The loss of a guarded strategy counts from the plain one's accuracy without junk, so a guard that costs on a clean
    pool is charged for it. Both are means over the budgets past the first, which is drawn. "less a fifth" is the loss
    with the guard less a fifth of the plain one, seed by seed: below 0 by more than its interval, the guard is shown to
    undo four fifths of the harm.

    Args:
        measured: with junk.
        clean: without.
        plain: strategies without a guard whose results are in both.
    """
    if not plain:
        return ["nothing to hold it against: run the same strategies and seeds without junk first"]
    budgets = next(iter(measured.values()))[0]["budgets"]
    head = ["mean", "of the plain loss", "less a fifth", "guard on a clean pool", *map(str, budgets)]
    lines = ["| | " + " | ".join(head) + " |", "| --- |" + " --- |" * len(head)]
    for base in plain:
        reached = curves_of(clean[base]).accuracy
        by_seed = losses(measured, clean, base, base)[:, 1:].mean(1)
        plain_loss = by_seed.mean()
        for name in (base, *guarded_of(measured, base)):
            loss = losses(measured, clean, base, name)
            mean = loss[:, 1:].mean(1)
            share = f"{100 * mean.mean() / plain_loss:.0f} %" if name != base and plain_loss >= LEAST_LOSS else ""
            cost = over = ""
            if name != base:
                over = percent(float((mean - by_seed / 5).mean()), float(half_width(mean - by_seed / 5)), signed=True)
            if name != base and name in clean:
                gap = (curves_of(clean[name]).accuracy - reached)[:, 1:].mean(1)
                cost = percent(float(gap.mean()), float(half_width(gap)), signed=True)
            cells = [percent(float(mean.mean()), float(half_width(mean)), signed=True), share, over, cost]
            cells += [
                percent(value, half, signed=True) for value, half in zip(loss.mean(0), half_width(loss), strict=True)
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def guarded_of(measured: Results, base: str) -> list[str]:
    """Return the guarded forms of a strategy that were run."""
    return [name for name in measured if name.startswith(f"{base} + ")]


def losses(measured: Results, clean: Results, base: str, name: str) -> NDArray[np.float64]:
    """Return the accuracy of ``base`` without junk less the accuracy of ``name`` with junk, shape (S, B)."""
    return curves_of(clean[base]).accuracy - curves_of(measured[name]).accuracy


def junk_advice(measured: Results, clean: Results, plain: Sequence[str]) -> list[str]:
    """Return, for each plain strategy, which guard undoes most of the harm and which guards do more harm."""
    lines = []
    for base in plain:
        mean = {name: losses(measured, clean, base, name)[:, 1:].mean() for name in (base, *guarded_of(measured, base))}
        if len(mean) == 1:
            continue
        best = min(mean, key=lambda name: float(mean[name]))
        worse = [f"`{name}`" for name in mean if mean[name] > mean[base]]
        said = f"- `{base}` loses {percent(mean[base])} points to junk, `{best}` {percent(mean[best])}"
        said += f" ({100 * mean[best] / mean[base]:.0f} % of it)" if mean[base] >= LEAST_LOSS else ""
        lines.append(f"{said}; worse than no guard: {', '.join(worse) or 'none'}.")
    return lines
