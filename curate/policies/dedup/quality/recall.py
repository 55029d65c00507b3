"""How many copies would the search miss? Edited copies of the user's own images, searched for like any other."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from curate.columns import STATUS
from curate.tables.images import Images, drawn_rows
from curate.tables.table import Table
from scoring.edits import EDITS
from scoring.errors import InputError
from scoring.lookup import lookup
from scoring.metrics.proportions import wilson

if TYPE_CHECKING:
    from curate.policies.dedup.quality.planted import Digest, Planted

LEVEL = 0.95
_SPARE = 3  # times as many rows are drawn as wanted, for images that cannot be read


class Hits(NamedTuple):
    """What one finder says of the copies.

    Attributes:
        finder: its name.
        copy: position of a copy, shape (L,), int64.
        row: of the table, that it is the same as, shape (L,), int64.
    """

    finder: str
    copy: NDArray[np.int64]
    row: NDArray[np.int64]


Search = Callable[[pa.Table], Iterable[Hits]]


@dataclass(frozen=True)
class RecallSettings:
    """What to plant.

    Attributes:
        n: images that are edited, >= 1.
        kinds: names of edits; all where empty.
        seed: of the images that are drawn, and of what is random in the edits.
        device: that scores the copies.
    """

    n: int = 200
    kinds: tuple[str, ...] = ()
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        if not 1 <= self.n <= 100_000:
            raise InputError(f"recall is estimated on 1 to 100,000 images, got {self.n:,}; 200 is usual")
        if not 0 <= self.seed < 2**31:
            raise InputError(f"--seed must be between 0 and 2^31 - 1, got {self.seed}; choose another")
        for name in self.kinds:
            lookup(EDITS, name, kind="edit")


@dataclass(frozen=True)
class KindRecall:
    """How many copies of one kind of edit were found.

    Attributes:
        name: of the edit.
        strength: what was done, in words.
        n: copies.
        n_found: of them, by any finder.
        low: Wilson's lower bound of the share found, at 95 %.
        high: the same, the upper one.
        by_finder: finder -> how many it found.
    """

    name: str
    strength: str
    n: int
    n_found: int
    low: float
    high: float
    by_finder: dict[str, int]


@dataclass(frozen=True)
class RecallReport:
    """What was planted and what was found again.

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
        kinds = [_kind_json(kind) for kind in self.kinds]
        return asdict(self) | {"kinds": kinds, "overall": _kind_json(self.overall)}


def estimate_recall(
    table: Table,
    search: Search,
    *,
    source: str | None = None,
    model: str | Path | None = None,
    groups: NDArray[np.int64] | None = None,
    settings: RecallSettings | None = None,
    digest: "Digest | None" = None,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> RecallReport:
    """Plant edited copies of rows of a table, search for them, and count how many are found.

    A copy is found if it is linked with its original, or with a row of its original's group; so the search may leave
    out rows that were dropped. Nothing is written.

    Args:
        table: that ``curate score`` wrote.
        search: copies, as rows of a scored table -> what each finder links them with, at the thresholds of the run.
        source: what was scored, where the table holds no paths.
        model: that scored the table; by default the shipped one that it names.
        groups: of each row of the table, shape (N,), int64; -1 for a row that is in none.
        settings: how many images, which edits.
        digest: of a decoded image from its bytes, for a finder that compares pixels.
        report: called with images done, of all.

    Raises:
        InputError: if the images or the model cannot be had, or no image can be read.
    """
    from curate.policies.dedup.quality.planted import Copier, plant  # runs the model
    from curate.retrieval.scorer import scorer_of

    settings = settings or RecallSettings()
    runner, scoring = scorer_of(table, model=model, device=settings.device)
    rows = drawn_rows(table, _SPARE * settings.n, seed=settings.seed)
    if not len(rows):
        raise InputError(f"expected rows in {table.path} whose image was scored, got none; score the images first")
    originals = Images.of(table, rows, source=source)
    kinds = [name for name in EDITS if not settings.kinds or name in settings.kinds]
    copier = Copier(runner, scoring, settings.seed, digest)
    planted = plant(originals, rows.tolist(), copier, n=settings.n, kinds=kinds, report=report)
    return count_recalled(planted, list(search(planted.copies)), kinds, groups=groups, seed=settings.seed)


def count_recalled(
    planted: "Planted",
    hits: Sequence[Hits],
    kinds: Sequence[str],
    *,
    groups: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> RecallReport:
    """Count which planted copies were found, by kind of edit and by finder.

    Args:
        planted: copies of I images, each edited in the same K ways: ``kinds``.
        hits: of each finder; a finder may come more than once.
        kinds: names of edits, in the order of each image's copies.
        groups: see ``estimate_recall``.
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


def _kind_json(kind: KindRecall) -> dict[str, Any]:
    """Return a kind as receipts hold it."""
    return {{"n_found": "found"}.get(name, name): value for name, value in asdict(kind).items()}


def _kind(name: str, strength: str, grid: NDArray[np.bool_], finders: dict[str, NDArray[np.bool_]]) -> KindRecall:
    n, n_linked = grid.size, int(grid.sum())
    effective = effective_size(grid)
    interval = wilson(n_linked / n * effective, effective, LEVEL)
    by_finder = {finder: int(mine.sum()) for finder, mine in finders.items()}
    return KindRecall(name, strength, n, n_linked, interval.low, interval.high, by_finder)


def effective_size(grid: NDArray[np.bool_]) -> float:
    """Return how many independent copies show as much of the share found as these do.

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
