"""Decoded images of shards, in row order, decoded ahead of the model on many cores, or on a GPU if requested."""

import hashlib
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Self

from curate.engines.device_batches import DeviceBatches, finished
from curate.engines.settings import ScoreSettings
from curate.engines.shard import Span
from curate.manifest import Manifest, ReadError
from curate.manifest.ahead import ReadAhead
from scoring.images import DecodedImage, Preprocessing
from scoring.images.budget import BODIES
from scoring.images.decoders import decoder_for
from scoring.images.device_jpegs import DeviceJpegs
from scoring.marks import Marks

WINDOW = 16  # images read ahead for each decoding thread, and never fewer than two batches


class Decoded:
    """Decoded images of some shards, in row order, a bounded number ahead of the reader.

    A feeder thread hands rows to a pool of decoding threads, across shard boundaries, so the model never waits for
    the next shard to begin. Within a shard the same bytes are decoded once.

    While the images of a shard are being decoded, a mark is in the folder of the run. A shard that has one already
    is one at which a process died, perhaps of an image in it: each of its images is then decoded in a process of its
    own, so that the row of the one that did it says so.

    Args:
        manifest: the rows.
        todo: which of them, in order.
        preprocessing: of the model.
        settings: of the run.
        workers: decoding threads, or processes where these are faster.
        batch_size: of the model, which wants two of them in hand.
        folder: of the run.
        decoder: of a device, which then has the JPEGs that it may decode; no quality is measured with it.
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
        decoder: DeviceJpegs | None = None,
    ) -> None:
        self._manifest, self._todo = manifest, todo
        self._marks, self._ended = Marks(folder), 0  # shards, in the order of todo
        if settings.white is None:
            raise ValueError("the white level of 16-bit images is found before any is decoded")
        self._preprocessing, self._options = preprocessing, settings.decode_options()
        self._with_quality = settings.quality
        n_decoded = 0 if decoder else manifest.n_rows  # by the CPU
        self._decode, threads = decoder_for(workers, n_decoded)
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="decode")
        self._device = (
            DeviceBatches(decoder, preprocessing.resize, settings.max_pixels, self._pool) if decoder else None
        )
        self._reading = ReadAhead(manifest.connections)
        self._ahead = threading.Semaphore(max(WINDOW * threads, 2 * batch_size))
        self._waiting: queue.SimpleQueue[tuple[Future[Future[DecodedImage]], OnePerContent] | BaseException]
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
        if self._device is not None:
            self._device.close()
        self._pool.shutdown(cancel_futures=True)
        self._marks.close()

    def take(self, n: int) -> Iterator[DecodedImage]:
        """Yield the ``n`` images of the next shard; of equal files at least the first has pixels."""
        for _ in range(n):
            item = self._waiting.get()
            if isinstance(item, BaseException):
                raise item
            future, once = item
            image = future.result().result()  # of a thread's work, and of the device's where it goes on there
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

    @BODIES.image()
    def _work(self, read: Callable[[], bytes], once: "OnePerContent", supervised: bool) -> Future[DecodedImage]:
        try:
            data = read()
        except ReadError as error:
            return finished(unreadable(error.status, str(error)))
        digest = hashlib.sha256(data).hexdigest()

        def by_cpu() -> DecodedImage:
            return self._decode(
                data,
                self._preprocessing,
                self._options,
                sha256=digest,
                with_quality=self._with_quality,
                supervised=supervised,
            )

        def begin() -> Future[DecodedImage]:
            if self._device is None:
                return finished(by_cpu())
            return self._device.start(data, digest, by_cpu, supervised=supervised)

        return once.get(digest, begin)


class OnePerContent:
    """Decodes one image per digest; the first thread starts it, and others share the result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, Future[DecodedImage]] = {}

    def get(self, digest: str, begin: Callable[[], Future[DecodedImage]]) -> Future[DecodedImage]:
        """Return the future image of a digest, starting it if no caller has."""
        with self._lock:
            known = self._known.get(digest)
            if known is None:
                mine = self._known[digest] = Future()
        if known is not None:
            return known
        try:
            begin().add_done_callback(lambda image: _hand_on(image, mine))
        except BaseException as error:
            mine.set_exception(error)
        return mine

    def drop_pixels(self, image: DecodedImage) -> None:
        """Keep the facts of an image but not its pixels, which are not needed again."""
        if image.pixels is not None:
            light = finished(replace(image, pixels=None))
            with self._lock:
                self._known[image.sha256] = light


def _hand_on(image: Future[DecodedImage], to: Future[DecodedImage]) -> None:
    error = image.exception()
    if error is None:
        to.set_result(image.result())
    else:
        to.set_exception(error)


def unreadable(status: str, error: str) -> DecodedImage:
    """Return the row of an image whose bytes could not be read."""
    return DecodedImage(None, None, None, None, None, None, None, None, None, None, status, error)  # type: ignore[arg-type]
