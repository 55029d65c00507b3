"""A sample of the user's images, drawn by key, in small tables that can be scored repeatedly."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.manifest import Manifest, ReadError, SourceOptions, open_manifest
from curate.tables.digests import key_array, plain, tie_breaks
from curate.tables.images import Images, drawn_rows, readers_in_order
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb

FEWEST = 20  # images that say anything
COMPANY = 1_000  # images of a source that the tested ones are among
IMAGE = "image"
STEP = 65_536  # rows of a source looked at together


@dataclass(frozen=True)
class ImageSample:
    """N images with their bytes in their own table.

    Attributes:
        path: of a Parquet file with ``key``, ``image`` and the user's own columns; a row group each.
        keys: of the rows, text.
        unread: drawn, but not to be read or decoded.
        white: the value of 16-bit images that is white; None to find it in them.
    """

    path: Path
    keys: list[str]
    unread: int
    white: int | None = None

    def data(self) -> Iterator[bytes]:
        """Yield the bytes of each."""
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=1, columns=[IMAGE]):
                yield batch.column(0)[0].as_py()

    def first(self, n: int) -> pa.Table:
        """Return the first n rows, or all if there are fewer."""
        with pq.ParquetFile(self.path) as file:
            return file.read_row_groups(range(min(n, file.num_row_groups)))

    def keywords(self) -> dict[str, Any]:
        """Return the keyword arguments with which ``score`` reads it."""
        return {"key": KEY, "image_column": IMAGE, "white": self.white}


def of_table(table: Table, n: int, folder: Path, *, seed: int, source: str | None) -> ImageSample:
    """Draw up to n images of a scored table, at most half of them.

    Raises:
        InputError: if fewer than 20 can be read, or it is not known where they are.
    """
    rows = drawn_rows(table, 2 * n, seed=seed)
    rows = np.sort(rows[: min(n, -(-len(rows) // 2))])
    images = Images.of(table, rows, source=source, partial=True)
    if len(rows) and not images.named:
        raise InputError(f"{table.path} holds no path to any image; pass what was scored as --source")
    with _Writer(folder / "sample.parquet") as writer:
        for image in images.read(rows.tolist()):
            writer.add(image.key, image.data, problem=f"{image.key}: {image.problem}")
    return _enough(writer.sample(), f"{table.path}{writer.problem}")


def of_source(
    source: Any, n: int, folder: Path, *, seed: int, options: SourceOptions, announce: Callable[[str], None]
) -> tuple[ImageSample, ImageSample]:
    """Draw up to n images of a source, at most half of them, and up to 1,000 others.

    The same keys are drawn in whatever order the source has them.

    Returns:
        The images to test, and all that were drawn, these among them.

    Raises:
        InputError: if the source cannot be opened, or fewer than 20 of the images to test can be read.
    """
    manifest = open_manifest(source, options)
    announce(manifest.description)
    drawn = _drawn(manifest, n + COMPANY, seed)
    tested = set(drawn[: min(n, -(-len(drawn) // 2))].tolist())
    places = np.sort(drawn)
    with _Writer(folder / "sample.parquet") as few, _Writer(folder / "company.parquet") as all_of_them:
        for place, read in zip(places.tolist(), readers_in_order(manifest, places), strict=True):
            row, data, problem = manifest.rows(place, place + 1), None, ""
            try:
                data = read()
            except ReadError as error:
                problem = str(error)
            key = str(row.column(KEY)[0].as_py())
            if place in tested:
                few.add(key, data, user_columns=row, problem=problem)
            all_of_them.add(key, data, user_columns=row, problem=problem)
    return _enough(few.sample(), f"{manifest.description}{few.problem}"), all_of_them.sample()


def _drawn(manifest: Manifest, n: int, seed: int) -> NDArray[np.int64]:
    """Return up to n rows whose keys hash lowest, lowest first."""
    best, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY).combine_chunks()
        best = np.concatenate([best, tie_breaks(key_array(plain(keys)), seed=seed)])
        rows = np.concatenate([rows, start + np.arange(len(keys))])
        least = np.argsort(best, kind="stable")[:n]
        best, rows = best[least], rows[least]
    return rows


class _Writer:
    """Writes images one by one; those that do not decode are counted and left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem = ""  # of the first that cannot be read
        self._keys: list[str] = []
        self._unread = 0
        self._file: pq.ParquetWriter | None = None

    def add(self, key: str, data: bytes | None, *, user_columns: pa.Table | None = None, problem: str = "") -> None:
        """Add an image with one row of the user's columns, or count one that cannot be read."""
        if data is None or not _decodes(data):
            self._unread += 1
            self.problem = self.problem or (f"; {problem}" if data is None else "")
            return
        columns: dict[str, Any] = {KEY: pa.array([key], pa.string())}
        if user_columns is not None:
            columns |= {
                name: user_columns.column(name) for name in user_columns.column_names if name not in (KEY, URI, IMAGE)
            }
        columns[IMAGE] = pa.array([data], pa.large_binary())
        line = pa.table(columns)
        if self._file is None:
            self._file = pq.ParquetWriter(self.path, line.schema, compression="none")
        self._file.write_table(line.cast(self._file.schema))
        self._keys.append(key)

    def sample(self) -> ImageSample:
        """Return the sample as written."""
        return ImageSample(self.path, self._keys, self._unread)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _enough(sample: ImageSample, name: str) -> ImageSample:
    if len(sample.keys) < FEWEST:
        raise InputError(
            f"expected at least {FEWEST} readable images to test, and as many others, got {len(sample.keys)} "
            f"of {name}; use more images, or pass their folder as the source"
        )
    return sample


def _decodes(data: bytes) -> bool:
    try:
        decode_rgb(data)
    except DecodeError:
        return False
    return True
