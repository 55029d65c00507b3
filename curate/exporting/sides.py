"""Splits of an export (train, val, test): from a column, or by holding out a share of each class by key hashes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from curate.manifest.folder import SIDE_NAMES
from curate.tables.digests import tie_breaks
from scoring.errors import InputError

SPLIT = "split"  # default split column
SIDES = {**SIDE_NAMES, "dev": "val"}
TRAIN, VAL, TEST = "train", "val", "test"
THEIR_NAMES = {VAL: "validation"}  # splits with another name in `datasets`
HELD_OUT = 0.2  # share of each class held out as val without a split column
SEED = 0


@dataclass(frozen=True)
class Sides:
    """The split of each row.

    Attributes:
        column: with the splits; None if there is none.
        names: of the non-empty splits, in the order train, val, test; empty without splits.
        bounds: largest held-out key hash by class; empty if there is a column.
    """

    column: str | None = None
    names: tuple[str, ...] = ()
    bounds: Mapping[str | None, int] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def by_column(cls, column: str, values: Iterable[str | None]) -> "Sides":
        """Take the splits from a column; InputError for a value that is not a split."""
        sides = list(values)
        strange = [value for value in sides if value not in SIDES]
        if strange:
            raise InputError(
                f"--per {column}: expected train, val or test, got {strange[0]!r}; choose a column of sides, "
                "and the column of classes with --label"
            )
        present = {SIDES[str(value)] for value in sides}
        return cls(column, tuple(side for side in (TRAIN, VAL, TEST) if side in present))

    @classmethod
    def held_out(cls, hashes: Mapping[str | None, NDArray[np.uint64]]) -> "Sides":
        """Hold out a fifth of every class, at least one of two images, by the hashes of keys by class.

        Raises:
            InputError: if no class has two images.
        """
        bounds = {}
        for name, each in hashes.items():
            if len(each) > 1:
                most = max(1, round(HELD_OUT * len(each)))
                bounds[name] = int(np.partition(each, most - 1)[most - 1])
        if not bounds:
            raise InputError(
                "expected two images of some class, one to hold out, got one of each; choose a column of "
                "sides with --per"
            )
        return cls(None, (TRAIN, VAL), bounds)

    def of(self, keys: Sequence[str], classes: Sequence[str | None], values: Sequence[str | None]) -> list[str]:
        """Return the split of each row, by keys, classes and values of the split column; empty text without splits."""
        if not self.names:
            return [""] * len(keys)
        if self.column is not None:
            return [SIDES[str(value)] for value in values]
        hashes = side_hashes(keys).tolist()
        return [
            VAL if hash_ <= self.bounds.get(name, -1) else TRAIN for hash_, name in zip(hashes, classes, strict=True)
        ]


def side_hashes(keys: Iterable[str]) -> NDArray[np.uint64]:
    """Return the hash of each key that decides whether the row is held out."""
    return tie_breaks([key.encode() for key in keys], seed=SEED)
