"""Edited copies of images of the table, scored as the table was."""

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
from PIL import Image

from curate.columns import KEY, URI
from curate.engines.settings import ScoreSettings
from curate.engines.shard import start_shard
from curate.tables.images import Encoded, Images, in_order
from scoring.edits import edited, shrunk
from scoring.errors import InputError
from scoring.images import DecodedImage, DecodeError, decode, decode_rgb
from scoring.images.raster import DecodeOptions
from scoring.runner import BATCH_SIZE, Runner

ORIGINAL, EDIT = "original", "edit"  # columns of the planted copies in addition to a scored table's
_BLOCK = 8  # originals whose copies are in memory at a time


@dataclass
class Planted:
    """Edited copies of some rows.

    Attributes:
        copies: the copies as rows of a scored table, with ``original`` (row of the table, int64) and ``edit`` (name),
            sorted by original and edit.
        rows: the copied rows, in order.
        unread: key -> why a sampled image could not be used and was replaced.
        shrunk: number of originals that were reduced before editing.
    """

    copies: pa.Table
    rows: list[int]
    unread: dict[str, str] = field(default_factory=dict)
    shrunk: int = 0


def plant(
    originals: Images,
    rows: Sequence[int],
    copier: "Copier",
    *,
    n: int,
    kinds: Sequence[str],
    report: Callable[[int, int], None] = lambda done, total: None,
) -> Planted:
    """Apply every edit to the first n rows with a readable image, and score the copies.

    Args:
        originals: the images.
        rows: candidates in the order drawn.
        copier: makes the copies.
        n: number of originals; fewer if not enough can be read.
        kinds: names of edits.
        report: called with the numbers of finished and all originals.

    Raises:
        InputError: if none can be read.
    """
    parts: list[pa.Table] = []
    used_rows: list[int] = []
    unread: dict[str, str] = {}
    n_shrunk, waiting = 0, list(rows)
    with ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="edit") as pool:
        while waiting and len(used_rows) < n:
            step = min(_BLOCK, n - len(used_rows))
            block, waiting = waiting[:step], waiting[step:]
            jobs: list[Job] = []
            read = in_order(pool, copier.original, originals.read(block), _BLOCK, lambda each: len(each.data or b""))
            for original in read:
                if isinstance(original.image, str):
                    unread[original.key] = original.image
                    continue
                used_rows.append(original.row)
                n_shrunk += original.shrunk
                jobs += [(original, original.image, name) for name in kinds]
            if jobs:
                parts.append(copier.scored(jobs, list(pool.map(copier.copy, jobs))))
            report(len(used_rows), n)
    if not parts:
        why = next(iter(unread.items()), ("", ""))
        raise InputError(
            f"expected images to edit, and none of the {len(unread):,} sampled can be read "
            f"(such as {why[0]!r}: {why[1]}); pass what was scored as --source"
        )
    return Planted(pa.concat_tables(parts), used_rows, unread, n_shrunk)


@dataclass(frozen=True)
class _Original:
    """An image to edit, or why there is none; whether it was reduced."""

    row: int
    key: str
    image: Image.Image | str
    shrunk: bool = False


Job = tuple[_Original, Image.Image, str]


@dataclass(frozen=True)
class Copier:
    """Makes edited copies, and their rows of a scored table.

    Attributes:
        runner: the model.
        settings: as the table was scored.
        seed: of random edits.
    """

    runner: Runner
    settings: ScoreSettings
    seed: int

    def original(self, encoded: Encoded) -> _Original:
        """Return the image to edit, and release its encoded bytes."""
        row, key, data = encoded.row, encoded.key, encoded.data
        if data is None:
            return _Original(row, key, encoded.problem)
        most, truncated = self.settings.max_pixels, self.settings.allow_truncated
        try:
            pixels = decode_rgb(data, max_pixels=most, allow_truncated=truncated, white=encoded.white)
        except DecodeError as error:
            return _Original(row, key, f"{error.status}: {error}")
        return _Original(row, key, *shrunk(pixels))

    def copy(self, job: Job) -> DecodedImage:
        """Return a copy, decoded as when scoring."""
        original, source, name = job
        text = original.key.encode("utf-8", "surrogateescape")
        of_key = int.from_bytes(hashlib.blake2b(text, digest_size=6).digest())
        data = edited(name, source, of_key + self.seed)
        return decode(data, self.runner.model.spec.preprocessing, DecodeOptions(self.settings.max_pixels))

    def scored(self, jobs: Sequence[Job], copies: Sequence[DecodedImage]) -> pa.Table:
        """Return one row of a scored table per copy."""
        columns = {
            KEY: pa.array([f"{original.key}#{name}" for original, _, name in jobs], pa.string()),
            URI: pa.nulls(len(jobs), pa.string()),
            ORIGINAL: pa.array([original.row for original, _, _ in jobs], pa.int64()),
            EDIT: pa.array([name for _, _, name in jobs], pa.string()),
        }
        batch_size = self.settings.batch_size or BATCH_SIZE[self.runner.device.type]
        return start_shard(pa.table(columns), iter(copies), self.runner, self.settings, batch_size)()
