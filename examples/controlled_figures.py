"""The numbers and figures 2, 4 and 7 of the controlled experiment, from what `controlled_experiment.py --out` wrote.

    python examples/controlled_figures.py results.json [more.json] --csv numbers.csv -o figures/

Writes a row a setting, mean and standard error over seeds, and draws the files `controlled-dims.svg` (figures 4 and 7)
and `controlled-circle.svg` (figure 2: posteriors on a circle, and the encoder's after a rotation).
"""

import argparse
import csv
import json
import math
import statistics
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from curate.sheets.style import FAINT, colour, drawing, name_axes, new_axes, new_figure, save_chart, set_legend
from scoring.distributions import vmf

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ByName = dict[str, list[dict[str, Any]]]
TITLES = {"figure 4": "dimension of the encoder (D = 10)", "figure 7": "dimension of both"}
REACH = 1.8  # of a panel around the circle, whose radius is 1
MEASURES = {"location_rank": "mu", "kappa_rank": "kappa"}


def merged(paths: list[Path]) -> dict[str, ByName]:
    """Return the results of all files by table or figure, and setting; later files come after."""
    results_of: dict[str, ByName] = {}
    for path in paths:
        for experiment, by_name in json.loads(path.read_text())["results"].items():
            results_of.setdefault(experiment, {}).update(by_name)
    return results_of


def mean_and_error(results: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """Return mean and standard error of a measure; the error of a single seed is NaN."""
    values = [math.nan if (value := result[name]) is None else value for result in results]
    error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return statistics.fmean(values), error


def write_numbers(results_of: dict[str, ByName], path: Path) -> None:
    """Write a row a setting with mean and standard error of each measure."""
    measures = [name for name in next(iter(next(iter(results_of.values())).values()))[0] if name != "posteriors"]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["experiment", "setting", "seeds", *[name.replace("_", " ") for name in measures]])
        for experiment, by_name in results_of.items():
            for name, results in by_name.items():
                cells = ["{:.3g}±{:.2g}".format(*mean_and_error(results, measure)) for measure in measures]
                writer.writerow([experiment, name, len(results), *cells])


@drawing()
def dims_figure(results_of: dict[str, ByName]) -> "Figure":
    """Draw the rank correlations of mu and kappa over the dimension."""
    shown = [figure for figure in TITLES if figure in results_of]
    drawn = new_figure(58, 89.0 * len(shown))
    for axes, figure in zip(new_axes(drawn, len(shown), len(shown)), shown, strict=True):
        by_dim = dict(sorted((int(name), results) for name, results in results_of[figure].items()))
        for number, (measure, label) in enumerate(MEASURES.items()):
            means, errors = zip(*(mean_and_error(results, measure) for results in by_dim.values()), strict=True)
            axes.errorbar(list(by_dim), means, errors, marker="o", color=colour(number), label=label, capsize=2)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(by_dim), [str(dim) for dim in by_dim])
        axes.set_ylim(min(0.0, axes.get_ylim()[0]), 1.05)
        name_axes(axes, TITLES[figure], "rank correlation with the truth")
        set_legend(axes, 89.0)
    return drawn


@drawing()
def circle_figure(posteriors: list[list[float]]) -> "Figure":
    """Draw the density of each posterior outwards from a circle: the generator's on the left, the encoder's right."""
    drawn = new_figure(62, 120.0)
    around = torch.linspace(-math.pi, math.pi, 241)
    for at, (axes, title) in enumerate(zip(new_axes(drawn, 2, 2), ("generator", "encoder, rotated"), strict=True)):
        axes.plot(around.cos(), around.sin(), color=FAINT)
        for number, row in enumerate(posteriors):
            angle, kappa = row[2 * at : 2 * at + 2]
            density = vmf.log_prob_at_cosine((around - angle).cos(), torch.tensor(kappa), 2).exp()
            radius = 1 + 0.2 * density
            x, y = radius * around.cos(), radius * around.sin()
            axes.fill([*x, *around.cos().flip(0)], [*y, *around.sin().flip(0)], color=colour(number), alpha=0.4, lw=0)
            label = f"{kappa:.0f}"
            axes.plot(math.cos(angle), math.sin(angle), "o", color=colour(number), label=label)
        axes.set(aspect="equal", xlim=(-REACH, REACH), ylim=(-REACH, REACH))
        axes.set_axis_off()
        set_legend(axes, 60.0, title=f"{title}: kappa")
    return drawn


def main() -> None:
    """Write what the files hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--csv", type=Path, required=True, help="file for the numbers")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder for the figures")
    a = parser.parse_args()
    results_of = merged(a.results)
    if not results_of:
        parser.error(f"expected results, got none in {a.results[0]}; let a setting of the run end first")
    write_numbers(results_of, a.csv)
    a.out.mkdir(parents=True, exist_ok=True)
    if set(TITLES) & set(results_of):
        save_chart(dims_figure(results_of), a.out / "controlled-dims.svg", overwrite=True)
    for results in results_of.get("figure 2", {}).values():
        save_chart(circle_figure(results[0]["posteriors"]), a.out / "controlled-circle.svg", overwrite=True)


if __name__ == "__main__":
    main()
