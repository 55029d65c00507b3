"""Which classes or clusters a cut takes far more of than of the rest: rare is not bad."""

from collections.abc import Mapping

TWICE = 2.0  # times what all lose: a group that loses more is named
LEAST_ROWS = 10  # of a group: fewer may lose as much by luck
MOST_NAMED = 3


def uneven_words(kind: str, groups: Mapping[str, tuple[int, int]], usual: float) -> list[str]:
    """Return a sentence for each group that loses more than twice what all lose, the worst first.

    Args:
        kind: ``class``, whose rows can be judged apart, or ``cluster``, which no column names.
        groups: name -> rows, and how many of them go.
        usual: share of all rows that go, in [0, 1].

    >>> uneven_words("class", {"cat": (10, 9), "dog": (90, 21), "eel": (1, 1)}, 0.31)
    ['class cat loses 90%, all together 31%: rare is not bad; see --per']
    """
    lost = {name: gone / rows for name, (rows, gone) in groups.items() if rows >= LEAST_ROWS}
    worst = sorted((name for name in lost if lost[name] > TWICE * usual), key=lambda name: -lost[name])
    what = "; see --per" if kind == "class" else ""
    return [
        f"{kind} {name} loses {lost[name]:.0%}, all together {usual:.0%}: rare is not bad{what}"
        for name in worst[:MOST_NAMED]
    ]
