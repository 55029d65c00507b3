"""Training images: decoded once, held in memory as uint8, augmented in batches on the model's device."""

import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from scoring.errors import InputError
from scoring.images import Preprocessing
from scoring.images.budget import BODIES
from scoring.images.decoders import closing_decoders, decoder_for
from scoring.images.deep import WHITE
from scoring.images.raster import DecodeOptions
from scoring.marks import Marks
from scoring.system import free_memory
from trainers import ranks

BLOCK = 64  # neighbouring rows read together, to limit seeks
WINDOW = 128  # random blocks whose rows are shuffled together
HELD_SHARE = 0.8  # share of free memory for images
MARKED = 1024  # images per mark


def windows(n: int, *, epoch: int, seed: int) -> Iterator[Tensor]:
    """Yield the row numbers of an epoch in shuffle windows of 8,192 rows; the last may be shorter."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    blocks = torch.randperm(-(-n // BLOCK), generator=generator)
    for some in blocks.split(WINDOW):
        rows = (some[:, None] * BLOCK + torch.arange(BLOCK)).flatten()
        rows = rows[rows < n]
        yield rows[torch.randperm(len(rows), generator=generator)]


@dataclass(frozen=True)
class TrainingSet:
    """Images in memory.

    Attributes:
        pixels: uint8, shape (N, 3, size, size).
        labels: int64, shape (N,), or None.
        classes: the class names that labels index.
        failures: number of unusable images by status.
        losses: float64, shape (N,), computed by the user, or None.

    Raises:
        ValueError: for tensors of other types or shapes, or labels without a class.
    """

    pixels: Tensor
    labels: Tensor | None
    classes: list[str]
    failures: dict[str, int]
    losses: Tensor | None = None

    def __post_init__(self) -> None:
        pixels, labels = self.pixels, self.labels
        if pixels.dtype != torch.uint8 or len(pixels.shape) != 4 or pixels.shape[1] != 3:
            raise ValueError(
                f"pixels must be uint8, from 0 to 255, of shape (N, 3, S, S), got {pixels.dtype} of shape "
                f"{tuple(pixels.shape)}"
            )
        for name, values, dtype in (("labels", labels, torch.int64), ("losses", self.losses, torch.float64)):
            if values is not None and (values.dtype != dtype or values.shape != pixels.shape[:1]):
                expected = f"{dtype} of shape ({len(pixels)},)"
                raise ValueError(f"{name} must be {expected}, got {values.dtype} of shape {tuple(values.shape)}")
        if labels is not None and len(labels) and not 0 <= labels.min() <= labels.max() < len(self.classes):
            raise ValueError(
                f"labels must be from 0 to {len(self.classes) - 1}, of {len(self.classes)} classes, got "
                f"{int(labels.min())} to {int(labels.max())}"
            )

    @property
    def n(self) -> int:
        """Number of images."""
        return len(self.pixels)


def load_training_set(
    readers: Iterable[Callable[[], bytes]],
    labels: Sequence[object] | None,
    *,
    n: int,
    preprocessing: Preprocessing,
    losses: Sequence[float | None] | None = None,
    workers: int | None = None,
    marks: Marks | None = None,
    white: int = WHITE,
) -> TrainingSet:
    """Decode every image with the model's preprocessing and hold it in memory; broken ones are left out and counted.

    Args:
        readers: one callable per image, which returns its bytes or raises an error with a ``status``.
        labels: one per image, or None.
        n: number of images.
        preprocessing: of the model to be trained; views are cropped from the square that it cuts out.
        losses: computed by the user, one per image, or None.
        workers: decoding threads; by default one per core.
        marks: files in the run's folder that mark images being decoded, to detect images that crash the process.
        white: the value of white in 16-bit images.

    Raises:
        InputError: if the images do not fit in free memory, fewer than two are usable, or a usable image lacks a label
            or a loss.
    """
    size = preprocessing.size
    lack = lack_of_memory(n, size)
    if lack is not None:
        raise InputError(f"{lack}; use --limit or a smaller --size, or train with --stream")
    pixels = np.empty((n, size, size, 3), np.uint8)
    kept: list[int] = []
    failures: dict[str, int] = {}
    images = decode_all(readers, preprocessing, workers or os.cpu_count() or 1, marks, n=n, white=white)
    for row, image in enumerate(images):
        if isinstance(image, str):
            failures[image] = failures.get(image, 0) + 1
        else:
            pixels[len(kept)] = image
            kept.append(row)
    if len(kept) < 2:
        kinds = "".join(f", {count} {status}" for status, count in sorted(failures.items()))
        raise InputError(f"training needs at least 2 readable images, got {len(kept)} of {n}{kinds}; pass more")
    held = torch.from_numpy(pixels[: len(kept)]).permute(0, 3, 1, 2)
    numbers, classes = (None, []) if labels is None else number_labels([labels[row] for row in kept])
    values = None if losses is None else loss_tensor([losses[row] for row in kept])
    return TrainingSet(held, numbers, classes, failures, values)


def shared(load: Callable[[], TrainingSet]) -> TrainingSet:
    """Load images in the first process of a run and broadcast them to all others."""
    if ranks.group().size == 1:
        return load()
    about = ""
    if ranks.is_first():
        images = load()
        has = [images.labels is not None, images.losses is not None]
        about = json.dumps([images.n, images.pixels.shape[3], *has, images.classes, images.failures])
    about = ranks.first("images", lambda: about)
    if not ranks.is_first():
        n, side, has_labels, has_losses, classes, failures = json.loads(about)
        pixels = torch.empty(n, side, side, 3, dtype=torch.uint8).permute(0, 3, 1, 2)
        labels = torch.zeros(n, dtype=torch.int64) if has_labels else None
        losses = torch.empty(n, dtype=torch.float64) if has_losses else None
        images = TrainingSet(pixels, labels, classes, failures, losses)
    for values in (images.pixels.permute(0, 2, 3, 1), images.labels, images.losses):
        if values is not None:
            ranks.send(values)
    return images


def lack_of_memory(n: int, size: int, room: int | None = None) -> str | None:
    """Return why n images of ``size`` x ``size`` pixels cannot be held in memory; None if they can.

    ``room`` is the free memory, in bytes, of the device that also holds them; None for the CPU.
    """
    need, free, n_local = n * 3 * size * size, free_memory(), ranks.group().n_local
    free = None if free is None else free // n_local  # each process holds all images
    least = min((bytes_ for bytes_ in (free, room) if bytes_ is not None), default=None)
    if least is None or need <= HELD_SHARE * least:
        return None
    where = "are on the GPU" if least != free else "are free" if n_local == 1 else f"are free for each of {n_local}"
    return f"{n:,} images of {size} x {size} need {need / 1e9:.1f} GB of memory, {least / 1e9:.1f} GB {where}"


def number_labels(labels: Sequence[object] | pa.Array) -> tuple[Tensor, list[str]]:
    """Return the class index of each label, shape (N,), int64, and the class names.

    Args:
        labels: any objects, or an Arrow column of text or integers, which is numbered without an object per row.

    Raises:
        InputError: if a label is missing.
    """
    if isinstance(labels, pa.Array):
        encoded = labels.dictionary_encode(null_encoding="encode")
        values, codes = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
    else:
        number = {label: place for place, label in enumerate(dict.fromkeys(labels))}
        values, codes = list(number), np.array([number[label] for label in labels], np.int64)
    missing = int(np.isin(codes, [place for place, label in enumerate(values) if is_missing(label)]).sum())
    if missing:
        raise InputError(
            f"{missing} of {len(labels)} images have no label; drop them from the table or list first, or label them"
        )
    order = sorted(range(len(values)), key=lambda place: (str(type(values[place])), values[place]))
    rank = np.empty(len(values), np.int64)
    rank[order] = np.arange(len(values))
    return torch.from_numpy(rank[codes]), [str(values[place]) for place in order]


def is_missing(label: object) -> bool:
    """Return whether a label is null, NaN, or empty text, as in CSV."""
    return label is None or label == "" or label != label


def loss_tensor(losses: Sequence[float | None]) -> Tensor:
    """Return losses as a tensor, shape (N,), float64; raises InputError if a loss is missing or not finite."""
    values = torch.tensor([float("nan") if loss is None else float(loss) for loss in losses], dtype=torch.float64)
    wrong = int((~values.isfinite()).sum())
    if wrong:
        raise InputError(
            f"{wrong} of {len(values)} images have no finite loss in the column of losses (null, NaN or infinite); "
            "drop them first"
        )
    return values


def require_batch(n: int, batch_size: int) -> None:
    """Raise ``InputError`` if n images do not fill one batch."""
    if n < batch_size:
        raise InputError(
            f"expected at least one batch of {batch_size} images, got {n}; pass more images, or lower --batch-size to "
            f"{n} or less"
        )


def bytes_or_status(read: Callable[[], bytes]) -> bytes | str:
    """Return the bytes of an image, or the ``status`` of its read error."""
    try:
        return read()
    except Exception as error:
        status = getattr(error, "status", None)
        if not isinstance(status, str):
            raise
        return status


def decode_all(
    readers: Iterable[Callable[[], bytes]],
    preprocessing: Preprocessing,
    workers: int,
    marks: Marks | None = None,
    *,
    n: int = 0,
    white: int = WHITE,
) -> Iterator[NDArray[np.uint8] | str]:
    """Yield the pixels of each image in order, shape (S, S, 3), uint8; its status if it cannot be read or decoded.

    Args:
        readers: one callable per image, which returns its bytes or raises an error with a ``status``.
        preprocessing: of the model.
        workers: decoding threads.
        marks: one per 1,024 images while they are decoded. If a mark exists already, a process died there: each of
            these images is decoded in a separate process, and the image that kills it gets the status ``crashed``.
        n: number of images if known; many images are decoded by processes where these are faster.
        white: the value of white in 16-bit images.
    """
    decode, workers = decoder_for(workers, n)
    options = DecodeOptions(white=white)

    @BODIES.image()
    def work(read: Callable[[], bytes], supervised: bool) -> NDArray[np.uint8] | str:
        data = bytes_or_status(read)
        if isinstance(data, str):
            return data
        image = decode(data, preprocessing, options, supervised=supervised)
        return image.status if image.pixels is None else image.pixels

    waiting: deque[Future[NDArray[np.uint8] | str]] = deque()

    def decoded(pool: ThreadPoolExecutor) -> Iterator[NDArray[np.uint8] | str]:
        supervised = False
        for row, read in enumerate(readers):
            if marks is not None and row % MARKED == 0:
                supervised = marks.begin(row // MARKED)
            waiting.append(pool.submit(work, read, supervised))
            if len(waiting) >= 8 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    with closing_decoders(), ThreadPoolExecutor(workers) as pool:
        done = 0
        for done, image in enumerate(decoded(pool), 1):
            if marks is not None and done % MARKED == 0:
                marks.end(done // MARKED - 1)
            yield image
        if marks is not None and done % MARKED:
            marks.end(done // MARKED)


def batches(n: int, batch_size: int, *, epoch: int, seed: int, stream: bool = False) -> list[Tensor]:
    """Return the row numbers of every batch of a shuffled epoch; rows that do not fill the last batch are left out.

    Depends on its arguments only, so that a resumed run sees the same batches. With ``stream``, rows are shuffled
    within ``windows``.
    """
    if stream:
        order = torch.cat(list(windows(n, epoch=epoch, seed=seed)))
    else:
        order = torch.randperm(n, generator=torch.Generator().manual_seed(seed * 1_000_003 + epoch))
    size = min(batch_size, n)
    return [order[start : start + size] for start in range(0, n - size + 1, size)]
