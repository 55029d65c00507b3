"""Decoded images of shards, in row order, decoded ahead of the model on many cores, or on a GPU if requested."""

import hashlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from curate.columns import OK
from curate.engines.settings import ScoreSettings
from curate.engines.shard import Span
from curate.manifest.ahead import ReadAhead
from curate.manifest.contract import Manifest, ReadError
from scoring.errors import InputError
from scoring.images import DecodedImage, Preprocessing
from scoring.images.budget import BODIES
from scoring.images.decoders import decoder_for
from scoring.images.decoding import outcome_of
from scoring.images.device_jpegs import DeviceJpegs, Reduced, SoundJpeg, sound_jpeg
from scoring.images.outcome import single_line
from scoring.marks import Marks
from scoring.runner import is_out_of_memory

MOST = 64  # maximum images per batch
MOST_IN_ALL = 64_000_000  # maximum pixels per batch
WINDOW = 16  # images read ahead per decoding thread, at least two batches


@dataclass(frozen=True)
class Waiting:
    """A JPEG queued for the device.

    Attributes:
        jpeg: its bytes.
        sha256: of its bytes.
        ordinary: decodes it on the CPU, if the device cannot.
        image: future of the decoded image.
        give_back: returns its bytes to the memory budget.
    """

    jpeg: SoundJpeg
    sha256: str
    ordinary: Callable[[], DecodedImage]
    image: "Future[DecodedImage]"
    give_back: Callable[[], None]


class DeviceBatches:
    """A thread that feeds a device's decoder; its results are finished in another pool of threads.

    Args:
        decoder: of the device.
        resize: length of the short side, in pixels, as in the decoder's preprocessing.
        max_pixels: as in ``decode``.
        pool: computes hashes and signatures, and decodes images that the device cannot.
    """

    def __init__(self, decoder: DeviceJpegs, resize: int, max_pixels: int, pool: Executor) -> None:
        self._decoder, self._resize, self._max_pixels, self._pool = decoder, resize, max_pixels, pool
        self._waiting: deque[Waiting] = deque()
        self._changed, self._closed = threading.Condition(), False
        self._thread = threading.Thread(target=self._serve, name="decode on the device", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Finish the current batch, and drop the waiting images."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()
        for waiting in self._waiting:
            waiting.give_back()

    def start(
        self, data: bytes, sha256: str, ordinary: Callable[[], DecodedImage], *, supervised: bool
    ) -> "Future[DecodedImage]":
        """Return the future image: from the device if it can decode it, else from the CPU at once.

        Args:
            data: the encoded bytes.
            sha256: of the bytes.
            ordinary: decodes it on the CPU.
            supervised: ``ordinary`` uses a separate process, because a process died at this shard. The device only gets
                images that this process decodes without a warning, so that the output is the same.
        """
        known = ordinary() if supervised else None
        jpeg = None
        if known is None or (known.status == OK and known.error is None):
            jpeg = sound_jpeg(data, self._resize, max_pixels=self._max_pixels, is_checked=supervised)
        if jpeg is None:
            return finished(known or ordinary())
        with self._changed:
            if not self._closed:
                waiting = Waiting(jpeg, sha256, ordinary, Future(), BODIES.hand_over())  # held until the device is done
                self._waiting.append(waiting)
                self._changed.notify()
                return waiting.image
        return finished(known or ordinary())

    def _serve(self) -> None:
        while batch := self._batch():
            try:
                made = decoded(self._decoder, [waiting.jpeg for waiting in batch])
            except BaseException as error:  # raised in the consumer of the images
                for waiting in batch:
                    waiting.image.set_exception(error)
                continue
            finally:
                for waiting in batch:
                    waiting.give_back()
            for waiting, result in zip(batch, made, strict=True):
                self._pool.submit(_finish, waiting, result)

    def _batch(self) -> list[Waiting]:
        """Return the waiting images that fit in one batch; none at the end."""
        batch: list[Waiting] = []
        n_pixels = 0
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            while self._waiting and not self._closed and len(batch) < MOST:
                n_pixels += self._waiting[0].jpeg.header.n_pixels
                if batch and n_pixels > MOST_IN_ALL:
                    break
                batch.append(self._waiting.popleft())
        return batch


def decoded(decoder: DeviceJpegs, jpegs: list[SoundJpeg]) -> list[Reduced | str]:
    """Return the image that the device decodes from each JPEG, or why it cannot.

    If a batch fails, each image is decoded alone, so that results do not depend on other images.

    Raises:
        InputError: if memory runs out for a single image.
    """
    try:
        return list(decoder.decode(jpegs))
    except (RuntimeError, MemoryError) as error:
        if len(jpegs) == 1 and is_out_of_memory(error):
            raise InputError(
                f"memory on {decoder.device} is not enough to decode a single image; free some, or leave out --decode"
            ) from None
        if len(jpegs) == 1:
            return [single_line(error)]
    # not in the except clause, where the exception keeps tensors of the failed attempt alive
    if decoder.device.type == "cuda":
        torch.cuda.empty_cache()
    return [decoded(decoder, [jpeg])[0] for jpeg in jpegs]


def _finish(waiting: Waiting, made: Reduced | str) -> None:
    try:
        waiting.image.set_result(_device_image(waiting, made))
    except BaseException as error:  # the same
        waiting.image.set_exception(error)


def _device_image(waiting: Waiting, made: Reduced | str) -> DecodedImage:
    if isinstance(made, str):
        image = waiting.ordinary()
        return replace(image, error=image.error or single_line(f"decoded on the CPU, because the GPU reported: {made}"))
    jpeg = waiting.jpeg
    pixels, small, larger = made.pixels, made.small, made.larger
    return outcome_of(jpeg.data, "jpeg", jpeg.header, waiting.sha256, pixels=pixels, small=small, larger=larger)


def finished(image: DecodedImage) -> "Future[DecodedImage]":
    """Return a decoded image as a finished future."""
    future: Future[DecodedImage] = Future()
    future.set_result(image)
    return future


class Decoded:
    """Decoded images of some shards, in row order, a bounded number ahead of the reader.

    A feeder thread passes rows to a pool of decoding threads, across shard boundaries, so the model never waits for the
    next shard. Within a shard, identical bytes are decoded once.

    While a shard is decoded, a mark file is in the folder of the run. If a mark exists already, a process died at that
    shard: each of its images is then decoded in a separate process, and the image that kills it gets that status.

    Args:
        manifest: the rows.
        todo: the shards, in order.
        preprocessing: of the model.
        settings: of the run.
        workers: decoding threads, or processes where these are faster.
        batch_size: of the model; two batches are decoded ahead.
        folder: of the run.
        decoder: of a device, for the JPEGs that it supports; no quality is measured with it.
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
        """Yield the ``n`` images of the next shard; of identical files at least the first has pixels."""
        for _ in range(n):
            item = self._waiting.get()
            if isinstance(item, BaseException):
                raise item
            future, once = item
            image = future.result().result()  # includes the device's work if it continues there
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
        except BaseException as error:  # raised in the reader
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
        """Return the future image of a digest, starting its decoding on the first call."""
        with self._lock:
            known = self._known.get(digest)
            if known is None:
                mine = self._known[digest] = Future()
        if known is not None:
            return known
        try:
            begin().add_done_callback(lambda image: _copy_result(image, mine))
        except BaseException as error:
            mine.set_exception(error)
        return mine

    def drop_pixels(self, image: DecodedImage) -> None:
        """Keep the facts of an image but not its pixels, which are not needed again."""
        if image.pixels is not None:
            light = finished(replace(image, pixels=None))
            with self._lock:
                self._known[image.sha256] = light


def _copy_result(image: Future[DecodedImage], to: Future[DecodedImage]) -> None:
    error = image.exception()
    if error is None:
        to.set_result(image.result())
    else:
        to.set_exception(error)


def unreadable(status: str, error: str) -> DecodedImage:
    """Return the row of an image whose bytes could not be read."""
    return DecodedImage(None, None, None, None, None, None, None, None, None, None, status, error)  # type: ignore[arg-type]
