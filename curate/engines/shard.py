"""From rows of a manifest to rows of the table. Every engine uses this module; no other code scores."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from curate.columns import EMBEDDING, FRAMES, KEY, MTIME, N_BYTES, OK, QUALITY_COLUMNS, SIGNATURE, THUMBNAIL
from curate.engines.settings import ScoreSettings
from curate.tables.arrays import numbers_of, quality_values
from curate.tables.dataset import column_array
from curate.tables.signatures import signature_array, thumbnail_array
from curate.tables.table import embedding_field
from scoring.images import DecodedImage
from scoring.relative.junk.features import JunkInputs
from scoring.relative.model import DatasetFit
from scoring.runner import Pending, Runner


@dataclass(frozen=True)
class Span:
    """A fixed range of manifest rows: shard ``index`` contains rows ``start`` to ``stop`` (exclusive)."""

    index: int
    start: int
    stop: int


def spans(n_rows: int, shard_rows: int) -> list[Span]:
    """Return the shards of a manifest, in order; the last may be shorter.

    >>> spans(5, 2)
    [Span(index=0, start=0, stop=2), Span(index=1, start=2, stop=4), Span(index=2, start=4, stop=5)]
    """
    return [Span(i, start, min(start + shard_rows, n_rows)) for i, start in enumerate(range(0, n_rows, shard_rows))]


def start_shard(
    rows: pa.Table,
    images: Iterable[DecodedImage],
    runner: Runner,
    settings: ScoreSettings,
    batch_size: int,
    fit: DatasetFit | None = None,
    times: Sequence[int] = (),
) -> Callable[[], pa.Table]:
    """Send a shard through the model, and return a function that waits for the device and returns the table.

    The two are separate so that another thread can build and write the table while the model processes the next shard.

    Args:
        rows: ``key``, ``uri`` and the user's columns, N rows.
        images: N decoded images, in the same order.
        runner: the model.
        settings: whether and how embeddings are stored.
        batch_size: rows per batch; batches contain the distinct readable images in row order, so they only depend on
            the shard.
        fit: of the model, or None; its columns follow the heads'.
        times: modification time of each row's file in ns, -1 for none; empty if all are unknown.

    Returns:
        A callable that returns N rows. An image that could not be scored has a status, an error, and null scores.
    """
    decoded: list[DecodedImage] = []
    place: dict[str, int] = {}  # digest -> row of the scores
    positions: list[int] = []  # for each row, where its scores are, or -1
    batch: dict[str, np.ndarray] = {}  # digest -> pixels
    pending: list[Pending] = []

    def flush() -> None:
        if batch:
            pending.append(runner.submit(np.stack(list(batch.values()))))
            batch.clear()

    for image in images:
        if image.status != OK:
            positions.append(-1)
        else:
            if image.sha256 not in place:
                if image.pixels is None:
                    raise ValueError("an image that decoded has pixels the first time it is seen")
                place[image.sha256] = len(place)
                batch[image.sha256] = image.pixels
                if len(batch) == batch_size:
                    flush()
            positions.append(place[image.sha256])
        decoded.append(replace(image, pixels=None))
    flush()
    where = np.array(positions, np.int64)
    return lambda: pa.Table.from_arrays(*_assemble(rows, decoded, where, pending, runner, settings, fit, times))


def _assemble(
    rows: pa.Table,
    decoded: list[DecodedImage],
    positions: np.ndarray,
    pending: list[Pending],
    runner: Runner,
    settings: ScoreSettings,
    fit: DatasetFit | None,
    times: Sequence[int] = (),
) -> tuple[list[pa.Array], list[str]]:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([getattr(image, name) for image in decoded], kind)

    scored = [batch.result() for batch in pending]
    missing = positions < 0
    pick = np.where(missing, 0, positions)
    arrays = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    arrays |= {
        "width": column("width", pa.int32()),
        "height": column("height", pa.int32()),
        N_BYTES: column(N_BYTES, pa.int64()),
        MTIME: pa.array([None if time == -1 else time for time in times or [-1] * len(decoded)], pa.int64()),
        "format": column("format", pa.string()),
        FRAMES: column(FRAMES, pa.int32()),
        "sha256": column("sha256", pa.string()),
        "phash": column("phash", pa.uint64()),
        SIGNATURE: signature_array([image.signature for image in decoded]),
        THUMBNAIL: thumbnail_array([image.thumbnail for image in decoded]),
        "status": column("status", pa.string()),
        "error": column("error", pa.string()),
    }
    if settings.quality:
        measured = quality_values(image.quality for image in decoded)
        arrays |= {name: pa.array(values, from_pandas=True).cast(pa.float32()) for name, values in measured.items()}
    width = runner.model.embedding_width
    matrix = np.concatenate([batch.embedding for batch in scored]) if scored else np.zeros((1, width), np.float32)
    if settings.dtype is not None:
        values = matrix.astype(settings.dtype)[pick]
        values[missing] = 0
        kind = embedding_field(width, settings.dtype).type
        mask = pa.array(missing) if missing.any() else None
        arrays[EMBEDDING] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind, mask=mask)

    columns = {
        name: np.concatenate([batch.columns[name] for batch in scored]) if scored else np.zeros(1, np.float32)
        for name in runner.columns
    }
    for name, values in columns.items():
        arrays[name] = pa.array(values[pick], mask=missing)
    if fit is not None:
        quality = {name: _of_images(arrays[name], positions, len(matrix)) for name in QUALITY_COLUMNS if name in arrays}
        fitted = fit.score_images(JunkInputs({**columns, **quality}, matrix.astype(np.float16)))
        arrays |= {name: column_array(values[pick], missing) for name, values in fitted.columns.items()}
    return list(arrays.values()), list(arrays)


def _of_images(column: pa.Array, positions: np.ndarray, n: int) -> np.ndarray:
    """Return a column of rows as values of n images, NaN for none; ``positions`` is the image of each row, or -1."""
    values, by_image = numbers_of(column), np.full(n, np.nan)
    by_image[positions[positions >= 0]] = values[positions >= 0]
    return by_image


def score_schema(rows: pa.Schema, runner: Runner, settings: ScoreSettings, fit: DatasetFit | None = None) -> pa.Schema:
    """Return the schema of every shard of a run."""
    empty = rows.empty_table()
    arrays, names = _assemble(empty, [], np.zeros(0, np.int64), [], runner, settings, fit)
    return pa.schema(
        [pa.field(name, array.type, nullable=name != KEY) for name, array in zip(names, arrays, strict=True)]
    )
