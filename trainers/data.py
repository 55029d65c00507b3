"""Images for training: decoded once, held as uint8, augmented in batches where the model is."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from scoring.errors import InputError
from scoring.images import DecodedImage, Preprocessing, decode


@dataclass(frozen=True)
class TrainingSet:
    """Images in memory.

    Attributes:
        pixels: uint8, shape (N, 3, size, size).
        labels: int64, shape (N,), or None.
        classes: the label that each number stands for.
        failures: status -> how many images could not be used for it.
    """

    pixels: Tensor
    labels: Tensor | None
    classes: list[str]
    failures: dict[str, int]


def load_training_set(
    readers: Iterable[Callable[[], bytes]],
    labels: Sequence[object] | None,
    *,
    n: int,
    size: int,
    workers: int | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> TrainingSet:
    """Decode every image to ``size`` x ``size`` and hold it in memory; a broken one is left out and counted.

    Args:
        readers: one callable an image, which returns its bytes or raises an error with a ``status``.
        labels: one an image, or None.
        n: number of images.
        size: side of what is held; the centre square of each image.
        workers: decoding threads; by default one a core.
        report: told how many images are done.

    Raises:
        InputError: if the images do not fit in the memory that is free, or fewer than two can be used.
    """
    need, free = n * 3 * size * size, free_memory()
    if free is not None and need > 0.8 * free:
        raise InputError(
            f"{n:,} images of {size} x {size} need {need / 1e9:.1f} GB of memory, {free / 1e9:.1f} GB are free; "
            "use --limit or a smaller --size"
        )
    pixels = np.empty((n, size, size, 3), np.uint8)
    kept: list[int] = []
    failures: dict[str, int] = {}
    for row, image in enumerate(
        _decode_all(readers, Preprocessing(size=size, resize=size), workers or os.cpu_count() or 1)
    ):
        if isinstance(image, str) or image.pixels is None:
            status = image if isinstance(image, str) else image.status
            failures[status] = failures.get(status, 0) + 1
        else:
            pixels[len(kept)] = image.pixels
            kept.append(row)
        report(row + 1)
    if len(kept) < 2:
        kinds = "".join(f", {count} {status}" for status, count in sorted(failures.items()))
        raise InputError(f"training needs at least 2 readable images, got {len(kept)} of {n}{kinds}; give more")
    held = torch.from_numpy(pixels[: len(kept)]).permute(0, 3, 1, 2)
    if labels is None:
        return TrainingSet(held, None, [], failures)
    used = [labels[row] for row in kept]
    if any(label is None for label in used):
        raise InputError(f"{sum(label is None for label in used)} of {len(used)} images have no label; drop them first")
    classes = sorted(set(used), key=lambda label: (str(type(label)), label))
    number = {label: at for at, label in enumerate(classes)}
    return TrainingSet(held, torch.tensor([number[label] for label in used]), [str(c) for c in classes], failures)


def free_memory() -> int | None:
    """Return the bytes that can be taken without swapping, or None where the system does not say."""
    found = []
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = (line.split() for line in meminfo.read_text().splitlines())
        found += [int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"]
    limit, used = Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current")
    if limit.exists() and used.exists() and limit.read_text().strip() != "max":
        found.append(int(limit.read_text()) - int(used.read_text()))
    return min(found, default=None)


def _decode_all(
    readers: Iterable[Callable[[], bytes]], preprocessing: Preprocessing, workers: int
) -> Iterator[DecodedImage | str]:
    """Yield one decoded image a reader, in order; a status where the bytes could not be read."""

    def work(read: Callable[[], bytes]) -> DecodedImage | str:
        try:
            data = read()
        except Exception as error:
            status = getattr(error, "status", None)
            if not isinstance(status, str):
                raise
            return status
        return decode(data, preprocessing)

    waiting: deque[Future[DecodedImage | str]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        for read in readers:
            waiting.append(pool.submit(work, read))
            if len(waiting) >= 8 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def batches(n: int, batch_size: int, *, epoch: int, seed: int) -> list[Tensor]:
    """Return the rows of every batch of an epoch, shuffled; rows that do not fill the last batch sit this one out.

    A function of its arguments alone, so a resumed run sees what an undisturbed one would.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + epoch)
    order = torch.randperm(n, generator=generator)
    size = min(batch_size, n)
    return [order[start : start + size] for start in range(0, n - size + 1, size)]
