"""The region that contains the match of a query with a given probability: a cap, wide for an ambiguous query."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from curate.columns import EMBEDDING
from curate.tables.digests import redrawn
from curate.tables.needs import Signal
from curate.tables.rows import Rows
from curate.tables.table import Table
from scoring.arrays import Array
from scoring.distributions.credible import Calibration, calibrate
from scoring.distributions.vmf_quantiles import credible_cosine
from scoring.errors import InputError

CALIBRATED = 2000  # rows that regions are calibrated on: a probability of 95 % is right to a percent
FEWEST = 40
BLOCK = 8192


@dataclass(frozen=True)
class Regions:
    """The regions of Q queries.

    Attributes:
        probability: that the match lies inside.
        calibration: on rows with known matches; None if kappa is used as the concentration.
        column: column whose equal values are matches; empty without calibration.
        bounds: minimal cosine of rows in the region, shape (Q,).
    """

    probability: float
    calibration: Calibration | None
    column: str
    bounds: NDArray[np.float64]


def is_concentration(table: Table, column: str) -> bool:
    """Return whether a column is the concentration of a von Mises-Fisher distribution of the table's embedding.

    True if the embedding is the mean direction of the same head, and for tables without a model, whose columns are the
    user's.
    """
    if not column.startswith("kappa_"):
        return False
    model = table.metadata.get("model")
    if not isinstance(model, dict):
        return True
    return table.embedding_column is None and model.get("embedding") == column.removeprefix("kappa_")


def refuse_no_concentration(table: Table, column: str) -> None:
    """Raise InputError for a column that is not a concentration on the sphere and is not calibrated by matches."""
    if not is_concentration(table, column):
        raise InputError(
            f"--credible: {column} of {table.path} is not a concentration around these embeddings and gives no "
            "probability; add --calibrate COLUMN, a column of classes whose rows match one another"
        )


def by_concentration(probability: float, kappa: NDArray[np.float64], dim: int) -> Regions:
    """Return highest-density regions of von Mises-Fisher distributions.

    Args:
        probability: in (0, 1).
        kappa: of each query, shape (Q,), >= 0.
        dim: width of the embeddings.

    Raises:
        InputError: for a negative kappa.

    Source: Kirchhof et al. 2023, arXiv:2302.02865, appendix C.5. As there, a row is inside if its mean direction is,
    independent of its kappa.
    """
    if (kappa < 0).any():
        raise InputError(f"expected concentrations >= 0, got {kappa.min():g}; choose another column with --certainty")
    return Regions(probability, None, "", credible_cosine(probability, torch.from_numpy(kappa), dim).numpy())


def by_matches(
    probability: float,
    rows: Rows,
    among: NDArray[np.bool_],
    asking: NDArray[np.bool_],
    certainty: tuple[NDArray[np.float64], NDArray[np.float64]],
    *,
    column: str,
    seed: int,
) -> Regions:
    """Return regions that contain the nearest match of a row with the given probability.

    Args:
        probability: in (0, 1).
        rows: of the table, with embeddings and the classes of ``column``.
        among: rows that may be found, shape (N,).
        asking: rows that would be answered as queries, shape (N,).
        certainty: of all rows, shape (N,), and of the queries, shape (Q,).
        column: rows with an equal value match.
        seed: of the sampled rows.

    Raises:
        InputError: for a column in which too few rows have a match.
    """
    codes = rows.names[column].codes
    sizes = np.bincount(codes[among & (codes >= 0)], minlength=len(rows.names[column].names))
    usable = among & asking & (codes >= 0) & np.isfinite(certainty[0])
    usable[usable] = sizes[codes[usable]] >= 2
    if usable.sum() < FEWEST:
        raise InputError(
            f"--calibrate {column} needs at least {FEWEST} rows that share their value with another, got "
            f"{int(usable.sum()):,}; choose a column of classes"
        )
    drawn = np.flatnonzero(usable)
    drawn = drawn[np.argsort(redrawn(rows.hashes[drawn], seed, "calibrate"), kind="stable")[:CALIBRATED]]
    ordered = np.sort(certainty[0][among & np.isfinite(certainty[0])])
    fitted = np.arange(len(drawn)) % 2 == 0
    calibration = calibrate(
        nearest_matches(rows, drawn, codes, among), share_below(ordered, certainty[0][drawn]), fitted
    )
    return Regions(
        probability, calibration, column, calibration.bounds(share_below(ordered, certainty[1]), probability)
    )


def share_below(ordered: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of sorted numbers below each value, ties counting half, shape (M,)."""
    both = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    return both / (2 * max(1, len(ordered)))


def nearest_matches(
    rows: Rows, drawn: NDArray[np.int64], codes: NDArray[np.int32], among: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the cosine of each row ``drawn`` (M,) with the nearest other row of its class, shape (M,)."""
    vectors = rows.array(EMBEDDING)
    best = np.full(len(drawn), -1.0)
    by_class = np.flatnonzero(among & (codes >= 0))
    by_class = by_class[np.argsort(codes[by_class], kind="stable")]
    starts = np.searchsorted(codes[by_class], np.arange(codes.max() + 2))
    for code in np.unique(codes[drawn]).tolist():
        at = np.flatnonzero(codes[drawn] == code)
        queries = _units(vectors[drawn[at]])
        members = by_class[starts[code] : starts[code + 1]]
        for start in range(0, len(members), BLOCK):
            some = members[start : start + BLOCK]
            cosine = (queries @ _units(vectors[some]).T).numpy()
            cosine[drawn[at][:, None] == some] = -1
            best[at] = np.maximum(best[at], cosine.max(1))
    return best


def _units(vectors: Array) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.from_numpy(vectors.astype(np.float32)), dim=1)


def words(regions: Regions, signal: Signal, dim: int) -> str:
    """Return a sentence on how regions were computed."""
    if regions.calibration is None:
        return (
            f"a region holds what its query shows with a probability of {regions.probability:.6g} if {signal.column} "
            f"is its concentration in {dim:,} dimensions"
        )
    calibration = regions.calibration
    ratio = np.exp(calibration.model.slope)
    spread = (
        f"the most certain query is {ratio:.1f} times as concentrated as the least certain"
        if ratio > 1.005
        else ("certainty is uninformative here, and all regions are alike")
    )
    return (
        f"a region holds the nearest row of the query's {regions.column} with a probability of "
        f"{regions.probability:.6g}, calibrated on {calibration.n_fitted + len(calibration.levels):,} rows; "
        f"by {signal.column}, {spread}"
    )
