"""Images of the two studies, scored once: embeddings, kappas and labels, and what junk is made of."""

import io
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image, ImageFilter

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from named_data import StudyData
from named_data import add_data as add_data
from named_data import open_data as open_data

import curate
from curate.columns import is_less_certain
from curate.selectors.ranked import rank_share

MODEL = "trio"  # the numbers in docs/ are of this model; the larger one came later
PICTURES, PEOPLE = "cifar10_train", "cifar10n_train"
SEEN = 25_000  # its backbone has learned from the labels of CIFAR-10 train rows before this one
JUNK_SHARE = 0.2
JUNK = ("noise", "blur", "crop", "box")
QUALITY = 95  # of the JPEG that junk is stored as


@dataclass(frozen=True)
class Scored:
    """A scored table as arrays; N rows in the order of its source.

    Attributes:
        vectors: embeddings, shape (N, D) float16, unit length.
        columns: every other column that is one number a row, by name, each of shape (N,).
    """

    vectors: NDArray[np.float16]
    columns: dict[str, NDArray]

    def __len__(self) -> int:
        return len(self.vectors)

    def take(self, rows: NDArray[np.int64]) -> "Scored":
        """Return some of the rows."""
        return Scored(self.vectors[rows], {name: values[rows] for name, values in self.columns.items()})

    def quality(self, column: str) -> NDArray[np.float32]:
        """Return how certain each row is next to the others by a kappa or unc column: its rank in (0, 1)."""
        values = self.columns[column].astype(np.float64)
        return rank_share(-values if is_less_certain(column) else values).astype(np.float32)

    @property
    def certainty_columns(self) -> list[str]:
        """Columns to determine quality by: of a method with a kappa, the kappa."""
        kappas = [name for name in self.columns if name.startswith("kappa_")]
        return kappas + [
            name for name in self.columns if name.startswith("unc_") and f"kappa_{name[4:]}" not in self.columns
        ]


def scored(source: Path, out: Path) -> Scored:
    """Return a table of images scored by the model; what has been scored is read.

    Args:
        source: Parquet with columns ``key`` and ``image``; columns of numbers pass through.
        out: where the scored table is, or goes.
    """
    if not out.exists():
        print(f"$ curate score {source} -o {out} --model {MODEL} --no-fit", flush=True)
        curate.score(str(source), out, model=MODEL, fit=False)
    table = pq.read_table(out)
    failed = sum(status != "ok" for status in table.column("status").to_pylist())
    if failed:
        raise SystemExit(f"{failed} of {table.num_rows} images of {source} could not be scored; see {out}")
    embedding = table.column("embedding").combine_chunks()
    vectors = embedding.values.to_numpy(zero_copy_only=False).reshape(len(embedding), -1)
    numbers = {
        name: table.column(name).to_numpy()
        for name, kind in zip(table.schema.names, table.schema.types, strict=True)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind)
    }
    return Scored(vectors, numbers)


def write_source(path: Path, name: str, images: list[bytes], columns: Mapping[str, Any]) -> None:
    """Write images for ``scored``; keys are NAME/ROW."""
    keys = pa.array([f"{name}/{row}" for row in range(len(images))])
    table = pa.table({"key": keys, **columns, "image": pa.array(images, pa.binary())})
    part = path.with_suffix(".part")
    pq.write_table(table, part, row_group_size=2000)
    part.replace(path)


def cifar_pool(data: StudyData, work: Path, limit: int | None = None) -> Scored:
    """Return CIFAR-10 train rows that the backbone of the model has not seen, with CIFAR-10N's labels.

    A file of yours instead of CIFAR-10's is taken from its first row on, and needs no labels of annotators.

    Args:
        data: with cifar10_train and cifar10n_train.
        work: where tables go.
        limit: the first rows only.
    """
    source = work / "pool_source.parquet"
    if not source.exists():
        pictures = pq.read_table(data.need(PICTURES) / f"{PICTURES}.parquet")
        pictures = pictures.slice(0 if PICTURES in data.replaced else SEEN, limit)
        labels = {"label": pictures.column("label")}
        if PICTURES not in data.replaced or PEOPLE in data.replaced:
            labels |= noisy_labels(pictures, data.need(PEOPLE) / f"{PEOPLE}.parquet")
        write_source(source, "train", pictures.column("image").to_pylist(), labels)
    return scored(source, work / "pool.parquet")


def noisy_labels(pictures: pa.Table, path: Path) -> dict[str, pa.ChunkedArray]:
    """Return the labels that annotators gave images, by the images' ids."""
    noisy = pq.read_table(path)
    noisy = noisy.filter(pc.is_in(noisy.column("id"), pictures.column("id").combine_chunks()))
    if not pictures.column("id").equals(noisy.column("id")):
        raise SystemExit(f"error: {PICTURES} and {path} list different rows; expected the same id in both, in order")
    return {name: noisy.column(name) for name in ("worse_label", "random_label1", "random_label2", "random_label3")}


def labelled(folder: Path, files: list[str], work: Path, name: str, limit: int | None = None) -> Scored:
    """Return the scored rows of files with columns ``image`` and ``label``, one after another."""
    source = work / f"{name}_source.parquet"
    if not source.exists():
        tables = [pq.read_table(folder / file, columns=["image", "label"]) for file in files]
        table = pa.concat_tables(tables).slice(0, limit)
        write_source(source, name, table.column("image").to_pylist(), {"label": table.column("label")})
    return scored(source, work / f"{name}.parquet")


def junk_rows(n_rows: int) -> NDArray[np.int64]:
    """Return the rows of a pool that have a junk version, ascending: ``JUNK_SHARE`` of them, drawn once for all."""
    return np.sort(np.random.default_rng(0).choice(n_rows, round(JUNK_SHARE * n_rows), replace=False))


def cifar_junk(work: Path) -> Scored:
    """Return the junk versions of ``junk_rows`` of the pool, in their order; column ``kind`` says which of ``JUNK``."""
    source = work / "junk_source.parquet"
    if not source.exists():
        table = pq.read_table(work / "pool_source.parquet", columns=["image", "label"])
        rows = junk_rows(table.num_rows)
        table, generator = table.take(pa.array(rows)), np.random.default_rng(1)
        kinds = np.arange(len(rows)) % len(JUNK)
        images = [
            spoilt(picture, JUNK[kind], generator)
            for picture, kind in zip(table.column("image").to_pylist(), kinds, strict=True)
        ]
        write_source(source, "junk", images, {"label": table.column("label"), "kind": pa.array(kinds)})
    return scored(source, work / "junk.parquet")


def spoilt(picture: bytes, kind: str, generator: np.random.Generator) -> bytes:
    """Return an image made junk, as JPEG of the same size.

    Args:
        picture: encoded.
        kind: "noise": every pixel drawn again. "blur": by a Gaussian of a quarter of the side. "crop": an eighth of
            width and height, enlarged. "box": a grey box over 85 to 100 % of width and height.
        generator: of what is drawn.
    """
    image = Image.open(io.BytesIO(picture)).convert("RGB")
    width, height = image.size
    if kind == "noise":
        image = Image.fromarray(generator.integers(0, 256, (height, width, 3), np.uint8))
    elif kind == "blur":
        image = image.filter(ImageFilter.GaussianBlur(width / 4))
    elif kind == "crop":
        part = (max(1, width // 8), max(1, height // 8))
        left, top = (int(generator.integers(0, full - side + 1)) for full, side in zip(image.size, part, strict=True))
        box = (left, top, left + part[0], top + part[1])
        image = image.crop(box).resize((width, height), Image.Resampling.BICUBIC)
    elif kind == "box":
        size = tuple(round(full * generator.uniform(0.85, 1)) for full in image.size)
        left, top = (int(generator.integers(0, full - side + 1)) for full, side in zip(image.size, size, strict=True))
        image.paste((127, 127, 127), (left, top, left + size[0], top + size[1]))
    else:
        raise ValueError(f"kind must be one of {', '.join(JUNK)}, got {kind!r}")
    stored = io.BytesIO()
    image.save(stored, "JPEG", quality=QUALITY)
    return stored.getvalue()
