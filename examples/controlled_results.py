"""What a run of the controlled experiment found, and how it is printed next to the paper's numbers."""

import math
import statistics
from dataclasses import dataclass

# (location RMSE, location rank correlation, kappa RMSE, kappa rank correlation), each mean and standard error
PAPER = {
    ("mcinfonce", "ambiguous"): ("0.04 ± 0.00", "0.99 ± 0.00", "6.15 ± 0.61", "0.82 ± 0.04"),
    ("mcinfonce", "clear"): ("0.05 ± 0.00", "0.98 ± 0.00", "125.02 ± 10.64", "0.64 ± 0.04"),
    ("mcinfonce", "injective"): ("0.05 ± 0.01", "0.98 ± 0.00", "kappa -> inf", "-"),
    ("hib", "ambiguous"): ("0.18 ± 0.02", "0.82 ± 0.03", "1e14 ± 1e14", "-0.02 ± 0.09"),
    ("elk", "ambiguous"): ("0.02 ± 0.00", "1.00 ± 0.00", "21.70 ± 0.31", "0.92 ± 0.00"),
}

HEADER = [
    "| | location RMSE (mean error) | rank | kappa RMSE (mean error) | rank | mean kappa (median) |",
    "| --- | --- | --- | --- | --- | --- |",
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
        seconds: for training.
    """

    location_rmse: float
    location_error: float
    location_rank: float
    kappa_rmse: float
    kappa_error: float
    kappa_rank: float
    kappa_mean: float
    kappa_median: float
    seconds: float


def cell(values: list[float]) -> str:
    """Return mean ± standard error, as the paper prints them; without the error of a single one, "-" for none."""
    if not all(map(math.isfinite, values)):
        return "-"
    mean = statistics.fmean(values)
    form = ".2f" if abs(mean) < 10_000 else ".1e"
    if len(values) == 1:
        return format(mean, form)
    return f"{mean:{form}} ± {statistics.stdev(values) / math.sqrt(len(values)):{form}}"


def rows_of(name: str, loss: str, ambiguity: str, results: list[Result]) -> list[str]:
    """Return our row of a table and the paper's below it."""

    def of(name: str) -> str:
        return cell([getattr(result, name) for result in results])

    ours = [
        f"{of('location_rmse')} ({of('location_error')})",
        of("location_rank"),
        f"{of('kappa_rmse')} ({of('kappa_error')})" if ambiguity != "injective" else "true kappa is inf",
        of("kappa_rank"),
        f"{of('kappa_mean')} ({of('kappa_median')})",
    ]
    paper = [*PAPER[loss, ambiguity], ""]
    return [f"| {name} | " + " | ".join(ours) + " |", "| paper | " + " | ".join(paper) + " |"]
