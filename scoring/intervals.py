"""The interval of a score: its lowest and its highest value over an image and views of it.

Importing this loads no torch and no NumPy; what a view is is in ``scoring/views.py``.
"""

from scoring.errors import InputError

LOWER, UPPER = "_lower", "_upper"  # what the names of the bounds of a column end in
FEWEST, MOST = 2, 256  # views
SIDE = 0.85  # least share of the side that a view shows
BRIGHTNESS = 0.1  # by how much of itself a view is brighter or darker, at most
KIND = f"flip, {SIDE:g} to 1 of the side, brightness {BRIGHTNESS:g}"  # views of another kind give other intervals


def check_views(n: int) -> int:
    """Return a number of views, 0 for none.

    Raises:
        InputError: if it is 1, below 0 or above 256.
    """
    if n and not FEWEST <= n <= MOST:
        raise InputError(
            f"--views takes {FEWEST} to {MOST} views of an image, whose lowest and highest score are the interval, "
            f"or 0 for none; got {n:,}"
        )
    return n


def coverage(n: int) -> float:
    """Return the least probability that an interval of n views holds the score of a fresh view of the image.

    Scores of n views and of a fresh one are exchangeable: it is the lowest of them with a probability of 1 / (n + 1),
    and the highest too. The interval holds the score of the image itself too, which makes it no shorter.

    Source: Vovk, Gammerman & Shafer 2005, "Algorithmic Learning in a Random World", sec. 2.2; order statistics.

    >>> coverage(9), coverage(19)
    (0.8, 0.9)
    """
    return (n - 1) / (n + 1)


def bounds_of(column: str) -> tuple[str, str]:
    """Return the names of the columns that hold the bounds of a column.

    >>> bounds_of("kappa_mcinfonce")
    ('kappa_mcinfonce_lower', 'kappa_mcinfonce_upper')
    """
    return column + LOWER, column + UPPER
