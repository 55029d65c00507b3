"""How uncertain images are scored as they get worse, strength by strength."""

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import is_less_certain
from curate.evaluation.curves import ENDS
from curate.evaluation.degraded import ORIGINAL, Degraded
from curate.evaluation.measures import Floats
from curate.statistics.degradations import LADDERS
from scoring.metrics.resampling import percentiles, resample


def strength_curves(degraded: Degraded, *, repeats: int, seed: int) -> dict[str, Any]:
    """Return how uncertain images are scored at every strength of every change, as plain JSON values.

    Scores have their own units, so each value is a rank among the images as they are: the share of these that are
    more certain, equal ones counted by half. Its mean is 0.5 at strength 0. Bands are 95 % intervals of resamples of
    images.

    Args:
        degraded: with ``strengths``.
        repeats: resamples.
        seed: of the resampling.

    Returns:
        Kind -> unit; strengths, the first 0; and by column value, low and high at each of them.

    Source: Figure 6 of Kirchhof et al. 2024, "Pretrained Visual Uncertainties", which shows the scores themselves.
    """
    base = degraded.scores[ORIGINAL]
    columns = list(base)
    curves: dict[str, Any] = {}
    for kind, steps in degraded.strengths.items():
        ranks = np.stack([[shares_among(base[name], step[name], name) for name in columns] for step in (base, *steps)])
        flat = ranks.reshape(-1, len(degraded.rows))  # (strengths x columns, N)
        samples = resample(partial(_means, flat), flat.shape[1], repeats=repeats, seed=seed)
        bounds = (flat.mean(1), *percentiles(samples))
        by_end = dict(zip(ENDS, (each.reshape(ranks.shape[:2]) for each in bounds), strict=True))
        curves[kind] = {
            "unit": LADDERS[kind].unit,
            "strength": [0.0, *LADDERS[kind].strengths],
            "columns": {
                name: {end: values[:, at].tolist() for end, values in by_end.items()} for at, name in enumerate(columns)
            },
        }
    return curves


def rank_among(base: Floats, values: Floats, name: str) -> Floats:
    """Return the share of the images as they are that are more certain, equal ones by half, shape (N,).

    Args:
        base: of the images as they are, shape (M,).
        values: of images, shape (N,).
        name: of the column, which says its direction.
    """
    sign = 1.0 if is_less_certain(name) else -1.0
    ordered = np.sort(sign * base)
    both = np.searchsorted(ordered, sign * values, "left") + np.searchsorted(ordered, sign * values, "right")
    return both / (2 * len(ordered))


def shares_among(base: Floats, values: Floats, name: str) -> Floats:
    """Return for each image what it adds to the mean share of images as they are that are more certain, shape (N,).

    Its mean equals the mean of ``rank_among``. An image counts twice: by how many are more certain than its version,
    and, as one of the images as they are, by how many versions it is more certain than; so the spread of these
    values, and of their differences between strengths, holds the random variation of both draws. For versions that
    are the images themselves it is one half for all.

    Args:
        base: of the images as they are, shape (N,).
        values: of a version of each, shape (N,).
        name: of the column, which says its direction.

    Source: DeLong, DeLong and Clarke-Pearson 1988, the structural components of the area under a curve; of pairs.
    """
    above = rank_among(base, values, name)
    below = 1 - rank_among(values, base, name)
    return np.asarray(above + below - above.mean())


def _means(flat: Floats, counts: NDArray[np.int64]) -> Floats:
    """Return the means over images that are drawn so often, shape (K,), of values of shape (K, N)."""
    return np.asarray(flat @ counts / counts.sum())
