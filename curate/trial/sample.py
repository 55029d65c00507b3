"""Some of the user's own images, drawn by their keys, in small tables that can be scored again and again."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from curate.columns import KEY, URI
from curate.manifest import Manifest, ReadError, SourceOptions, open_manifest
from curate.tables.digests import key_bytes, plain, tie_breaks
from curate.tables.images import Images, drawn_rows, readers_in_order
from curate.tables.table import Table
from scoring.errors import InputError
from scoring.images import DecodeError, decode_rgb

FEWEST = 20  # images that say anything
COMPANY = 1_000  # images of a source that the tested ones are among
IMAGE = "image"
STEP = 65_536  # rows of a source looked at together


@dataclass(frozen=True)
class Sample:
    """N images whose bytes lie in a table of their own.

    Attributes:
        path: of a Parquet file with ``key``, ``image`` and the user's own columns, the rows in the order of the source.
        keys: of the rows, text.
        rows: their numbers in the source or table that they were drawn from, ascending, shape (N,).
        unread: drawn, but not to be read or decoded.
    """

    path: Path
    keys: list[str]
    rows: NDArray[np.int64]
    unread: int

    def data(self) -> Iterator[bytes]:
        """Yield the bytes of each."""
        with pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(batch_size=1, columns=[IMAGE]):
                yield batch.column(0)[0].as_py()

    def keywords(self) -> dict[str, Any]:
        """Return how ``score`` is to read it."""
        return {"key": KEY, "image_column": IMAGE}


def of_table(table: Table, n: int, folder: Path, *, seed: int, source: str | None, options: SourceOptions) -> Sample:
    """Draw up to n images behind the rows of a scored table, and no more than half of them.

    Raises:
        InputError: if fewer than 20 can be read, or it is not known where they are.
    """
    rows = drawn_rows(table, 2 * n, seed=seed)
    rows = np.sort(rows[: min(n, -(-len(rows) // 2))])
    images = Images.of(table, rows, source=source, options=options, partial=True)
    if len(rows) and not images.named:
        raise InputError(f"{table.path} holds no path to any image; name what was scored with --source")
    found = sorted(images.read(rows.tolist()), key=lambda image: image.row)
    pairs = [(image.row, image.key, image.data) for image in found if image.data is not None]
    problem = next((f"; {image.key}: {image.problem}" for image in found if image.problem), "")
    return _enough(_written(pairs, None, folder / "sample.parquet", len(rows)), f"{table.path}{problem}")


def of_source(
    source: Any, n: int, folder: Path, *, seed: int, options: SourceOptions, announce: Callable[[str], None]
) -> tuple[Sample, Sample]:
    """Draw up to n images of a source, and no more than half of them, and up to 1,000 others.

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
    pairs, rows, problem = [], [], ""
    for place, read in zip(places.tolist(), readers_in_order(manifest, places), strict=True):
        try:
            data = read()
        except ReadError as error:
            problem = problem or f"; {error}"
            continue
        rows.append(manifest.rows(place, place + 1))
        pairs.append((place, str(rows[-1].column(KEY)[0].as_py()), data))
    if not pairs:
        raise _too_few(0, f"{manifest.description}{problem}")
    some = [number for number, (place, _, _) in enumerate(pairs) if place in tested]
    more = pa.concat_tables(rows)
    few = _written([pairs[number] for number in some], more.take(some), folder / "sample.parquet", len(tested))
    everything = _written(pairs, more, folder / "company.parquet", len(places))
    return _enough(few, f"{manifest.description}{problem}"), everything


def _drawn(manifest: Manifest, n: int, seed: int) -> NDArray[np.int64]:
    """Return up to n rows, those whose keys hash lowest, the lowest first."""
    best, rows = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for start in range(0, manifest.n_rows, STEP):
        keys = manifest.rows(start, min(start + STEP, manifest.n_rows)).column(KEY).combine_chunks()
        best = np.concatenate([best, tie_breaks(key_bytes(plain(keys)), seed=seed)])
        rows = np.concatenate([rows, start + np.arange(len(keys))])
        least = np.argsort(best, kind="stable")[:n]
        best, rows = best[least], rows[least]
    return rows


def _written(pairs: list[tuple[int, str, bytes]], more: pa.Table | None, path: Path, drawn: int) -> Sample:
    """Write the images that decode; those that do not are of no use for what follows."""
    keep = [number for number, (_, _, data) in enumerate(pairs) if _decodes(data)]
    kept = [pairs[number] for number in keep]
    columns: dict[str, Any] = {KEY: pa.array([key for _, key, _ in kept], pa.string())}
    if more is not None:
        own = more.take(keep)
        columns |= {column: own.column(column) for column in own.column_names if column not in (KEY, URI, IMAGE)}
    columns[IMAGE] = pa.array([data for _, _, data in kept], pa.large_binary())
    pq.write_table(pa.table(columns), path, row_group_size=64, compression="none")
    keys, rows = [key for _, key, _ in kept], np.array([row for row, _, _ in kept], np.int64)
    return Sample(path, keys, rows, drawn - len(kept))


def _enough(sample: Sample, name: str) -> Sample:
    if len(sample.keys) < FEWEST:
        raise _too_few(len(sample.keys), name)
    return sample


def _decodes(data: bytes) -> bool:
    try:
        decode_rgb(data)
    except DecodeError:
        return False
    return True


def _too_few(n: int, name: str) -> InputError:
    return InputError(
        f"expected at least {FEWEST} images to test that can be read, and as many others, got {n} of {name}; take "
        "more, or name where they are"
    )
