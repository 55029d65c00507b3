"""Notes on classes or clusters that lose a much larger share of rows than average."""

from collections.abc import Mapping, Sequence

from curate.policies.decided import Result

TWICE = 2.0  # loss relative to the average from which a group is reported
LEAST_ROWS = 10  # minimal rows of a group, since small ones may lose much at random
MOST_NAMED = 3


def uneven_words(kind: str, groups: Mapping[str, tuple[int, int]], usual: float) -> list[str]:
    """Return a sentence for each group that loses more than twice the average share, worst first.

    Classes that lose all their rows are in the first sentence.

    Args:
        kind: kind of the groups: ``class``, ``cluster`` or the name of a column.
        groups: name -> number of rows, number of dropped rows.
        usual: dropped share of all rows, in [0, 1].

    >>> uneven_words("class", {"cat": (10, 9), "dog": (90, 21), "eel": (1, 1)}, 0.31)
    ['no row is left of class eel', 'class cat loses 90%, all together 31%']
    """
    is_class = kind != "cluster" and TWICE * usual < 1
    emptied = dict.fromkeys(name for name, (rows, gone) in groups.items() if is_class and 0 < rows == gone)
    lost = {name: gone / rows for name, (rows, gone) in groups.items() if rows >= LEAST_ROWS and name not in emptied}
    worst = sorted((name for name in lost if lost[name] > TWICE * usual), key=lambda name: -lost[name])
    lines = [f"{kind} {name} loses {lost[name]:.0%}, all together {usual:.0%}" for name in worst[:MOST_NAMED]]
    return [*emptied_words(kind, [*emptied]), *lines]


def emptied_words(kind: str, names: Sequence[str]) -> list[str]:
    """Return the sentence that names classes without a kept row; empty if there are none.

    >>> emptied_words("class", ["ant", "bee", "cat", "dog"])
    ['no row is left of class ant, bee, cat and 1 more']
    """
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return [f"no row is left of {kind} {', '.join(names[:MOST_NAMED])}{more}"] if names else []


def uneven_notes(result: Result) -> list[str]:
    """Return notes on classes, or clusters without classes, that lose a much larger share than all rows."""
    rows = sum(rows for rows, _ in result.classes.values())
    lost = {name: (rows, rows - kept) for name, (rows, kept) in result.classes.items()}
    return uneven_words(result.classes_of, lost, sum(gone for _, gone in lost.values()) / max(rows, 1))
