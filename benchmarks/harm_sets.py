"""The datasets of benchmarks/harm.py: clean ones of unlike domains, junk planted in them, groups mixed into them."""

import io
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from named_data import open_data
from PIL import Image, ImageDraw, ImageFont
from transfer_datasets import Images, images_of, png
from transfer_junk import MADE, jpeg

from scoring.images import decode_rgb

Pixels = np.ndarray  # (H, W, 3), float in [0, 255]
Draw = np.random.Generator
Named = tuple[Path, tuple[str, ...]]
CLEAN = "clean"
WORDS = ("error", "404", "the", "requested", "object", "not", "found", "server", "access", "denied", "host", "token")

FILES: dict[str, tuple[str, str | None, int | None]] = {  # name -> file, domain, most rows
    "Caltech": ("caltech_subset", None, None),
    "groceries": ("grocery_160", None, None),
    "monkeys": ("monkeys10_160", None, None),
    "aerial": ("rsscn7_160", None, None),
    "photographs": ("pacs_160", "photo", None),
    "cartoons": ("pacs_160", "cartoon", None),
    "sketches": ("pacs_160", "sketch", None),
    "art": ("pacs_160", "art_painting", None),
    "steel": ("steel_200", None, None),
    "plankton": ("plankton60", None, None),
    "skin": ("skin_200", None, None),
    "CIFAR-10": ("cifar10_test", None, 2000),
    "tiny-imagenet": ("tinyimagenet_val", None, 2000),
}
NOISE = {"plankton": 5}  # set -> its class of camera noise and streaks, which is junk with a label
DRAWN, MIXED, CRAWL = "handwriting (drawn)", "photographs 92 : 8 cartoons", "crawl"
SETS = (*FILES, DRAWN, MIXED)
PHOTOGRAPHS = ("Caltech", "groceries", "monkeys", "aerial", "photographs", "CIFAR-10", "tiny-imagenet")
PAIRS = (  # dataset, and the domain that is mixed into it
    ("photographs", "cartoons"),
    ("photographs", "sketches"),
    ("photographs", "skin"),
    ("photographs", "aerial"),
    ("monkeys", "cartoons"),
    ("monkeys", "sketches"),
    ("aerial", "photographs"),
    ("steel", "skin"),
    ("steel", "photographs"),
    ("skin", "photographs"),
    ("skin", "plankton"),
    ("plankton", "photographs"),
    ("cartoons", "photographs"),
    ("sketches", "photographs"),
    ("groceries", "cartoons"),
    ("CIFAR-10", "sketches"),
)


def data_and_sets(typed: Sequence[str] | None, chosen: Sequence[str] | None, default: Sequence[str]) -> Named:
    """Return the folder that ``--data`` names, and the sets to run on: as given, or yours, which join ``FILES``."""
    data = open_data(typed, dict.fromkeys(file for file, *_ in FILES.values()), sets=True)
    FILES.update({name: (name, None, None) for name in data.added})
    sets = tuple(chosen or data.added or default)
    parts = [
        part
        for name in sets
        for part in {MIXED: ("photographs", "cartoons"), CRAWL: ("photographs",)}.get(name, (name,))
    ]
    return data.need(*(FILES[name][0] for name in parts if name in FILES)), sets


def clean_images(data: Path, name: str) -> Images:
    """Return one of ``SETS``."""
    if name == DRAWN:
        return handwriting()
    if name == MIXED:
        return mixed(clean_images(data, "photographs"), clean_images(data, "cartoons"), 0.08)
    file, domain, most = FILES[name]
    images = images_of(data / f"{file}.parquet", domain)
    images = Images(images.data, np.unique(images.label, return_inverse=True)[1], [CLEAN] * len(images.data))
    if name in NOISE:
        images = images.take(np.flatnonzero(images.label != NOISE[name]))
    if most is None or len(images.data) <= most:
        return images
    return images.take(np.sort(np.random.default_rng(0).permutation(len(images.data))[:most]))


def mixed(base: Images, other: Images, share: float, kind: str = CLEAN, seed: int = 0) -> Images:
    """Return a dataset of which a share are images of another one, under their own classes."""
    count = round(len(base.data) * share / (1 - share))
    rows = np.random.default_rng(seed).permutation(len(other.data))[:count]
    some = other.take(rows)
    labels = np.concatenate([base.label, some.label + base.label.max() + 1])
    return Images([*base.data, *some.data], labels, [*base.kind, *[kind] * len(rows)])


def handwriting(classes: int = 60, each: int = 20, side: int = 128, seed: int = 5) -> Images:
    """Return characters of one to three strokes, drawn by hand so to speak: black on white, one bit, PNG."""
    draw = np.random.default_rng(seed)
    data, labels = [], []
    for number in range(classes):
        strokes = [draw.uniform(0.15, 0.85, (draw.integers(3, 6), 2)) for _ in range(draw.integers(1, 4))]
        for _ in range(each):
            image = Image.new("1", (side, side), 1)
            pen = ImageDraw.Draw(image)
            scale, slant, width = draw.uniform(0.7, 1.05), draw.normal(0, 0.12), int(draw.integers(2, 5))
            off = 0.5 + draw.normal(0, 0.03, 2)
            for stroke in strokes:
                points = (stroke + draw.normal(0, 0.03, stroke.shape) - 0.5) * scale
                points[:, 0] += slant * points[:, 1]
                pen.line([tuple(point) for point in _smooth(points + off) * side], fill=0, width=width, joint="curve")
            out = io.BytesIO()
            image.save(out, "PNG")
            data.append(out.getvalue())
            labels.append(number)
    return Images(data, np.array(labels), [CLEAN] * len(data))


def _smooth(points: np.ndarray) -> np.ndarray:
    at = np.linspace(0, len(points) - 1, 60)
    lines = [np.interp(at, np.arange(len(points)), values) for values in points.T]
    return np.stack([np.convolve(np.pad(line, 4, "edge"), np.ones(9) / 9, "valid") for line in lines], 1)


def placeholder(pixels: Pixels, draw: Draw) -> Pixels:
    """Return one of three tiles that say that there is no image."""
    kind = int(draw.integers(0, 3))
    page, ink = ((238, 150), (255, 120), (51, 200))[kind]
    image = Image.new("RGB", (300, 300), (page,) * 3)
    pen = ImageDraw.Draw(image)
    if kind == 0:
        pen.rectangle([80, 90, 220, 190], outline=(ink,) * 3, width=6)
        pen.polygon([(95, 180), (140, 120), (200, 180)], fill=(ink,) * 3)
    if kind == 2:
        pen.ellipse([110, 80, 190, 160], outline=(ink,) * 3, width=8)
    words = ("no image", "photo unavailable", "image not found")[kind]
    pen.text((60, 205), words, fill=(ink,) * 3, font=ImageFont.load_default(24))
    return np.asarray(image).astype(float)


def colour_bars(pixels: Pixels, draw: Draw) -> Pixels:
    """Return a test pattern of seven colour bars."""
    colours = np.array(
        [[192, 192, 192], [192, 192, 0], [0, 192, 192], [0, 192, 0], [192, 0, 192], [192, 0, 0], [0, 0, 192]]
    )
    bar = np.arange(pixels.shape[1]) * 7 // pixels.shape[1]
    return np.broadcast_to(colours[draw.permutation(7)][bar], pixels.shape).astype(float)


def error_page(pixels: Pixels, draw: Draw) -> Pixels:
    """Return a page of an error message."""
    image = Image.new("RGB", (320, 240), (255, 255, 255))
    pen = ImageDraw.Draw(image)
    for line in range(int(draw.integers(5, 13))):
        pen.text((10, 10 + 17 * line), " ".join(draw.choice(WORDS, 6)), fill=(0, 0, 0), font=ImageFont.load_default(13))
    return np.asarray(image).astype(float)


def torn(pixels: Pixels, draw: Draw) -> Pixels:
    """Return an image of which the first 3 to 12 % of the rows came through, and grey."""
    out = pixels.copy()
    out[int(draw.uniform(0.03, 0.12) * len(pixels)) :] = 128
    return out


PLANTED: dict[str, Callable[[Pixels, Draw], Pixels]] = {**MADE, "placeholder": placeholder}
UNSEEN: dict[str, Callable[[Pixels, Draw], Pixels]] = {  # which no corruption of the package is made like
    "colour bars": colour_bars,
    "error page": error_page,
    "torn": torn,
}
KINDS = (*PLANTED, *UNSEEN)
ROWS = 1000  # most clean rows that junk is planted among


def planted(images: Images, share: float, seed: int = 0) -> Images:
    """Return clean images with junk of every kind, in equal numbers, as a share of all rows."""
    draw = np.random.default_rng(seed)
    order = draw.permutation(len(images.data))
    clean = np.sort(order[:ROWS])
    each = max(1, round(len(clean) * share / (1 - share) / len(KINDS)))
    encode = png if images.data[0][:4] == b"\x89PNG" else jpeg
    data, labels, kinds = images.take(clean).data, list(images.label[clean]), [CLEAN] * len(clean)
    for name, make in {**PLANTED, **UNSEEN}.items():
        for row in draw.choice(len(images.data), each, replace=each > len(images.data)):
            data.append(encode(make(decode_rgb(images.data[row]).astype(float), draw)))
            labels.append(int(draw.choice(images.label)))
            kinds.append(name)
    return Images(data, np.array(labels), kinds)


def crawl(images: Images, seed: int = 0) -> Images:
    """Return 697 images with 310 copies of three placeholder tiles, as a crawl has them."""
    draw = np.random.default_rng(seed)
    tiles = {jpeg(placeholder(np.zeros((1, 1, 3)), draw)) for _ in range(60)}
    chosen = sorted(tiles)[:3]
    clean = images.take(np.sort(draw.permutation(len(images.data))[:697]))
    copies = [chosen[0]] * 287 + [chosen[1]] * 15 + [chosen[-1]] * 8
    labels = np.concatenate([clean.label, draw.choice(clean.label, len(copies))])
    return Images([*clean.data, *copies], labels, [*[CLEAN] * len(clean.data), *["placeholder"] * len(copies)])


def classes_of(path: Path) -> np.ndarray:
    """Return the column ``label`` of a table."""
    return np.asarray(pq.read_table(path, columns=["label"])["label"].to_numpy())
