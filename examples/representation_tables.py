"""The tables that the study of methods prints."""

import argparse
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from representation_measures import certainty, main_columns
from representation_transfer import percentage
from study_results import half_width, percent

from curate.sheets.chart import Curve, Panel, draw_chart
from scoring.errors import InputError
from scoring.metrics.ranking import spearman

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RANDOM = "random"


def early(variant: str, epoch: int) -> str:
    """Return the name under which a variant is kept as it was after an epoch."""
    return f"{variant} after {epoch}"


def table(results_of: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Return one line a variant and column: accuracies and AUROCs in percent, mean ± half the 95 % interval."""
    probes = {
        "linear": "linear",
        "mlp": "MLP",
        "knn": "kNN",
        "gmm": "GMM",
        "inner": "linear, features",
        "inner knn": "kNN, features",
        "style": "style",
    }
    measured = [
        probe
        for probe in probes
        if any(probe in result["measures"] for results in results_of.values() for result in results)
    ]
    head = [*(probes[probe] for probe in measured), "column", "R-AUROC", "AUROC linear", "AUROC kNN", "s"]
    lines = ["| method | " + " | ".join(head) + " |", "| --- |" + " --- |" * len(head)]
    for name, results in results_of.items():
        accuracies = [cell(results, measure) for measure in measured]
        columns = main_columns(list(results[0]["columns"])) or [""]
        seconds = f"{np.mean([result['seconds'] for result in results]):.0f}"
        for at, column in enumerate(columns):
            accuracy = [cell(results, f"{column} {what}") for what in ("R-AUROC", "AUROC linear", "AUROC knn")]
            before = [name, *accuracies] if at == 0 else [""] * (1 + len(measured))
            lines.append("| " + " | ".join([*before, column, *accuracy, seconds if at == 0 else ""]) + " |")
    return lines


def elsewhere(measured: Mapping[str, list[dict[str, Any]]], study: argparse.Namespace) -> list[str]:
    """Return one line a variant: accuracies on other sets and with few labels; and how each differs from the first.

    The first is the first that was trained; a difference is one seed by seed, with half its interval.
    """
    names = [f"{name} {what}" for name in study.transfer for what in ("linear", "knn")]
    names += [f"{percentage(share)} {what}" for share in study.labels for what in ("linear", "tuned")]
    lines = ["| method | " + " | ".join(names) + " |", "| --- |" + " --- |" * len(names)]
    for method, results in measured.items():
        lines.append(f"| {method} | " + " | ".join(cell(results, name) for name in names) + " |")
    trained = [name for name in measured if name.split()[0] != RANDOM]
    for method in trained[1:]:
        cells = []
        for name in names:
            gap = [
                result["measures"][name] - other["measures"][name]
                for result, other in zip(measured[method], measured[trained[0]], strict=True)
            ]
            cells.append(percent(float(np.mean(gap)), float(half_width(np.array(gap))), signed=True))
        lines.append(f"| {method} less {trained[0]} | " + " | ".join(cells) + " |")
    return lines


def cell(results: Sequence[Mapping[str, Any]], name: str) -> str:
    """Return the mean of a measure over seeds with half its interval; empty where it was not measured."""
    if name not in results[0]["measures"]:
        return ""
    values = np.array([result["measures"][name] for result in results])
    return percent(float(values.mean()), float(half_width(values)))


def at_epochs(known: Mapping[str, list[dict[str, Any]]], study: argparse.Namespace, name: str) -> list[Any]:
    """Return what is known of a variant after each epoch of ``--at``, and at the end."""
    return [known.get(kept) for kept in (*(early(name, epoch) for epoch in study.at), name)]


def curves(known: Mapping[str, list[dict[str, Any]]], study: argparse.Namespace) -> list[str]:
    """Return probes, the cosine of views and the mean of main columns after some epochs of one run of each variant."""
    lines: list[str] = []
    kept_by = {name: at_epochs(known, study, name) for name in study.methods if name.split()[0] != RANDOM}
    kept_by = {name: kept for name, kept in kept_by.items() if kept[-1]}
    columns = list(
        dict.fromkeys(each for kept in kept_by.values() for each in main_columns(list(kept[-1][0]["columns"])))
    )
    measures = {"linear": "linear", "kNN": "knn", "cosine of views, median,": "cosine"}
    for what, measure in (*measures.items(), *((f"mean {column}", column) for column in columns)):
        rows = []
        for name, kept in kept_by.items():
            if measure in kept[-1][0]["measures"]:
                cells = [cell(results, measure) if results else "" for results in kept]
            elif measure in kept[-1][0]["columns"]:
                cells = [column_mean(results, measure) if results else "" for results in kept]
            else:
                continue
            rows.append(f"| {name} | " + " | ".join(cells) + " |")
        if rows:
            lines += [f"| {what} after epoch | " + " | ".join(map(str, [*study.at, study.epochs])) + " |"]
            lines += ["| --- |" + " --- |" * (len(study.at) + 1), *rows, ""]
    return lines[:-1]


def column_mean(results: Sequence[Mapping[str, Any]], column: str) -> str:
    """Return the mean of a column over images and seeds, with half the interval over seeds."""
    means = np.array([np.mean(result["columns"][column]) for result in results])
    half = float(half_width(means))
    return f"{means.mean():.4g}" + ("" if np.isnan(half) else f" ±{half:.3g}")


def course_chart(known: Mapping[str, list[dict[str, Any]]], study: argparse.Namespace) -> "Figure":
    """Draw the vote of neighbours over epochs, means over seeds, and the cosine of views, from quartile to quartile.

    Raises:
        InputError: if nothing that was trained is there.
    """
    votes, cosines, epochs = [], [], [*study.at, study.epochs]
    for name in study.methods:
        kept = at_epochs(known, study, name)
        if name.split()[0] == RANDOM or not all(kept):
            continue
        by = {
            measure: [
                float(np.mean([result["measures"].get(measure, np.nan) for result in results])) for results in kept
            ]
            for measure in ("knn", "cosine", "cosine low", "cosine high")
        }
        votes.append(Curve(name, epochs, by["knn"]))
        if not np.isnan(by["cosine"]).any():
            cosines.append(Curve(name, epochs, by["cosine"], by["cosine low"], by["cosine high"]))
    if not votes:
        raise InputError("--chart draws variants all of whose seeds have run, got none; leave --print out")
    panels = [Panel(votes, "epoch", "accuracy of neighbours", percent=True)]
    return draw_chart([*panels, *([Panel(cosines, "epoch", "cosine of prediction and target")] if cosines else [])])


def pairs_table(results_of: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Return a line a variant: how close the nearest images of one class and of other classes are."""
    names = {"same cosine": "of the class", "other cosine": "of other classes", "pairs": "AUROC between"}
    lines = ["| cosine of nearest images | " + " | ".join(names.values()) + " |", "| --- |" + " --- |" * len(names)]
    for name, kept in results_of.items():
        lines.append(f"| {name} | " + " | ".join(cell(kept, each) for each in names) + " |")
    return lines


def pairs_chart(results_of: Mapping[str, list[dict[str, Any]]]) -> "Figure":
    """Draw the cosines of the nearest images of one class and of others: figure 9 of UMM's paper, a panel a variant.

    Raises:
        InputError: if a result is of before they were measured.
    """
    if not results_of or not all("pairs" in result for kept in results_of.values() for result in kept):
        raise InputError("--pairs draws variants all of whose seeds were measured for it; take another --work")
    panels = []
    for name, kept in results_of.items():
        curves = []
        for kind, title in (("same", "of the class"), ("other", "of other classes")):
            counts = np.sum([result["pairs"][kind] for result in kept], axis=0)
            ends = np.linspace(-1, 1, len(counts) + 1)
            curves.append(Curve(title, ((ends[1:] + ends[:-1]) / 2).tolist(), (counts / counts.sum()).tolist()))
        panels.append(Panel(curves, "cosine", "share of pairs", dots=False, zero=True, legend_title=name))
    return draw_chart(panels)


def correlations(results_of: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Return how every two columns go together, as certainties; means over seeds, each with its own two models.

    Of ranks, and of values as they are (Pearson's), which an infinite one leaves without a number.
    """
    named = [
        (f"{name}: {column}", [certainty(column, result["columns"][column]) for result in results])
        for name, results in results_of.items()
        for column in main_columns(list(results[0]["columns"]))
    ]
    if len(named) < 2:
        return []
    lines = ["| certainty by | and by | rank correlation | correlation |", "| --- | --- | --- | --- |"]
    for (first, left), (other, right) in combinations(named, 2):
        cells = []
        for measured in (spearman, pearson):
            values = np.array([measured(a, b) for a, b in zip(left, right, strict=True)])
            half = float(half_width(values))
            cells.append(f"{values.mean():.3f}" + ("" if np.isnan(half) else f" ±{half:.3f}"))
        lines.append(f"| {first} | {other} | {cells[0]} | {cells[1]} |")
    return lines


def pearson(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the correlation of two columns; NaN where a value is not finite, or all are alike."""
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        return float("nan")
    a, b = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b / scale) if scale > 0 else float("nan")
