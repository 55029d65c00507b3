"""What a run of the controlled experiment found, and how it is printed next to the paper's numbers."""

import math
import statistics
from dataclasses import dataclass, field

# (location RMSE, location rank correlation, kappa RMSE, kappa rank correlation), each mean and standard error
PAPER = {
    ("table 1", "ambiguous"): ("0.04 ± 0.00", "0.99 ± 0.00", "6.15 ± 0.61", "0.82 ± 0.04"),
    ("table 1", "clear"): ("0.05 ± 0.00", "0.98 ± 0.00", "125.02 ± 10.64", "0.64 ± 0.04"),
    ("table 1", "injective"): ("0.05 ± 0.01", "0.98 ± 0.00", "kappa -> inf", "-"),
    ("table 2", "vmf"): ("", "", "", "0.75 (of the spread)"),
    ("table 2", "gaussian"): ("", "", "", "0.70 (of the spread)"),
    ("table 3", "hib"): ("0.18 ± 0.02", "0.82 ± 0.03", "1e14 ± 1e14", "-0.02 ± 0.09"),
    ("table 3", "elk"): ("0.02 ± 0.00", "1.00 ± 0.00", "21.70 ± 0.31", "0.92 ± 0.00"),
    ("table 3", "mcinfonce"): ("0.04 ± 0.00", "0.99 ± 0.00", "6.15 ± 0.61", "0.82 ± 0.04"),
    ("table 8", "independent"): ("0.04 ± 0.00", "0.99 ± 0.00", "6.15 ± 0.61", "0.82 ± 0.04"),
    ("table 8", "shared"): ("0.04 ± 0.00", "0.99 ± 0.00", "7.31 ± 1.53", "0.87 ± 0.02"),
    ("figure 2", "2"): ("0.05 ± 0.00", "1.00 ± 0.00", "2.89 ± 0.56", "0.82 ± 0.05"),
}
NOTES = {
    "table 2": "paper: for laplace the encoder's kappa is about 2000",
    "figure 3": "paper: kappa RMSE 4.55 with 16 samples, rank 0.77 with 4",
    "figure 4": "paper: kappa rank at least 0.6 from 8 to 32",
    "figure 7": "paper: all measures get much worse from 40 on",
}

HEADER = [
    "| | location RMSE (mean error) | rank | kappa RMSE (mean error) | rank | mean kappa (median) | spread (true) |",
    "| --- | --- | --- | --- | --- | --- | --- |",
]


@dataclass(frozen=True)
class Result:
    """How near an encoder came to the truth, on new x.

    Attributes:
        location_rmse: of mu(x1).mu(x2) over pairs.
        location_error: mean absolute, which the authors' code prints as RMSE.
        location_rank: Spearman, of the same.
        kappa_rmse: of kappa(x).
        kappa_error: mean absolute.
        kappa_rank: Spearman.
        kappa_mean: of the encoder.
        kappa_median: of the encoder; what a kappa that runs away is read from.
        spread_rmse: of the mean cosine distance of latents from mu(x).
        spread_mean: of the encoder's.
        spread_true: mean of the generator's.
        seconds: for training.
        posteriors: on a circle, angle and kappa of some and of the encoder's; else none.
    """

    location_rmse: float
    location_error: float
    location_rank: float
    kappa_rmse: float
    kappa_error: float
    kappa_rank: float
    kappa_mean: float
    kappa_median: float
    spread_rmse: float
    spread_mean: float
    spread_true: float
    seconds: float
    posteriors: list[list[float]] = field(default_factory=list)

    def measures(self) -> dict[str, float]:
        """Return each measure by name."""
        return {name: value for name, value in vars(self).items() if name != "posteriors"}


def cell(values: list[float]) -> str:
    """Return mean ± standard error, as the paper prints them; without the error of a single one, "-" for none."""
    if not all(map(math.isfinite, values)):
        return "-"
    mean = statistics.fmean(values)
    form = ".2f" if abs(mean) < 10_000 else ".1e"
    if len(values) == 1:
        return format(mean, form)
    return f"{mean:{form}} ± {statistics.stdev(values) / math.sqrt(len(values)):{form}}"


def rows_of(experiment: str, name: str, ambiguity: str, results: list[Result]) -> list[str]:
    """Return our row of a table or figure, and the paper's below it where it has one."""

    def of(name: str) -> str:
        return cell([getattr(result, name) for result in results])

    ours = [
        f"{of('location_rmse')} ({of('location_error')})",
        of("location_rank"),
        f"{of('kappa_rmse')} ({of('kappa_error')})" if ambiguity != "injective" else "true kappa is inf",
        of("kappa_rank"),
        f"{of('kappa_mean')} ({of('kappa_median')})",
        f"{of('spread_mean')} ({of('spread_true')})",
    ]
    rows = [f"| {name} | " + " | ".join(ours) + " |"]
    if (experiment, name) in PAPER:
        rows.append("| paper | " + " | ".join([*PAPER[experiment, name], "", ""]) + " |")
    return rows
