"""JPEGs decoded on a device in batches of all that wait; pixels do not depend on the batch."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace

import torch

from curate.columns import OK
from scoring.errors import InputError
from scoring.images import DecodedImage
from scoring.images.budget import BODIES
from scoring.images.decoding import outcome_of
from scoring.images.device_jpegs import DeviceJpegs, Reduced, SoundJpeg, sound_jpeg
from scoring.images.outcome import single_line
from scoring.runner import is_out_of_memory

MOST = 64  # images of a batch
MOST_IN_ALL = 64_000_000  # pixels of a batch


@dataclass(frozen=True)
class Waiting:
    """A JPEG on its way.

    Attributes:
        jpeg: its bytes.
        sha256: of them.
        ordinary: what the CPU would make of it where the device cannot.
        image: what a thread waits for.
        give_back: gives its bytes back to the budget.
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
        pool: where hashes and signatures are made, and images that the CPU decodes after all.
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
            data: its bytes.
            sha256: of them.
            ordinary: decodes it on the CPU.
            supervised: ``ordinary`` works in its own process, because one like this died. Only what comes out of
                that without a warning goes to the device; so the run writes what it would have written undisturbed.
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
            except BaseException as error:  # raised where the images are taken
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
    """Return the image that the device decodes from each JPEG, or why it decodes none.

    Where a batch fails, each goes alone, so that the outcome of one does not depend on the others.

    Raises:
        InputError: memory runs out at a single one.
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
    # outside the except clause, where the error would keep the tensors of the failed attempt alive
    if decoder.device.type == "cuda":
        torch.cuda.empty_cache()
    return [decoded(decoder, [jpeg])[0] for jpeg in jpegs]


def _finish(waiting: Waiting, made: Reduced | str) -> None:
    try:
        waiting.image.set_result(_image(waiting, made))
    except BaseException as error:  # the same
        waiting.image.set_exception(error)


def _image(waiting: Waiting, made: Reduced | str) -> DecodedImage:
    if isinstance(made, str):
        image = waiting.ordinary()
        return replace(image, error=image.error or single_line(f"decoded on the CPU, because the GPU reported: {made}"))
    jpeg = waiting.jpeg
    return outcome_of(jpeg.data, "jpeg", jpeg.header, waiting.sha256, pixels=made.pixels, small=made.small)


def finished(image: DecodedImage) -> "Future[DecodedImage]":
    """Return a decoded image as a finished future."""
    future: Future[DecodedImage] = Future()
    future.set_result(image)
    return future
