"""Size of a part: shards of a given size."""

import re
from dataclasses import dataclass

from scoring.errors import InputError

PART_ROWS = 1024  # for formats whose parts are not files
SHARD_ROWS = 10_000
SHARD_BYTES = 1_000_000_000
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
N_BYTES = "n_bytes"


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
