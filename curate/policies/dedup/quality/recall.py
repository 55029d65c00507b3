"""Recall of the search: edited copies of the user's own images, searched for like any other."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from curate.columns import STATUS
from scoring.edits import EDITS
from scoring.metrics.proportions import wilson

if TYPE_CHECKING:
    from curate.policies.dedup.quality.planted import Planted

LEVEL = 0.95


class Hits(NamedTuple):
    """The copies that one finder detected.

    Attributes:
        finder: its name.
        copy: position of a copy, shape (L,), int64.
        row: of the table, that it is the same as, shape (L,), int64.
    """

    finder: str
    copy: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass(frozen=True)
class KindRecall:
    """How many copies of one kind of edit were found.

    Attributes:
        name: of the edit.
        strength: what was done, in words.
        n: copies.
        detected: of them, by any finder.
        low: Wilson's lower bound of the share found, at 95 %.
        high: the same, the upper one.
        by_finder: finder -> how many it found.
    """

    name: str
    strength: str
    n: int
    detected: int
    low: float
    high: float
    by_finder: dict[str, int]


@dataclass(frozen=True)
class RecallReport:
    """The planted copies, and those that were found again.

    Attributes:
        kinds: one for each edit, in the order of ``EDITS``.
        overall: over all kinds alike; its interval allows for copies of one image being found or missed together.
        images: that were edited.
        elsewhere: copies that were linked, but with none that their original is the same as.
        failed: copies that could not be scored; they count as missed.
        unread: key -> why an image that was drawn could not be used.
        shrunk: images that were made smaller before they were edited.
        seed: of the draw.
    """

    kinds: list[KindRecall]
    overall: KindRecall
    images: int
    elsewhere: int
    failed: int
    unread: dict[str, str]
    shrunk: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


def count_recalled(
    planted: "Planted",
    hits: Sequence[Hits],
    kinds: Sequence[str],
    *,
    groups: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> RecallReport:
    """Count which planted copies were found, by kind of edit and by finder.

    A copy is found if it is linked with its original, or with a row of its original's group; so the search may leave
    out rows that were dropped.

    Args:
        planted: copies of I images, each edited in the same K ways: ``kinds``.
        hits: of each finder; a finder may come more than once.
        kinds: names of edits, in the order of each image's copies.
        groups: of each row of the table, shape (N,), int64; -1 for a row that is in none.
        seed: for the report.
    """
    from curate.policies.dedup.quality.planted import EDIT, ORIGINAL

    original = planted.copies.column(ORIGINAL).to_numpy()
    shape = (len(planted.rows), len(kinds))
    if len(original) != shape[0] * shape[1] or planted.copies.column(EDIT).to_pylist() != list(kinds) * shape[0]:
        raise ValueError(f"expected {shape[1]} copies of each of {shape[0]} images in the order of the edits")
    by_finder: dict[str, NDArray[np.bool_]] = {}
    linked = np.zeros(len(original), bool)
    for finder, copy, row in hits:
        linked[copy] = True
        right = row == original[copy]
        if groups is not None:
            right |= (groups[row] == groups[original[copy]]) & (groups[row] >= 0)
        mine = by_finder.setdefault(finder, np.zeros(len(original), bool))
        mine[copy[right]] = True
    is_linked = np.any(list(by_finder.values()), axis=0) if by_finder else np.zeros(len(original), bool)
    grid = is_linked.reshape(shape)
    finders = {name: mine.reshape(shape) for name, mine in by_finder.items()}
    each = [
        _kind(name, EDITS[name].strength, grid[:, [at]], {f: mine[:, [at]] for f, mine in finders.items()})
        for at, name in enumerate(kinds)
    ]
    statuses = Counter(planted.copies.column(STATUS).to_pylist())
    return RecallReport(
        kinds=each,
        overall=_kind("all", "every edit alike", grid, finders),
        images=shape[0],
        elsewhere=int((linked & ~is_linked).sum()),
        failed=sum(n for status, n in statuses.items() if status != "ok"),
        unread=planted.unread,
        shrunk=planted.shrunk,
        seed=seed,
    )


def _kind(name: str, strength: str, grid: NDArray[np.bool_], finders: dict[str, NDArray[np.bool_]]) -> KindRecall:
    n, n_linked = grid.size, int(grid.sum())
    effective = effective_size(grid)
    interval = wilson(n_linked / n * effective, effective, LEVEL)
    by_finder = {finder: int(mine.sum()) for finder, mine in finders.items()}
    return KindRecall(name, strength, n, n_linked, interval.low, interval.high, by_finder)


def effective_size(grid: NDArray[np.bool_]) -> float:
    """Return the effective sample size of dependent copies.

    Copies of one image are found or missed together, so I x K of them count as fewer: as many as would give the mean
    the variance that it has between images. Never fewer than I nor more than I x K.

    Args:
        grid: whether found, shape (I, K): images by kinds of edit.

    Source: the design effect of Kish 1965, "Survey Sampling", with images as clusters.

    >>> effective_size(np.array([[True, True], [False, False], [True, True]]))
    3.0
    """
    n_images, n_kinds = grid.shape
    share = float(grid.mean())
    spread = float(grid.mean(1).var(ddof=1)) / n_images if n_images > 1 else 0.0
    if n_kinds == 1 or share in (0.0, 1.0):
        return float(n_images)
    if spread == 0.0:
        return float(n_images * n_kinds) if n_images > 1 else 1.0
    return float(np.clip(share * (1 - share) / spread, n_images, n_images * n_kinds))
