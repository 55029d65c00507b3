"""The dropping order of images, in which every part of a dataset, however small, loses the same share."""

import numpy as np
from numpy.typing import NDArray

from scoring.relative.rule import PICTURE
from scoring.search.kmeans import assign

LINED_UP = 4_096  # rows that are clustered; of more a draw is, and the others join the nearest of it


def in_turns(
    local: NDArray[np.floating], fitted: NDArray[np.floating], units: NDArray[np.float32], *, seed: int = 0
) -> NDArray[np.float32]:
    """Return when each row is dropped, highest first: junk, then the highest ``local`` among similar rows.

    Rows stand in a line, similar ones next to each other. Of every two neighbours in the line the higher one is dropped
    earlier, of every four the highest, and so on, as in a knock-out tournament; rows that win as many rounds take turns
    along the line. So whatever share is dropped, each stretch of the line loses that share, and loses its highest rows.

    Args:
        local: of N rows, higher is less certain, shape (N,).
        fitted: their score: at most .5 for an image, above for junk; shape (N,).
        units: centred rows of length 1, shape (N, D).
        seed: of the draw from more than 4,096 rows.

    Returns:
        Shape (N,): equally spaced in [0, .5] for images; ``fitted`` for junk.
    """
    image = np.flatnonzero(~(fitted > PICTURE))
    line = image[line_up(units[image], seed=seed)]
    order = []
    while len(line) > 1:
        rounds = _rounds_won(local[line])
        turn = _reversed_bits(np.arange(len(line)) >> rounds)
        winners = np.lexsort((turn, -rounds))[: np.count_nonzero(rounds)]
        order.append(line[winners])
        line = line[rounds == 0]
    dropped = np.concatenate([*order, line])
    out = np.array(fitted, np.float32)
    out[dropped] = PICTURE * (1 - (np.arange(len(dropped)) + 0.5) / max(len(dropped), 1))
    return out


def line_up(units: NDArray[np.float32], *, seed: int = 0) -> NDArray[np.int64]:
    """Return the rows in an order with similar ones next to each other: leaves of Ward's clustering, shape (N,).

    Source: Ward 1963, "Hierarchical grouping to optimize an objective function".

    Args:
        units: rows of length 1, shape (N, D).
        seed: of the draw from more than 4,096 rows.
    """
    from scipy.cluster.hierarchy import leaves_list, linkage  # type: ignore[import-untyped]

    if len(units) < 3:
        return np.arange(len(units))
    if len(units) <= LINED_UP:
        return np.asarray(leaves_list(linkage(units, "ward")), np.int64)
    drawn = np.sort(np.random.default_rng(seed).permutation(len(units))[:LINED_UP])
    leaves = line_up(units[drawn])
    return np.argsort(np.argsort(leaves)[assign(units, units[drawn])[0][:, 0]], kind="stable")


def _rounds_won(values: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return how many rounds of a knock-out tournament of neighbours each of N >= 1 values wins, shape (N,).

    The last of an odd number wins its round unopposed.
    """
    won, left = np.zeros(len(values), np.int64), np.arange(len(values))
    while len(left) > 1:
        pairs = left[: len(left) // 2 * 2].reshape(-1, 2)
        winners = pairs[np.arange(len(pairs)), values[pairs].argmax(1)]
        left = np.concatenate([winners, left[2 * len(pairs) :]])
        won[left] += 1
    return won


def _reversed_bits(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return numbers with their bits in reverse: in the order of these 0, 1, 2, ... spread evenly (van der Corput)."""
    out, rest = np.zeros_like(numbers), numbers.copy()
    for _ in range(int(numbers.max()).bit_length()):
        out, rest = 2 * out + rest % 2, rest // 2
    return out
