"""Labels for a reviewer to check: drawn by strata of quality, so that the answers bound how many are wrong."""

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from curate.policies.dedup.quality.audit import allocate
from curate.policies.labels.examine import Examined
from curate.tables.digests import salted
from curate.tables.keys import keys_at
from scoring.errors import InputError

COLUMNS = ("row", "key", "given", "suggested", "quality", "stratum", "size")
SUSPECTED, TRUSTED = "suspected", "trusted"
PARTS = 4  # strata on each side, of equal size
FEWEST, MOST = 10, 1000  # rows to draw: every stratum some, and no more images than a page takes


@dataclass(frozen=True)
class Drawn:
    """A row for a reviewer to look at: its place among all drawn, and the stratum that it represents."""

    place: str
    key: str
    label: str
    suggested: str
    quality: float
    stratum: str
    size: int

    def cells(self) -> list[str]:
        """Return the row of the CSV."""
        quality = f"{self.quality:.4f}"
        return [self.place, self.key, self.label, self.suggested, quality, self.stratum, str(self.size)]


def draw_rows(examined: Examined, n: int) -> list[Drawn]:
    """Draw rows whose label was judged: of every stratum some, half of them by size and half evenly.

    Strata are quarters of the suspected and of the other rows, by quality. Within one it is a simple random sample,
    by a hash of key and seed. Rows come in a random order.

    Raises:
        InputError: if ``n`` is out of range, or no label was judged.
    """
    if not FEWEST <= n <= MOST:
        raise InputError(f"--review draws {FEWEST} to {MOST:,} rows, got {n:,}; 200 is usual")
    judged = ~np.isnan(examined.quality)
    if not judged.any():
        raise InputError("--review: expected labels that could be judged, got none; leave it out")
    suspected = examined.suspected
    strata: list[tuple[str, NDArray[np.int64]]] = []
    for side, inside in ((SUSPECTED, judged & suspected), (TRUSTED, judged & ~suspected)):
        rows = np.flatnonzero(inside)
        rows = rows[np.lexsort((examined.hashes[rows], examined.quality[rows]))]
        strata += [(f"{side} {i}", part) for i, part in enumerate(np.array_split(rows, PARTS), 1) if len(part)]
    ties = salted(examined.hashes, examined.request.seed)
    chosen: list[tuple[int, str, int]] = []
    for (name, rows), count in zip(strata, allocate([len(rows) for _, rows in strata], n), strict=True):
        first = rows[np.argsort(ties[rows], kind="stable")[:count]]
        chosen += [(row, name, len(rows)) for row in first.tolist()]
    chosen.sort(key=lambda chosen_row: hashlib.blake2b(ties[chosen_row[0]].tobytes()).digest())
    at = np.array([row for row, _, _ in chosen])
    keys = keys_at(examined.table, at)
    better = np.where(suspected & (examined.suggested != examined.labels), examined.suggested, examined.rival)[at]
    return [
        Drawn(
            f"{number} of {len(chosen)}",
            str(key),
            examined.classes[examined.labels[row]],
            examined.classes[other],
            float(examined.quality[row]),
            name,
            size,
        )
        for number, ((row, name, size), key, other) in enumerate(zip(chosen, keys, better.tolist(), strict=True), 1)
    ]
