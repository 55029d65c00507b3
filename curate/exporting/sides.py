"""Splits of an export, from a column or by a share of each class, and shards of a given size."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from curate.manifest.names import SIDE_NAMES
from curate.tables.digests import tie_breaks
from scoring.errors import InputError

SPLIT = "split"  # default split column
SIDES = {**SIDE_NAMES, "dev": "val"}
TRAIN, VAL, TEST = "train", "val", "test"
THEIR_NAMES = {VAL: "validation"}  # splits with another name in `datasets`
HELD_OUT = 0.2  # share of each class held out as val without a split column
SEED = 0
PART_ROWS = 1024  # for formats whose parts are not files
SHARD_ROWS = 10_000
SHARD_BYTES = 1_000_000_000
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
N_BYTES = "n_bytes"


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


@dataclass(frozen=True)
class Shard:
    """The maximum number of rows, and of bytes of images (0: any), of a part; a larger image is a part of one row."""

    n_rows: int = PART_ROWS
    n_bytes: int = 0

    @classmethod
    def of(cls, text: str | None, *, is_sized: bool) -> "Shard":
        """Return the requested size: a number of images, or of bytes with a unit.

        Args:
            text: as typed; None for 10,000 images, and at most 1 GB if sizes are known.
            is_sized: whether the table has the size of each image, and images are not re-encoded.

        >>> Shard.of("5000", is_sized=False).n_rows, Shard.of("500MB", is_sized=True).n_bytes
        (5000, 500000000)
        """
        if text is None:
            return cls(SHARD_ROWS, SHARD_BYTES if is_sized else 0)
        match = re.fullmatch(r"(\d{1,12})\s*(KB|MB|GB|KiB|MiB|GiB)?", text.strip())
        if match is None or not int(match[1]):
            raise InputError(f"--shard: expected a number of images, or of bytes such as 500MB, got {text!r}")
        if match[2] is None:
            return cls(int(match[1]))
        if not is_sized:
            raise InputError(
                f"--shard {text}: the size of each image is unknown: the table has no column {N_BYTES}, or "
                "--resize or --encode change it; pass a number of images"
            )
        return cls(1 << 40, int(match[1]) * UNITS[match[2]])
