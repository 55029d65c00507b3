"""Figures 4 and 5 of the URL benchmark: which other measure shows how good an uncertainty is downstream.

    python examples/url_figures.py docs/studies/data/url-world.csv docs/studies/data/url-upstream.csv -o url.svg

Reads the tables that `examples/url.py` prints, one a backbone. A point is an estimator, with the 95 % intervals of its
measures; hollow points need no training and are not in the rank correlations.
"""

import argparse
import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from curate.sheets.style import colour, drawing, name_axes, new_axes, new_figure, save_chart, set_legend
from scoring.metrics.ranking import spearman

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DOWNSTREAM = "R-AUROC downstream"
AGAINST = {  # column -> what it is, with the rank correlation of the paper
    "seen classes": "upstream (paper .09)",
    "crop": "crops (paper .54)",
    "votes": "votes (paper .80)",
}
UNTRAINED = "chance level"  # the first of the baselines, which end a table
WIDTH, HEIGHT = 183.0, 66.0


@dataclass(frozen=True)
class Estimators:
    """The estimators of one backbone.

    Attributes:
        name: of the backbone.
        trained: whether each was trained, shape (N,), bool.
        measures: column -> value and half the interval of each, shape (N, 2); NaN where it was not measured.
    """

    name: str
    trained: NDArray[np.bool_]
    measures: dict[str, NDArray[np.float64]]

    def correlation(self, column: str) -> float:
        """Return the rank correlation of a measure with the R-AUROC downstream over trained estimators."""
        return spearman(self.measures[column][self.trained, 0], self.measures[DOWNSTREAM][self.trained, 0])


def read(path: Path) -> Estimators:
    """Return the estimators of a table, named by the end of the file's name."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    first = [row["estimator"] for row in rows].index(UNTRAINED)
    measures = {name: np.array([_numbers(row[name]) for row in rows]) for name in (DOWNSTREAM, *AGAINST)}
    return Estimators(path.stem.rpartition("-")[2], np.arange(len(rows)) < first, measures)


def _numbers(cell: str) -> tuple[float, float]:
    """Return value and half the interval.

    >>> _numbers(".560±.018")
    (0.56, 0.018)
    """
    value, _, half = cell.partition("±")
    return (float(value), float(half)) if half else (np.nan, np.nan)


@drawing()
def figure(backbones: Sequence[Estimators]) -> "Figure":
    """Draw the R-AUROC downstream over each other measure."""
    drawn = new_figure(HEIGHT, WIDTH)
    for axes, (column, what) in zip(new_axes(drawn, len(AGAINST), len(AGAINST)), AGAINST.items(), strict=True):
        for number, backbone in enumerate(backbones):
            (x, wide), (y, high) = backbone.measures[column].T, backbone.measures[DOWNSTREAM].T
            tint, trained = colour(number), backbone.trained
            axes.errorbar(x, y, high, wide, fmt="none", ecolor=tint, elinewidth=0.4, alpha=0.5)
            axes.plot(x[~trained], y[~trained], "o", color=tint, markerfacecolor="white", markersize=3)
            label = f"{backbone.name}: {backbone.correlation(column):.2f}"
            axes.plot(x[trained], y[trained], "o", color=tint, markersize=3, label=label)
        name_axes(axes, what, "R-AUROC downstream")
        set_legend(axes, WIDTH / len(AGAINST), title="rank correlation")
    return drawn


def main() -> None:
    """Draw the figure of the tables that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    save_chart(figure([read(path) for path in arguments.tables]), arguments.out, overwrite=True)


if __name__ == "__main__":
    main()
