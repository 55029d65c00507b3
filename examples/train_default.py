"""How the model `world` was made, from images and an installed package to the checkpoint, by the commands that made it.

    python examples/train_default.py FOLDER OUT [--width 384] [--evaluation MEASURED.json]

FOLDER holds, as Parquet with the encoded bytes in the column `image`: tinyimagenet_train_a.parquet and
cifar10_train.parquet (with `label`), photos_unlabelled.parquet (with `source` and `file`).

1. The backbone: two networks side by side, frozen (`join_trunks.py`).
2. Two caches of features. `views` is of labelled images and random views of them, some with noise, a grey box or worse.
   `damaged` is of images and damaged views of them; drawings made out of photographs are among the images, since lines
   on white are an image, too.
3. Four heads on the caches, each added to the checkpoint of the one before: MCInfoNCE and loss prediction by labels,
   VI-SimSiam without, and junk.
4. A narrower embedding: a projection, measured on the images of `views`. The heads stay as they are.

What is there already is not made again, and a cache that was cut off goes on. About half an hour on two CPU cores.
"""

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from joined import projected
from PIL import Image, ImageFilter

from scoring.checkpoint import load_model, save_checkpoint
from trainers.cache import PLAIN, open_cache

TINY, CIFAR = "tinyimagenet_train_a", "cifar10_train"
PHOTOS = "photos_unlabelled"
VIEWS = {TINY: 6000, CIFAR: 6000}  # and all photographs whose class the name of the file says
DAMAGED = {PHOTOS: 3342, TINY: 2500, CIFAR: 1000}
DRAWINGS = 1200
EPOCHS = {"views": 4, "damaged": 5}  # of the caches: the images, and views of them
LICENCE = (
    "Apache-2.0 weights of EfficientNet-Lite0 (trained on ImageNet); trio's backbone and all heads for research use, "
    "non-commercial in part (tiny-imagenet, CIFAR-10, ImageNet samples, Caltech-101, dogs and cats, flowers)"
)
NOTE = (
    "unc_junk: whether there is an image to learn from at all. unc_losspred: how wrong a classifier of tiny-imagenet, "
    "CIFAR-10 and a hundred kinds of photographs would be; kappa_mcinfonce and kappa_visimsiam: how well views and "
    "images of one kind agree. The last three say little about which image of another domain is mistaken: fit that"
)
Row = tuple[str, str | None, bytes]


def rows_of(folder: Path, name: str, n: int | None = None) -> Iterator[Row]:
    """Yield key, class and bytes of n random images of a file, in their order; of all where None."""
    table = pq.read_table(folder / f"{name}.parquet")
    order = np.random.default_rng(0).permutation(table.num_rows)[:n]
    for at in np.sort(order).tolist():
        yield f"{name}/{at}", label_of(table, name, at), table["image"][at].as_py()


def label_of(table: pa.Table, name: str, row: int) -> str | None:
    """Return the class of an image, by a rule for each file; None where the file does not say."""
    if name != PHOTOS:
        return f"{name.split('_')[0]}/{table['label'][row].as_py()}"
    source, path = table["source"][row].as_py(), table["file"][row].as_py().split("/")
    return f"{source}/{path[-2]}" if source in ("caltech101", "dog_cat", "flowers") else None


def drawing(data: bytes, generator: np.random.Generator) -> bytes:
    """Return a drawing of a photograph: its steepest edges as lines on white, some with flat colours between.

    Strokes are thin or thick, and the drawing fills the page or a part of it.
    """
    photo = Image.open(io.BytesIO(data)).convert("RGB")
    grey = np.asarray(photo.convert("L").filter(ImageFilter.GaussianBlur(generator.uniform(1, 3.5))), float)
    steep = np.hypot(*np.gradient(grey))
    if generator.random() < 0.5:  # strokes with soft ends
        steep /= max(float(np.percentile(steep, 99)), 1.0)
        lines = 255 * (1 - np.clip((steep - generator.uniform(0.15, 0.4)) * generator.uniform(2, 6), 0, 1))
        drawn = Image.fromarray(lines.astype(np.uint8))
    else:
        drawn = Image.fromarray(255 * (~ridges(steep, generator.uniform(60, 90))).astype(np.uint8))
        drawn = drawn.filter(ImageFilter.MinFilter(3)) if generator.random() < 0.5 else drawn
    page = np.asarray(drawn.convert("RGB"))
    if generator.random() < 0.3:
        step = 256 / int(generator.integers(3, 6))
        flat = np.floor(np.asarray(photo.filter(ImageFilter.MedianFilter(5)), float) / step) * step + step / 2
        page = np.minimum(page, flat.clip(0, 255).astype(np.uint8))
    share = generator.uniform(0.5, 1)
    paper = Image.new("RGB", (round(photo.width / share), round(photo.height / share)), "white")
    at = [int(generator.integers(full - part + 1)) for full, part in zip(paper.size, photo.size, strict=True)]
    paper.paste(Image.fromarray(page), (at[0], at[1]))
    file = io.BytesIO()
    paper.save(file, "PNG")
    return file.getvalue()


def ridges(steep: np.ndarray, least: float) -> np.ndarray:
    """Return where a slope is steeper than its neighbours left and right, or above and below, and than most such."""
    padded = np.pad(steep, 1)
    centre = padded[1:-1, 1:-1]
    is_ridge = (centre >= padded[1:-1, :-2]) & (centre > padded[1:-1, 2:])
    is_ridge |= (centre >= padded[:-2, 1:-1]) & (centre > padded[2:, 1:-1])
    return is_ridge & (steep > np.percentile(steep[is_ridge], least)) if is_ridge.any() else is_ridge


def drawings(folder: Path) -> Iterator[Row]:
    """Yield drawings of random photographs."""
    generator = np.random.default_rng(1)
    for key, _, data in rows_of(folder, PHOTOS, DRAWINGS):
        yield f"drawing of {key}", None, drawing(data, generator)


def for_views(folder: Path) -> Iterator[Row]:
    """Yield labelled images."""
    for name, n in VIEWS.items():
        yield from rows_of(folder, name, n)
    yield from (row for row in rows_of(folder, PHOTOS) if row[1] is not None)


def for_damage(folder: Path) -> Iterator[Row]:
    """Yield images of all kinds; their labels are not read."""
    for name, n in DAMAGED.items():
        yield from ((key, None, data) for key, _, data in rows_of(folder, name, n))
    yield from drawings(folder)


def write(rows: Iterator[Row], out: Path) -> Path:
    """Write a table of images, unless it is there."""
    if not out.exists():
        schema = pa.schema([("key", pa.string()), ("label", pa.string()), ("image", pa.binary())])
        columns = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
        table = pa.Table.from_arrays(columns, schema=schema)
        table = table if table["label"].null_count < table.num_rows else table.drop_columns("label")
        pq.write_table(table, out, row_group_size=2000)
    return out


def curate(*arguments: object) -> None:
    """Run a command; one that was cut off goes on."""
    words = [str(word) for word in arguments]
    print(f"$ curate {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "curate", *words], check=True)


def typed(**settings: object) -> list[str]:
    """Return the settings of a method as they are typed."""
    return [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]


def caches(folder: Path, out: Path, trunks: Path) -> tuple[Path, Path]:
    """Make the two caches, or go on with them; return their folders."""
    views, damaged = out / "views", out / "damaged"
    common = ["--model", trunks, "--precision", "bf16"]
    curate("cache", write(for_damage(folder), out / "damaged.parquet"), "-o", damaged, *common,
           "--epochs", EPOCHS["damaged"], "--set", "scale=0.9", "--set", "jitter=0", "--set", "damage=1")  # fmt: skip
    curate("cache", write(for_views(folder), out / "views.parquet"), "-o", views, *common,
           "--epochs", EPOCHS["views"], "--set", "scale=0.1", "--set", "jitter=0.5", "--set", "gray=0.1",
           "--set", "blur=0.3", "--set", "blur_sigma=8", "--set", "corrupt=0.3", "--set", "damage=0.1")  # fmt: skip
    return views, damaged


def heads(out: Path, trunks: Path, views: Path, damaged: Path) -> Path:
    """Add the heads one after another; return the checkpoint that has all."""
    steps: list[tuple[str, Path, list[object]]] = [
        ("mcinfonce", views, [*typed(positives="labels", latent_dim=16, kappa_pos=16, samples=8, kappa="norm"),
                              "--epochs", 8, "--batch-size", 256, "--lr", 1e-3]),
        ("visimsiam", views, [*typed(latent_dim=512, predictor_every=1), "--epochs", 12, "--batch-size", 256,
                              "--lr", 0.1, "--set", "schedule=cosine", "--set", "warmup=0.05"]),
        ("junk", damaged, [*typed(n_damaged=4, noise=0.7, within=0.7), "--epochs", 12, "--batch-size", 256,
                           "--lr", 1e-3]),
        ("losspred", views, [*typed(within=0.3), "--epochs", 14, "--batch-size", 512, "--lr", 1e-3]),
    ]  # fmt: skip
    before = trunks
    for number, (method, cache, options) in enumerate(steps, 1):
        after = out / f"{number}.safetensors"
        if not after.exists():
            curate("train", method, "--cached", cache, "--backbone", before, "-o", after, "--freeze", "--half",
                   "--licence", LICENCE, *options)  # fmt: skip
        before = after
    return before


def finish(trained: Path, views: Path, width: int, evaluation: Path | None, out: Path) -> None:
    """Write the model with the narrower embedding, and what was measured with it."""
    model, card = load_model(trained)
    card["training"] |= {"note": NOTE}
    if evaluation is not None:
        card["metrics"] |= {"evaluation": json.loads(evaluation.read_text())}
    model = projected(model, open_cache(views).epoch(PLAIN), width)
    digest = save_checkpoint(out, model, card, dtype=torch.float16, exact=["backbone."])
    print(f"model {digest[:12]}: {out}")


def main() -> None:
    """Join the backbones, cache, and train the heads."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--width", type=int, default=384, help="of the embedding")
    parser.add_argument("--evaluation", type=Path, help="JSON for the card: what was measured")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    trunks = arguments.out / "trunks.safetensors"
    if not trunks.exists():
        join = Path(__file__).with_name("join_trunks.py")
        subprocess.run([sys.executable, str(join), str(arguments.folder), str(trunks)], check=True)
    views, damaged = caches(arguments.folder, arguments.out, trunks)
    trained = heads(arguments.out, trunks, views, damaged)
    finish(trained, views, arguments.width, arguments.evaluation, arguments.out / "world.safetensors")


if __name__ == "__main__":
    main()
