"""Sets of labelled images, scored once by the package, and kept in a folder for reruns."""

import hashlib
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from torch import Tensor

import curate
from curate.columns import OK
from curate.statistics.degradations import laplacian_variance
from curate.tables.table import embedding_matrix
from scoring.cards import find_checkpoint, read_header
from scoring.checkpoint import load_model, save_checkpoint
from scoring.images import decode_rgb
from scoring.model import ScoringModel

RECIPE = 1  # another number where images are made in another way: what was scored before is scored again
DEVELOPMENT = {  # name -> file, and the domain where the file holds several
    "grocery": ("grocery_160", None),
    "monkeys": ("monkeys10_160", None),
    "rsscn7": ("rsscn7_160", None),
    "PACS photo": ("pacs_160", "photo"),
    "PACS cartoon": ("pacs_160", "cartoon"),
    "PACS sketch": ("pacs_160", "sketch"),
    "PACS art": ("pacs_160", "art_painting"),
}
SHARPNESS = "laplacian_variance"
Scores = dict[str, np.ndarray]  # name -> uncertainty of N rows, shape (N,), higher is less certain


@dataclass(frozen=True)
class Images:
    """N encoded images with their classes.

    Attributes:
        data: N encoded images.
        label: shape (N,), int64.
        kind: what each row is, N words; such as the kind of junk.
    """

    data: list[bytes]
    label: np.ndarray
    kind: list[str]

    def take(self, rows: np.ndarray) -> "Images":
        """Return some rows, in the order given."""
        return Images([self.data[row] for row in rows], self.label[rows], [self.kind[row] for row in rows])


@dataclass(frozen=True)
class Dataset:
    """A scored table of N images, as arrays.

    Attributes:
        name: of the set.
        path: the scored table.
        source: the table of images that was scored; it is there only if it was to be kept.
        embedding: unit vectors, shape (N, D), float32.
        label: shape (N,), int64.
        kind: N words; see ``Images``.
        scores: the model's own columns, as uncertainties.
        baselines: of the image alone: fewer bytes per pixel, and a lower variance of the Laplacian.
    """

    name: str
    path: Path
    source: Path
    embedding: Tensor
    label: Tensor
    kind: np.ndarray
    scores: Scores
    baselines: Scores


@dataclass(frozen=True)
class Scored:
    """The folder of scored tables of one model.

    Attributes:
        model: a name that ``curate score`` knows, or a checkpoint.
        folder: where its tables are kept.
    """

    model: str
    folder: Path

    @classmethod
    def of(cls, model: str, work: Path) -> "Scored":
        """Return the folder of a model: its name and the start of its digest."""
        folder = work / f"{Path(model).stem}-{read_header(find_checkpoint(model))['digest'][:12]}"
        folder.mkdir(parents=True, exist_ok=True)
        return cls(model, folder)

    def random_weights(self) -> "Scored":
        """Return the folder of the same network and heads with random weights."""
        path = self.folder / "random.safetensors"
        trained, card = load_model(self.model)
        if not path.exists():
            torch.manual_seed(0)
            of_model = ("digest", "format", "backbone", "heads", "preprocessing")
            about = {name: value for name, value in card.items() if name not in of_model}
            parts = tuple(replace(part, packaged=None) for part in trained.spec.parts)
            spec = replace(trained.spec, parts=parts, projection=0)  # an untrained one would be all zeros
            save_checkpoint(path, ScoringModel(spec).eval(), about)
        return Scored.of(str(path), self.folder)

    def dataset(self, name: str, recipe: str, make: Callable[[], Images], *, keep_images: bool = True) -> Dataset:
        """Return a scored set; it is made and scored where the folder does not hold it yet.

        Args:
            name: of the set; the start of the file's name.
            recipe: whatever decides which images ``make`` returns.
            make: the images.
            keep_images: leave the table of images next to the table of scores.
        """
        digest = hashlib.sha256(f"{RECIPE} {recipe}".encode()).hexdigest()[:8]
        out = self.folder / f"{name.replace(' ', '_')}-{digest}.parquet"
        source = out.with_suffix(".images.parquet")
        if not out.exists():
            images = make()
            keys = [f"{row:06d}" for row in range(len(images.data))]
            columns = {"key": keys, "label": images.label, "kind": images.kind}
            columns |= {SHARPNESS: sharpness(images.data), "image": images.data}
            pq.write_table(pa.table(columns), source, row_group_size=1000)
            curate.score(source, out, model=self.model, key="key", device="cpu", fit=False)
            if not keep_images:
                source.unlink()
        return read_dataset(name, out, source)


def read_dataset(name: str, path: Path, source: Path) -> Dataset:
    """Return a scored table as arrays; ValueError where an image could not be scored."""
    table = pq.read_table(path)
    if set(table["status"].to_pylist()) != {OK}:
        raise ValueError(f"{path} has images that could not be scored")
    embedding = embedding_matrix(table["embedding"].combine_chunks()).astype(np.float32)
    pixels = table["width"].to_numpy().astype(float) * table["height"].to_numpy()
    return Dataset(
        name=name,
        path=path,
        source=source,
        embedding=torch.nn.functional.normalize(torch.from_numpy(embedding), dim=1),
        label=torch.from_numpy(np.unique(table["label"].to_numpy(), return_inverse=True)[1]),
        kind=np.array(table["kind"].to_pylist()),
        scores=scores_in(table),
        baselines={
            "fewer bytes per pixel": -table["n_bytes"].to_numpy() / pixels,
            "lower Laplacian": -table[SHARPNESS].to_numpy(),
        },
    )


def scores_in(table: pa.Table) -> Scores:
    """Return every score column as an uncertainty, ``kappa_X`` as 1/kappa where there is no ``unc_X``."""
    names = table.schema.names
    scores = {name: table[name].to_numpy().astype(float) for name in names if name.startswith("unc_")}
    for name in (each for each in names if each.startswith("kappa_")):
        scores.setdefault(f"unc_{name.removeprefix('kappa_')}", 1 / table[name].to_numpy().astype(float))
    return scores


def stamp(path: Path) -> str:
    """Return what separates a file from another one of its name."""
    return f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}"


def images_of(path: Path, domain: str | None = None, limit: int | None = None) -> Images:
    """Return the images of a data file, of one domain alone if it is given."""
    table = pq.read_table(path, columns=["label", "image"] + ["domain"] * (domain is not None))
    if domain is not None:
        table = table.filter(pa.compute.equal(table["domain"], domain))
    table = table.slice(0, limit)
    return Images(table["image"].to_pylist(), table["label"].to_numpy().astype(np.int64), [""] * table.num_rows)


def development(data: Path, name: str) -> tuple[str, Callable[[], Images]]:
    """Return the recipe of a development set and how to read it."""
    file, domain = DEVELOPMENT[name]
    path = data / f"{file}.parquet"
    return f"{stamp(path)} {domain}", lambda: images_of(path, domain)


def png(pixels: np.ndarray) -> bytes:
    """Return an image, (H, W, 3), rounded to 8 bits, without loss."""
    return _encoded(pixels, "PNG", compress_level=1)


def jpeg(pixels: np.ndarray) -> bytes:
    """Return an image, (H, W, 3), rounded to 8 bits, as a JPEG of quality 90."""
    return _encoded(pixels, "JPEG", quality=90)


def _encoded(pixels: np.ndarray, kind: str, **options: int) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.clip(np.rint(pixels), 0, 255).astype(np.uint8)).save(out, kind, **options)
    return out.getvalue()


def square(data: bytes) -> Tensor:
    """Return the central square of an image at its original size, (3, S, S), float32 in [0, 255]."""
    pixels = decode_rgb(data)
    side = min(pixels.shape[:2])
    top, left = (pixels.shape[0] - side) // 2, (pixels.shape[1] - side) // 2
    part = np.ascontiguousarray(pixels[top : top + side, left : left + side])
    return torch.from_numpy(part).permute(2, 0, 1).float()


def sharpness(images: list[bytes]) -> np.ndarray:
    """Return the variance of the Laplacian of images at their original size, shape (N,)."""
    planes = (torch.from_numpy(decode_rgb(data)).permute(2, 0, 1)[None] for data in images)
    return np.array([float(laplacian_variance(image)) for image in planes])
