"""The digests of images in a table, compared with the bytes of the images again."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from curate.columns import URI
from curate.manifest.schemes import scheme_of
from curate.tables.images import CHANGED, SHA256, Images, drawn_rows, require_images
from curate.tables.table import Table
from scoring.errors import InputError

ALL = "all"
N_NAMED = 10
BLOCK = 16_384  # rows at a time


@dataclass
class PixelCheck:
    """The result of reading images again.

    Attributes:
        table: that holds the digests.
        n_rows: rows of it that have one.
        n_compared: images that were looked for.
        n_changed: images that have other bytes.
        n_lost: images that cannot be read.
        named: the first of both: key and what is wrong.
    """

    table: str
    n_rows: int = 0
    n_compared: int = 0
    n_changed: int = 0
    n_lost: int = 0
    named: list[tuple[str, str]] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether every image that was looked for has the bytes that were scored."""
        return not self.n_changed and not self.n_lost

    def to_json(self) -> dict[str, Any]:
        """Return everything as plain JSON."""
        return {"identical": self.identical, **asdict(self)}


def amount(text: str | int) -> int | None:
    """Return how many rows are meant; None for all.

    Raises:
        InputError: for anything but ``all`` and whole numbers from 1 on.
    """
    if text == ALL:
        return None
    try:
        n = int(text)
    except ValueError:
        n = 0
    if n < 1:
        raise InputError(
            f"--pixels takes all, or a number of rows of at least 1, got {text!r}; for example --pixels 1000"
        )
    return n


def check_pixels(
    table: Table, n: int | None, *, seed: int, source: str | None = None, roots: Sequence[Path] = ()
) -> PixelCheck:
    """Read the images of a table, or of some rows by the seed, and compare their SHA-256 with what is noted.

    Args:
        table: with ``key`` and ``sha256``.
        n: rows drawn by a hash of their keys; None for all.
        seed: of the rows.
        source: what was scored, where the table names no files.
        roots: where there are any, no image outside of them is read.

    Raises:
        InputError: for a table without digests or images, or an image outside of the roots.
    """
    table.require([SHA256])
    require_images(table, source)
    known = _rows(table)
    rows = known if n is None else np.sort(drawn_rows(table, n, seed=seed))
    check = PixelCheck(str(table.path), len(known), len(rows))
    for start in range(0, len(rows), BLOCK):
        block = rows[start : start + BLOCK]
        if roots and source is None:
            _refuse_outside(table, block, roots)
        for image in Images.of(table, block, source=source, partial=True).read(block.tolist()):
            if not image.problem:
                continue
            changed = image.problem.startswith(CHANGED)
            check.n_changed, check.n_lost = check.n_changed + changed, check.n_lost + (not changed)
            if len(check.named) < N_NAMED:
                check.named.append((image.key, image.problem))
    return check


def _rows(table: Table) -> NDArray[np.int64]:
    """The rows that have a digest."""
    rows, start = [np.zeros(0, np.int64)], 0
    for batch in table.batches([SHA256]):
        rows.append(start + np.flatnonzero(batch.column(0).is_valid().to_numpy(zero_copy_only=False)))
        start += batch.num_rows
    return np.concatenate(rows)


def _refuse_outside(table: Table, rows: NDArray[np.int64], roots: Sequence[Path]) -> None:
    real = [root.resolve() for root in roots]
    for uri in table.take(rows, [URI]).column(0).to_pylist() if URI in table.schema.names else ():
        if uri is None:
            continue
        path = Path(uri.partition(".tar::")[0] + ".tar" if ".tar::" in uri else uri)
        if scheme_of(uri) is not None or not any(path.resolve().is_relative_to(root) for root in real):
            raise InputError(
                f"{table.path} holds a path outside of --root ({uri}), which is not read; if the images "
                "moved, pass their folder as --source"
            )
