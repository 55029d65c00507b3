"""Training images that do not fit in memory: read and decoded during the run, some batches ahead."""

import queue
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice

import torch
from torch import Tensor

from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.images.budget import BODIES
from scoring.images.decoders import Crops, DecodedCrops, closing_decoders, crop_decoder_for
from scoring.images.deep import WHITE
from scoring.images.raster import DecodeOptions
from scoring.marks import Marks
from trainers import ranks
from trainers.data import bytes_or_status, windows

AHEAD = 1 << 30  # maximum bytes of waiting crops, but at least one batch
MOST_AHEAD = 4  # batches
TOGETHER = 8  # images decoded per task

Reader = Callable[[], bytes]
Statuses = Sequence[str]


@dataclass(frozen=True)
class ImageStream:
    """Images that are read again in every epoch.

    Attributes:
        n: number of images, including unreadable ones.
        readers: arrays of row numbers -> an iterator with a reader of each row; a reader returns the bytes or raises an
            error with a ``status``.
        preprocessing: of the model to be trained.
        labels: int64, shape (N,), or None.
        classes: the class names that labels index.
        losses: float64, shape (N,), computed by the user, or None.
        workers: decoding threads; by default one per core of this process's share.
        white: the value of white in 16-bit images.
        marks: files in the run's folder that mark batches being decoded.
        check: called with rows and statuses of each batch; raises if images failed because their source became
            unavailable.
        failures: number of unusable images by status, filled during the run.
    """

    n: int
    readers: Callable[[Iterable[Tensor]], Iterator[Reader]]
    preprocessing: Preprocessing
    labels: Tensor | None = None
    classes: list[str] = field(default_factory=list)
    losses: Tensor | None = None
    workers: int | None = None
    white: int = WHITE
    marks: Marks | None = None
    check: Callable[[Sequence[int], Statuses], None] = lambda rows, statuses: None
    failures: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class CropGroup:
    """Crops of one size: number per image, side in pixels and bounds of their share of the area."""

    count: int
    side: int
    scale: tuple[float, float]


@dataclass
class CroppedBatch:
    """The crops of one batch.

    Attributes:
        rows: row number of each image, shape (N,); an unusable image is replaced by another, whose number is here.
        groups: uint8, shape (V, N, 3, S, S), one tensor per group of crops, in memory order (V, N, S, S, 3).
        failures: row -> status of unusable images.
    """

    rows: Tensor
    groups: list[Tensor]
    failures: dict[int, str]


class CroppedBatches:
    """Decodes batches in training order, ahead of the run; in a distributed run each process decodes its part.

    Args:
        images: to read.
        groups: crops of each image.
        plain: whether the square that the model scores comes first.
        seed: of the run.
        batch_size: images per batch.
        per_epoch: batches per epoch; remaining rows are left out.
        epochs: number of epochs.
        pinned: whether crops are in pinned memory, from which a GPU copies asynchronously.
    """

    def __init__(
        self,
        images: ImageStream,
        groups: Sequence[CropGroup],
        *,
        plain: bool,
        seed: int,
        batch_size: int,
        per_epoch: int,
        epochs: int,
        pinned: bool,
    ) -> None:
        self._images, self._plain, self._seed, self._pinned = images, plain, seed, pinned
        self._batch_size, self._per_epoch, self._epochs = batch_size, per_epoch, epochs
        self._part = ranks.part(batch_size)
        self._n = self._part.stop - self._part.start
        self._sides = tuple(group.side for group in groups for _ in range(group.count))
        self._scales = tuple(group.scale for group in groups for _ in range(group.count))
        self._decode, self._workers = crop_decoder_for(images.workers or ranks.cores(), images.n)
        size = images.preprocessing.size
        self._shapes = [(1, size)] * plain + [(group.count, group.side) for group in groups]
        taken = self._n * sum(count * side * side * 3 for count, side in self._shapes)
        self._room = threading.Semaphore(min(MOST_AHEAD, max(1, AHEAD // taken)))
        self._ready: queue.SimpleQueue[_Pending | BaseException] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._feeder: threading.Thread | None = None
        self._next = 0
        self._crashed: set[int] = set()  # rows that crashed a decoder; decoded in separate processes in later epochs

    def take(self, number: int) -> CroppedBatch:
        """Return a batch by its number; batches must be taken in order.

        Raises:
            InputError: if the source became unavailable, or no image of the batch is usable.
            ValueError: for a number out of order.
        """
        if self._feeder is None:
            self._next = number
            self._feeder = threading.Thread(target=self._feed, args=(number,), name="decode", daemon=True)
            self._feeder.start()
        if number != self._next:
            raise ValueError(f"expected batch {self._next}, got {number}")
        self._next += 1
        pending = self._ready.get()
        if isinstance(pending, BaseException):
            raise pending
        batch = self._completed(pending)
        self._room.release()
        return batch

    def close(self) -> None:
        """Stop decoding."""
        self._stopped.set()
        self._room.release()
        if self._feeder is not None:
            self._feeder.join()

    def _feed(self, number: int) -> None:
        try:
            with closing_decoders(), ThreadPoolExecutor(self._workers) as pool:
                rows: list[int] = []
                readers = self._images.readers(self._recorded_rows(number, rows))
                try:
                    self._start_all(pool, number, readers, rows)
                finally:  # requests to a store or server end with their readers
                    if self._stopped.is_set():
                        del readers
                    pool.shutdown(wait=True, cancel_futures=self._stopped.is_set())
        except BaseException as error:  # raised in ``take``
            self._ready.put(error)

    def _start_all(self, pool: ThreadPoolExecutor, first: int, readers: Iterator[Reader], rows: list[int]) -> None:
        for number in range(first, self._per_epoch * self._epochs):
            self._room.acquire()
            some = list(islice(readers, self._n))
            if self._stopped.is_set():
                return
            pending = self._new_batch(number, rows[: len(some)])
            del rows[: len(some)]
            for start in range(0, len(some), TOGETHER):
                pending.work.append(pool.submit(self._decode_some, pending, start, some[start : start + TOGETHER]))
            self._ready.put(pending)

    def _recorded_rows(self, first: int, rows: list[int]) -> Iterator[Tensor]:
        """Yield the rows of a batch and of all later batches, window by window; appends them to ``rows``."""
        for epoch in range(first // self._per_epoch, self._epochs):
            skipped = max(0, first - epoch * self._per_epoch) * self._batch_size
            left, position = self._per_epoch * self._batch_size, 0
            for window in windows(self._images.n, epoch=epoch, seed=self._seed):
                used = window[max(0, skipped - position) : max(0, left - position)]
                place = (torch.arange(len(used)) + max(skipped, position)) % self._batch_size
                used = used[(place >= self._part.start) & (place < self._part.stop)]
                position += len(window)
                if len(used):
                    rows.extend(used.tolist())
                    yield used

    def _new_batch(self, number: int, rows: list[int]) -> "_Pending":
        arrays = [
            torch.empty((count, len(rows), side, side, 3), dtype=torch.uint8, pin_memory=self._pinned)
            for count, side in self._shapes
        ]
        marks = self._images.marks
        supervised = marks is not None and marks.begin(self._mark(number))
        return _Pending(number, rows, number // self._per_epoch, arrays, ["ok"] * len(rows), supervised)

    def _mark(self, number: int) -> int:
        """Return an identifier that is unique among all processes."""
        return number * ranks.group().size + ranks.group().rank

    def _decode_some(self, pending: "_Pending", start: int, readers: list[Reader]) -> None:
        for index, read in enumerate(readers, start):
            if self._stopped.is_set():
                return
            row = pending.rows[index]
            supervised = pending.supervised or row in self._crashed
            outcome = self._decoded(read, row, pending.epoch, supervised=supervised)
            pending.statuses[index] = outcome.status
            if outcome.status == "crashed":
                self._crashed.add(row)
            squares = iter(outcome.pixels)
            if outcome.status == "ok":
                for array in pending.arrays:
                    for place in array.numpy()[:, index]:
                        place[...] = next(squares)

    def _decoded(self, read: Reader, row: int, epoch: int, *, supervised: bool) -> DecodedCrops:
        crops = Crops(self._sides, self._scales, (self._seed, epoch, row), plain=self._plain)
        with BODIES.image():
            data = bytes_or_status(read)
            if isinstance(data, str):
                return DecodedCrops(data, [])
            options = DecodeOptions(white=self._images.white)
            return self._decode(data, self._images.preprocessing, crops, options, supervised=supervised)

    def _completed(self, pending: "_Pending") -> CroppedBatch:
        for work in pending.work:
            work.result()
        if self._images.marks is not None:
            self._images.marks.end(self._mark(pending.number))
        statuses, rows = pending.statuses, torch.tensor(pending.rows)
        self._images.check(pending.rows, statuses)
        good = [index for index, status in enumerate(statuses) if status == "ok"]
        failures = {row: status for row, status in zip(pending.rows, statuses, strict=True) if status != "ok"}
        if not good:
            kinds = ", ".join(f"{count} {status}" for status, count in sorted(Counter(statuses).items()))
            raise InputError(
                f"none of the {len(rows)} images of a batch can be used ({kinds}); check the source, then "
                "repeat the command: it resumes from the last saved state, if any"
            )
        if failures:
            instead = torch.arange(len(rows))
            for index in reversed(range(len(rows))):
                if statuses[index] != "ok":
                    instead[index] = instead[index + 1] if index < good[-1] else good[0]
            rows = rows[instead]
            for array in pending.arrays:
                array.copy_(array[:, instead])
        return CroppedBatch(rows, [array.permute(0, 1, 4, 2, 3) for array in pending.arrays], failures)


@dataclass
class _Pending:
    """A batch being decoded; ``statuses`` and ``arrays`` are filled image by image."""

    number: int
    rows: list[int]
    epoch: int
    arrays: list[Tensor]
    statuses: list[str]
    supervised: bool
    work: list[Future[None]] = field(default_factory=list)
