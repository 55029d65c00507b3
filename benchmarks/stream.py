"""SimCLR from images in memory and from images that are read in each epoch, in one run: what an image costs in each.

    python benchmarks/stream.py --source DATA/caltech_subset.parquet [--backbone resnet18] [--size 224]

The training is the product's own. Both ways take turns, and the first epoch of each turn is left out. Seconds of the
processor are those of this process, where fewer than four threads decode; on a machine that others use they say more
than seconds by the clock. Rates of one run can be compared with one another, and with nothing else.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from curate.manifest.sources import open_manifest
from curate.training.recipe import recipe
from scoring.images import Preprocessing
from scoring.runner import select_device, select_precision
from trainers.data import TrainingSet, load_training_set
from trainers.loop import train
from trainers.monitor import Epoch, Monitor
from trainers.stream import ImageStream

Reader = Callable[[], bytes]


class Clock:
    """Notes when each epoch ends: seconds by the clock and of the processor."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def begin(self, step: int) -> None:
        """Nothing has ended yet."""

    def add(self, epoch: Epoch) -> None:
        """Note the end of an epoch."""
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        self.ends.append((time.perf_counter(), time.process_time()))

    def seconds(self) -> tuple[float, float]:
        """Return what the epochs after the first took together."""
        (wall, processor), (last, used) = self.ends[0], self.ends[-1]
        return last - wall, used - processor


def main() -> None:
    """Measure, print a line for each way and one of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", required=True)
    parser.add_argument("--backbone", default="resnet18")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--n", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2, help="epochs in a turn, and one that is not counted")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    device = select_device(options.device)
    manifest = open_manifest(options.source)
    files = [read() for read in manifest.readers(0, min(options.n, manifest.n_rows))]
    readers: list[Reader] = [data.__bytes__ for data in files]
    preprocessing = Preprocessing(size=options.size, resize=options.size)

    def read(windows: Iterable[Tensor]) -> Iterator[Reader]:
        return (readers[row] for rows in windows for row in rows.tolist())

    data: dict[str, TrainingSet | ImageStream] = {
        "in memory": load_training_set(readers, None, n=len(readers), preprocessing=preprocessing),
        "streamed": ImageStream(len(readers), read, preprocessing),
    }
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in data}
    for turn in range(options.turns):
        for name, images in data.items():
            made_of = {"backbone": options.backbone, "size": options.size, "batch_size": options.batch_size}
            made_of |= {"epochs": options.epochs + 1, "precision": select_precision("auto", device)}
            config = recipe("simclr", made_of | {"stream": name == "streamed"})
            clock = Clock()
            with tempfile.TemporaryDirectory() as folder:
                monitor = Monitor(save_every=1e9, course=clock)
                train(config, images, state=Path(folder) / f"state{turn}", device=device, monitor=monitor)
            seconds[name].append(clock.seconds())
            print(
                f"turn {turn + 1}, {name}: {seconds[name][-1][0]:.1f} s, {seconds[name][-1][1]:.1f} s of the processor"
            )
    used = len(readers) // options.batch_size * options.batch_size * options.epochs * options.turns
    costs = {}
    for name, turns in seconds.items():
        wall, processor = (sum(each) / used * 1e3 for each in zip(*turns, strict=True))
        costs[name] = {"wall_ms": wall, "processor_ms": processor}
        print(f"{name:10} {wall:8.2f} ms an image, {processor:8.2f} ms of the processor")
    print(json.dumps({"backbone": options.backbone, "size": options.size, "device": str(device), "costs": costs}))


if __name__ == "__main__":
    main()
