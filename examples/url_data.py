"""The images of the URL benchmark: tables made once of the files in --data, for `curate cache` to read.

Upstream is tiny-imagenet. Its 200 classes are cut once, at random: most to train on, some to choose settings on, the
rest to report on as classes that no model was trained on. Downstream are photographs and drawings of other sources.
"""

import io
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import add_data as add_data
from named_data import open_data

from scoring.images import decode_rgb

UPSTREAM = ("tinyimagenet_train_a", "tinyimagenet_train_b", "tinyimagenet_train_c")
HELD_OUT = "tinyimagenet_val"
PEOPLE, VOTES = "cifar10_test", "cifar10h_test_0-1999"
SHARES = (0.7, 0.15)  # of the upstream classes: to train on, and to choose on
SEEN_PER_CLASS = 20  # held-out images of each class that is trained on
CROPS = (0.1, 0.75)  # side of a crop as a share of the short side, as in the authors' code


@dataclass(frozen=True)
class Downstream:
    """Where a downstream set is.

    Attributes:
        file: with the columns ``image`` and ``label``.
        domain: of the rows, in the column ``domain``; empty where the file has one.
        is_few: whether to learn from a few images of each of its classes, too.
    """

    file: str
    domain: str = ""
    is_few: bool = False


DOWNSTREAM = {  # to add a set, add a line
    "Caltech": Downstream("caltech_subset", is_few=True),
    "grocery": Downstream("grocery_160", is_few=True),
    "monkeys": Downstream("monkeys10_160", is_few=True),
    "aerial": Downstream("rsscn7_160", is_few=True),
    "photo": Downstream("pacs_160", "photo"),
    "cartoon": Downstream("pacs_160", "cartoon"),
    "sketch": Downstream("pacs_160", "sketch"),
    "art": Downstream("pacs_160", "art_painting"),
}
ALWAYS = (*UPSTREAM, HELD_OUT, PEOPLE, VOTES)
SEEN, CHOOSING, UNSEEN, VOTED = "seen", "choosing", "unseen", "people"  # the sets next to those downstream


@dataclass(frozen=True)
class Amounts:
    """How many images are taken.

    Attributes:
        per_class: to train estimators on, of each upstream class.
        limit: the most of each downstream set.
        shots: of each class downstream, to learn from a few.
        seeds: draws of those.
    """

    per_class: int = 125
    limit: int = 3000
    shots: int = 5
    seeds: int = 3


@dataclass(frozen=True)
class Pictures:
    """Encoded images with a key and a class each."""

    keys: list[str]
    labels: list[str]
    images: list[bytes]

    def take(self, rows: Iterable[int]) -> "Pictures":
        """Return some, in the order given."""
        at = list(rows)
        return Pictures(*([values[row] for row in at] for values in (self.keys, self.labels, self.images)))

    def write(self, path: Path) -> None:
        """Write a table that `curate cache` reads, whole or not at all."""
        part = path.with_suffix(".part")
        table = pa.table({"key": self.keys, "label": self.labels, "image": pa.array(self.images, pa.binary())})
        pq.write_table(table, part, row_group_size=1000)
        part.replace(path)


def use_data(folders: Sequence[str] | None, *, is_read: bool) -> Path:
    """Return the folder of the data that ``--data`` names; sets of yours stand in for ``DOWNSTREAM``."""
    data = open_data(folders, dict.fromkeys([*ALWAYS, *(where.file for where in DOWNSTREAM.values())]), sets=True)
    if data.added:
        DOWNSTREAM.clear()
        DOWNSTREAM.update({name: Downstream(name, is_few=True) for name in data.added})
    return data.need(*ALWAYS, *(where.file for where in DOWNSTREAM.values())) if is_read else data.folder


def class_parts(labels: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Return the classes to train on, to choose on and to report on, each ascending; the cut is the same always."""
    classes = np.unique(labels)
    drawn = classes[np.random.default_rng(0).permutation(len(classes))]
    until = np.round(np.cumsum(SHARES) * len(classes)).astype(int)
    return tuple(np.sort(part) for part in np.split(drawn, until))


def pictures_of(data: Path, file: str, name: str, *, domain: str = "") -> Pictures:
    """Return the images of a file; keys are NAME/FILE/ROW and classes NAME/CLASS, so that no two sets share any."""
    table = pq.read_table(data / f"{file}.parquet")
    rows = np.arange(table.num_rows)
    if domain:
        rows = np.flatnonzero(np.array(table["domain"].to_pylist()) == domain)
    labels, images = table["label"].to_pylist(), table["image"].to_pylist()
    keys = [f"{name}/{file}/{row}" for row in rows]
    return Pictures(keys, [f"{name}/{labels[row]:04d}" for row in rows], [images[row] for row in rows])


def upstream(data: Path, *, per_class: int | None) -> Pictures:
    """Return images of the classes to train on, none with the bytes of a held-out one: the first of each, or all."""
    held = pq.read_table(data / f"{HELD_OUT}.parquet", columns=["label", "image"])
    known = {f"{SEEN}/{label:04d}" for label in class_parts(held["label"].to_numpy().astype(np.int64))[0]}
    bytes_held, left = set(held["image"].to_pylist()), dict.fromkeys(known, per_class or 10**9)
    pictures = Pictures([], [], [])
    for file in UPSTREAM:
        some = pictures_of(data, file, SEEN)
        for key, label, image in zip(some.keys, some.labels, some.images, strict=True):
            if left.get(label, 0) and image not in bytes_held:
                left[label] -= 1
                pictures.keys.append(key)
                pictures.labels.append(label)
                pictures.images.append(image)
    return pictures


def measured(data: Path, limit: int) -> Pictures:
    """Return every image that uncertainties are measured on, set by set."""
    held = pictures_of(data, HELD_OUT, "")
    classes = np.array([int(label.strip("/")) for label in held.labels])
    parts = zip((SEEN, CHOOSING, UNSEEN), class_parts(classes), (SEEN_PER_CLASS, None, None), strict=True)
    parts_made = [_named(held.take(_first(classes, part, most)), name) for name, part, most in parts]
    for name, where in DOWNSTREAM.items():
        some = pictures_of(data, where.file, name, domain=where.domain)
        parts_made.append(some.take(np.sort(np.random.default_rng(0).permutation(len(some.keys))[:limit])))
    voted = pq.read_table(data / f"{VOTES}.parquet", columns=["id"])["id"].to_numpy()
    parts_made.append(pictures_of(data, PEOPLE, VOTED).take(voted[:limit]))
    columns = zip(*(_columns(part) for part in parts_made), strict=True)
    return Pictures(*([value for part in parts for value in part] for parts in columns))


def votes(data: Path, limit: int) -> NDArray[np.float64]:
    """Return how many annotators chose each class of the images of ``people``, shape (N, 10)."""
    counts = pq.read_table(data / f"{VOTES}.parquet", columns=["counts"])["counts"].to_pylist()
    return np.array(counts[:limit], np.float64)


def cropped(pictures: Pictures) -> Pictures:
    """Return the middles of unseen and downstream images: random squares of 10 to 75 % of the short side, as PNG."""
    some = pictures.take(row for row, key in enumerate(pictures.keys) if key.split("/")[0] in (UNSEEN, *DOWNSTREAM))
    generator = np.random.default_rng(0)
    return Pictures(some.keys, some.labels, [middle(image, generator.uniform(*CROPS)) for image in some.images])


def middle(image: bytes, share: float) -> bytes:
    """Return the square in the middle of an image, its side a share of the short side, as PNG."""
    pixels = decode_rgb(image)
    height, width = pixels.shape[:2]
    side = max(1, round(min(height, width) * share))
    top, left = (height - side) // 2, (width - side) // 2
    stored = io.BytesIO()
    Image.fromarray(pixels[top : top + side, left : left + side]).save(stored, "PNG")
    return stored.getvalue()


def shots(pictures: Pictures, amounts: Amounts) -> Pictures:
    """Return a few images of each class of the sets to learn a little from, for each seed; keys are SEED/KEY."""
    labels = np.array(pictures.labels)
    few = [name for name, where in DOWNSTREAM.items() if where.is_few]
    classes = [label for label in np.unique(labels) if label.split("/")[0] in few]
    keys, rows = [], []
    for seed in range(amounts.seeds):
        for at, label in enumerate(classes):
            drawn = np.random.default_rng([seed, at]).permutation(np.flatnonzero(labels == label))
            rows += drawn[: amounts.shots].tolist()
            keys += [f"{seed}/{pictures.keys[row]}" for row in drawn[: amounts.shots]]
    return Pictures(keys, *_columns(pictures.take(rows))[1:])


def write_all(data: Path, folder: Path, amounts: Amounts) -> None:
    """Write the tables that are missing yet: ``train``, ``measured``, ``cropped`` and ``shots``."""
    folder.mkdir(parents=True, exist_ok=True)
    made: list[Pictures] = []

    def all_measured() -> Pictures:
        if not made:
            made.append(measured(data, amounts.limit))
        return made[0]

    tables: dict[str, Callable[[], Pictures]] = {
        "train": lambda: upstream(data, per_class=amounts.per_class),
        "measured": all_measured,
        "cropped": lambda: cropped(all_measured()),
        "shots": lambda: shots(all_measured(), amounts),
    }
    for name, make in tables.items():
        if not (folder / f"{name}.parquet").exists():
            make().write(folder / f"{name}.parquet")


def _columns(pictures: Pictures) -> tuple[list[str], list[str], list[bytes]]:
    return pictures.keys, pictures.labels, pictures.images


def _named(pictures: Pictures, name: str) -> Pictures:
    """Return images whose keys and classes begin with "/" under the name of a set."""
    return Pictures([name + key for key in pictures.keys], [name + label for label in pictures.labels], pictures.images)


def _first(classes: NDArray[np.int64], chosen: NDArray[np.int64], most: int | None) -> list[int]:
    """Return the first rows of every class wanted, or all of them."""
    return [row for label in chosen for row in np.flatnonzero(classes == label)[:most].tolist()]
