"""The tables of the study of metric learning: means over seeds with intervals, and differences seed by seed."""

from collections.abc import Mapping, Sequence

import numpy as np
from study_results import half_width, percent

Results = Mapping[str, Sequence[Mapping[str, float]]]

RETRIEVAL = ("R@1", "R@2", "R@4", "mAP@R", "NMI", "R@1, L2")
CERTAINTY = ("R-AUROC", "blur, Spearman", "blur, shorter", "crop, Spearman", "crop, shorter")
QUALITY = ("sharpness", "contrast", "brightness", "entropy", "colourfulness", "noise")
PAIRS = (  # what is compared with what, seed by seed
    ("ProxyNCA++", "frozen embedding"),
    ("ProxyNCA++", "frozen features"),
    ("EL-nivMF", "ProxyNCA++"),
    ("EL-nivMF", "frozen features"),
    ("PANC + EL-nivMF", "ProxyAnchor"),
    ("EL-nivMF", "nivMF"),
    ("EL-nivMF", "EL-vMF"),
    ("nivMF", "ProxyNCA++"),
    ("EL-vMF", "ProxyNCA++"),
    ("EL-nivMF", "EL-nivMF, as published"),
)


def tables(measured: Results) -> list[list[str]]:
    """Return retrieval, differences, certainty and quality, each as lines of Markdown, or nothing."""
    certain = {name: results for name, results in measured.items() if "R-AUROC" in results[0]}
    return [
        table(measured, RETRIEVAL),
        differences(measured),
        table(certain, CERTAINTY),
        table(certain, tuple(f"quality {measure}" for measure in QUALITY)),
    ]


def table(measured: Results, measures: Sequence[str]) -> list[str]:
    """Return the means of measures over seeds, in percent, ± half of the 95 % interval."""
    lines = ["| variant | " + " | ".join(measures) + " |", "| --- |" + " --- |" * len(measures)]
    for name, results in measured.items():
        cells = [_cell([result[measure] for result in results]) for measure in measures]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines if measured else []


def differences(measured: Results) -> list[str]:
    """Return one variant less another, seed by seed, for every measure of retrieval by cosine."""
    measures = RETRIEVAL[:-1]
    lines = ["| difference | " + " | ".join(measures) + " |", "| --- |" + " --- |" * len(measures)]
    for first, second in PAIRS:
        if first not in measured or second not in measured:
            continue
        cells = []
        for measure in measures:
            gaps = [a[measure] - b[measure] for a, b in zip(measured[first], measured[second], strict=True)]
            cells.append(_cell(gaps, signed=True))
        lines.append(f"| {first} less {second} | " + " | ".join(cells) + " |")
    return lines if len(lines) > 2 else []


def _cell(values: Sequence[float], *, signed: bool = False) -> str:
    known = np.array(values, np.float64)
    return percent(float(known.mean()), float(half_width(known[:, None])[0]), signed=signed)
