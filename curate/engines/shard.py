"""Rows of a manifest -> the rows of the table. Every engine calls this, and nothing else scores."""

import hashlib
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa

from curate.columns import EMBEDDING, KEY, OK, QUALITY, QUALITY_COLUMNS, SIGNATURE
from curate.engines.settings import ScoreSettings
from curate.manifest import Manifest, ReadError
from curate.manifest.ahead import ReadAhead
from curate.tables.signatures import signature_array
from curate.tables.table import embedding_field
from scoring.heap.model import HeapFit
from scoring.images import DecodedImage, Preprocessing, decode
from scoring.marks import Marks
from scoring.runner import Pending, Runner

WINDOW = 16  # images read ahead for each decoding thread, and never fewer than two batches


@dataclass(frozen=True)
class Span:
    """A fixed range of manifest rows: shard ``index`` holds rows ``start`` to ``stop``."""

    index: int
    start: int
    stop: int


def spans(n_rows: int, shard_rows: int) -> list[Span]:
    """Return the shards of a manifest, in order; the last may be shorter.

    >>> spans(5, 2)
    [Span(index=0, start=0, stop=2), Span(index=1, start=2, stop=4), Span(index=2, start=4, stop=5)]
    """
    return [Span(i, at, min(at + shard_rows, n_rows)) for i, at in enumerate(range(0, n_rows, shard_rows))]


class Decoded:
    """Decoded images of some shards, in row order, always a bounded number ahead of whoever reads them.

    A feeder thread hands rows to a pool of decoding threads, across shard boundaries, so the model never waits for
    the next shard to begin. Within a shard the same bytes are decoded once.

    While the images of a shard are being decoded, a mark lies in the folder of the run. A shard that has one already
    is one at which a process died, perhaps of an image in it: each of its images is then decoded in a process of its
    own, so that the row of the one that did it says so.
    """

    def __init__(
        self,
        manifest: Manifest,
        todo: Sequence[Span],
        preprocessing: Preprocessing,
        settings: ScoreSettings,
        *,
        workers: int,
        batch_size: int,
        folder: Path,
    ) -> None:
        self._manifest, self._todo = manifest, todo
        self._marks, self._ended = Marks(folder), 0  # shards, in the order of todo
        self._preprocessing, self._settings = preprocessing, settings
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="decode")
        self._reading = ReadAhead(manifest.connections)
        self._ahead = threading.Semaphore(max(WINDOW * workers, 2 * batch_size))
        self._waiting: queue.SimpleQueue[tuple[Future[DecodedImage], OnePerContent] | BaseException]
        self._waiting = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._feeder = threading.Thread(target=self._feed, name="feed", daemon=True)

    def __enter__(self) -> Self:
        self._feeder.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._ahead.release()
        self._reading.stop()
        self._feeder.join()
        self._pool.shutdown(cancel_futures=True)
        self._marks.close()

    def take(self, n: int) -> Iterator[DecodedImage]:
        """Yield the ``n`` images of the next shard; of those with the same bytes the first is sure to have pixels."""
        for _ in range(n):
            item = self._waiting.get()
            if isinstance(item, BaseException):
                raise item
            future, once = item
            image = future.result()
            once.drop_pixels(image)
            self._ahead.release()
            yield image
        self._marks.end(self._todo[self._ended].index)
        self._ended += 1

    def _feed(self) -> None:
        try:
            for span in self._todo:
                once, supervised = OnePerContent(), self._marks.begin(span.index)
                for read in self._reading.readers(self._manifest.readers(span.start, span.stop)):
                    self._ahead.acquire()
                    if self._stopped.is_set():
                        return
                    self._waiting.put((self._pool.submit(self._work, read, once, supervised), once))
        except BaseException as error:  # handed to the reader, who raises it
            self._waiting.put(error)

    def _work(self, read: Callable[[], bytes], once: "OnePerContent", supervised: bool) -> DecodedImage:
        try:
            data = read()
        except ReadError as error:
            return unreadable(error.status, str(error))
        digest = hashlib.sha256(data).hexdigest()
        return once.get(
            digest,
            lambda: decode(
                data,
                self._preprocessing,
                max_pixels=self._settings.max_pixels,
                allow_truncated=self._settings.allow_truncated,
                sha256=digest,
                with_quality=self._settings.quality,
                seconds=self._settings.decode_timeout,
                supervised=supervised,
            ),
        )


class OnePerContent:
    """Computes one result for each digest, whichever thread comes first; the others wait for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Future[DecodedImage]] = {}

    def get(self, digest: str, compute: Callable[[], DecodedImage]) -> DecodedImage:
        """Return the result for ``digest``, computing it if nobody has."""
        with self._lock:
            known = self._known.get(digest)
            if known is None:
                mine = self._known[digest] = Future()
        if known is not None:  # its thread is at work already, so this wait ends
            return known.result()
        try:
            image = compute()
        except BaseException as error:
            mine.set_exception(error)
            raise
        mine.set_result(image)
        return image

    def drop_pixels(self, image: DecodedImage) -> None:
        """Keep what is known of an image but not its pixels, which are not needed a second time."""
        if image.pixels is not None:
            light: Future[DecodedImage] = Future()
            light.set_result(replace(image, pixels=None))
            with self._lock:
                self._known[image.sha256] = light


def unreadable(status: str, error: str) -> DecodedImage:
    """Return the row of an image whose bytes could not be had."""
    return DecodedImage(None, None, None, None, None, None, None, None, None, None, status, error)  # type: ignore[arg-type]


def start_shard(
    rows: pa.Table,
    images: Iterable[DecodedImage],
    runner: Runner,
    settings: ScoreSettings,
    batch_size: int,
    fit: HeapFit | None = None,
) -> Callable[[], pa.Table]:
    """Send a shard through the model, and return what waits for the device and makes the table.

    The two are apart so that another thread can make and write the table while the model goes on with the next shard.

    Args:
        rows: ``key``, ``uri`` and the user's columns, N rows.
        images: N decoded images, in the same order.
        runner: the model.
        settings: whether and how embeddings are stored.
        batch_size: rows a batch; batches hold the distinct readable images in row order, so their composition
            depends on nothing but the shard.
        fit: what the model was fitted to, where it was: its columns follow those of the heads.

    Returns:
        A callable that gives N rows. An image that could not be scored has its status and error, and nulls for
        its scores.
    """
    found: list[DecodedImage] = []
    place: dict[str, int] = {}  # digest -> row of the scores
    at: list[int] = []  # for each row, where its scores are, or -1
    batch: dict[str, np.ndarray] = {}  # digest -> pixels
    pending: list[Pending] = []

    def flush() -> None:
        if batch:
            pending.append(runner.submit(np.stack(list(batch.values())), list(batch)))
            batch.clear()

    for image in images:
        if image.status != OK:
            at.append(-1)
        else:
            if image.sha256 not in place:
                if image.pixels is None:
                    raise ValueError("an image that decoded has pixels the first time it is seen")
                place[image.sha256] = len(place)
                batch[image.sha256] = image.pixels
                if len(batch) == batch_size:
                    flush()
            at.append(place[image.sha256])
        found.append(replace(image, pixels=None))
    flush()
    where = np.array(at, np.int64)
    return lambda: pa.Table.from_arrays(*_assemble(rows, found, where, pending, runner, settings, fit))


def _assemble(
    rows: pa.Table,
    found: list[DecodedImage],
    at: np.ndarray,
    pending: list[Pending],
    runner: Runner,
    settings: ScoreSettings,
    fit: HeapFit | None,
) -> tuple[list[pa.Array], list[str]]:
    def column(name: str, kind: pa.DataType) -> pa.Array:
        return pa.array([getattr(image, name) for image in found], kind)

    scored = [one.result() for one in pending]
    missing = at < 0
    pick = np.where(missing, 0, at)
    arrays = {name: rows.column(name).combine_chunks() for name in rows.column_names}
    arrays |= {
        "width": column("width", pa.int32()),
        "height": column("height", pa.int32()),
        "n_bytes": column("n_bytes", pa.int64()),
        "format": column("format", pa.string()),
        "sha256": column("sha256", pa.string()),
        "phash": column("phash", pa.uint64()),
        SIGNATURE: signature_array([image.signature for image in found]),
        "status": column("status", pa.string()),
        "error": column("error", pa.string()),
    }
    if settings.quality:
        arrays |= {
            name: pa.array([getattr(image.quality, name.removeprefix(QUALITY), None) for image in found], pa.float32())
            for name in QUALITY_COLUMNS
        }
    width = runner.model.embedding_width
    matrix = np.concatenate([one.embedding for one in scored]) if scored else np.zeros((1, width), np.float32)
    if settings.dtype is not None:
        values = matrix.astype(settings.dtype)[pick]
        values[missing] = 0
        kind = embedding_field(width, settings.dtype).type
        mask = pa.array(missing) if missing.any() else None
        arrays[EMBEDDING] = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=kind, mask=mask)

    columns = {
        name: np.concatenate([one.columns[name] for one in scored]) if scored else np.zeros(1, np.float32)
        for name in runner.columns
    }
    if fit is not None:
        columns |= fit.score(matrix.astype(np.float16), columns).columns
    for name, values in columns.items():
        arrays[name] = pa.array(values[pick], mask=missing)
    return list(arrays.values()), list(arrays)


def score_schema(rows: pa.Schema, runner: Runner, settings: ScoreSettings, fit: HeapFit | None = None) -> pa.Schema:
    """Return the schema of every shard of a run."""
    empty = rows.empty_table()
    arrays, names = _assemble(empty, [], np.zeros(0, np.int64), [], runner, settings, fit)
    return pa.schema(
        [pa.field(name, array.type, nullable=name != KEY) for name, array in zip(names, arrays, strict=True)]
    )
